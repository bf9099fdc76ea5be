"""Where replicas run. One directory per cluster kind; a backend knows no framework."""

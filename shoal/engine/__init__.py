"""Where backends and store meet: what has to happen next (`decide`), and doing it (`act`)."""

"""The local cluster: processes on this machine, under a shepherd for each attempt."""

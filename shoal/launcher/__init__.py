"""What runs inside a replica: standard library only, clean for Python 3.8."""

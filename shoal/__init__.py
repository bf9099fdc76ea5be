"""Shoal runs distributed training experiments and tracks every rank of them.

This package root is what a training script imports inside a replica, so it loads the standard library only.
"""

__version__ = "0.1.0"

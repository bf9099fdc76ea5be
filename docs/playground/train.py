"""Stands for a training script in the guides."""

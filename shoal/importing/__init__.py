"""Runs of other trackers -> runs outside Shoal, which the server knows how to bring in. No tracker is needed for it."""

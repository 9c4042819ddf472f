"""Batches: many runs at once, on all cores or on a GPU."""

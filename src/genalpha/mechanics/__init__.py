"""Mechanical systems, the spaces they live in, and values at the start of a run."""

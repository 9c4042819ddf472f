"""Mechanical systems, their configuration spaces, and values at the start of a run."""

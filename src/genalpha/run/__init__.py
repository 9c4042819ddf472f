"""A run from its arguments to its solution."""

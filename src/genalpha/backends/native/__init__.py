"""Runs by machine code."""

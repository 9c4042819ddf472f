"""Runs by XLA."""

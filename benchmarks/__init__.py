"""Measurements of cost against accuracy."""

"""Runs of models: many at once, linear ones, and what is looked at before and after."""

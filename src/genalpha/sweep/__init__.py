"""Sweeps: the same model many times, on one machine or many, with a store that survives all of them."""

"""Statics and linear analysis: equilibria, linear equations, modes, and forces that a motion needs."""

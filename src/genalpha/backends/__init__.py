"""The loops around a step."""

"""Redundant constraints: independent rows among them are integrated, and all share the reaction forces.

The rows that are left out are monitored. A run does not succeed if one of them is violated.
"""

from genalpha.run.redundant.front import run

__all__ = ["run"]

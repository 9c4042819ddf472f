"""Constraints that follow from others: an independent choice of rows is integrated, the load shared by all.

The rows that are left out are watched: a run never succeeds with one of them broken.
"""

from genalpha.run.redundant.front import Redundant, allowed

__all__ = ["Redundant", "allowed"]

"""Constraints that follow from others: an independent choice of rows is integrated, the load shared by all.

The rows that are left out are monitored: a run never succeeds with one of them broken.
"""

from genalpha.run.redundant.front import run

__all__ = ["run"]

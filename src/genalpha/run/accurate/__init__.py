"""Answers with known digits: runs with several step sizes, combined; their differences give the error."""

from genalpha.run.accurate.front import run

__all__ = ["run"]

"""Answers with known digits: runs with several step sizes, combined; their differences give the error."""

import contextlib

from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run.accurate import eventful
from genalpha.run.accurate.columns import ColumnStore
from genalpha.run.accurate.front import AccurateRun
from genalpha.run.request import Request


def run(asked: Request) -> Solution:
    """The solution with an estimate of its global error. A failure becomes its status."""
    store = ColumnStore.of(asked)
    with contextlib.closing(Bar(asked.watch.progress)) as bar:
        if asked.watch.events:
            sol = eventful.run(asked, bar, store)
        else:
            sol = AccurateRun(asked, bar, store=store).solution()
    if store is not None:
        store.write(now=True)
    return sol

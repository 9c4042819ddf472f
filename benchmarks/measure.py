"""What the benchmarks share: clocks, tables, and where results go."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

OUT = Path("out/bench")


def seconds(function: Callable[[], Any]) -> float:
    """Time of one call."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def in_turns(functions: Sequence[Callable[[], Any]], repeats: int) -> list[list[float]]:
    """Times of ``repeats`` calls of each function, taken in turns so that all meet the same disturbances."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for taken, function in zip(times, functions, strict=True):
            taken.append(seconds(function))
    return times


def start_up() -> float:
    """Seconds until JAX has compiled and run anything at all; nothing is read from a cache of programs."""
    jax.config.update("jax_enable_compilation_cache", False)
    return seconds(lambda: jax.jit(lambda x: x + 1.0)(1.0).block_until_ready())


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of those packages that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def time_to(errors: Sequence[float], times: Sequence[float], target: float) -> float:
    """The time to an error, by a power law between two settings of a ladder from coarse to fine.

    NaN where no setting is fine enough, the time of the coarsest where all are. No error counts that is small
    by chance: all finer settings must reach the target too.
    """
    above = [i for i, error in enumerate(errors) if not error <= target]
    if not above:
        return times[0]
    i = above[-1]
    if i + 1 == len(errors):
        return np.nan
    share = np.log(errors[i] / target) / np.log(errors[i] / errors[i + 1])
    return float(times[i] ** (1 - share) * times[i + 1] ** share)


def plain(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table for the terminal."""
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]

    def text(line: Sequence[str]) -> str:
        sized = enumerate(zip(line, widths, strict=True))
        return "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in sized).rstrip()

    return "\n".join([text(head), *(text(line) for line in lines)])


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def paragraphs(text: str) -> list[str]:
    """Paragraphs on one line each."""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]

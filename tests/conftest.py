"""Shared problems: the same System object in all tests of a worker, so that programs compile once."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path

# XLA's older emitters compile gradients in half the time; it must be said before JAX starts.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import jax
import numpy as np
import pytest

import genalpha as ga
from genalpha.cli.main import main


@functools.cache
def problem(name: str, **parameters: float) -> ga.problems.Problem:
    return ga.problems.get(name, **parameters)


def run(name: str, *, t_end: float | None = None, **options: object) -> ga.Solution:
    """Solve a named problem, up to t_end."""
    return problem(name).solve(t_end=t_end, **options)


# Linux lets a process have 65530 pieces of memory; XLA crashes where its programs need more.
_MAPS, _MOST, _tests = Path("/proc/self/maps"), 30_000, itertools.count(1)


def pytest_runtest_teardown() -> None:
    """Forget XLA's programs now and then: all tests of a worker have more than fit into a process."""
    if next(_tests) % 16 == 0 and _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MOST:
        jax.clear_caches()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20080712)


@pytest.fixture
def genalpha(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line in this process; returns its exit code, stdout and stderr."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def widest(text: str) -> int:
    """The length of the longest line."""
    return max(len(line) for line in text.splitlines())

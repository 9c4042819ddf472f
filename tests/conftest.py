"""Shared problems: the same System object in all tests of a worker, so that programs compile once."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

# XLA's older emitters compile gradients in half the time; it must be said before JAX starts.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import numpy as np
import pytest

import genalpha as ga
from genalpha.cli import main


@functools.cache
def problem(name: str, **parameters: float) -> ga.problems.Problem:
    return ga.problems.get(name, **parameters)


def run(name: str, *, t_end: float | None = None, **options: object) -> ga.Solution:
    """Solve a named problem, up to t_end."""
    return problem(name).solve(t_end=t_end, **options)


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

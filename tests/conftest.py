"""Shared problems: the same System object in all tests of a worker, so that programs compile once."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import genalpha as ga


@functools.cache
def problem(name: str, **parameters: float) -> ga.problems.Problem:
    return ga.problems.get(name, **parameters)


def run(name: str, *, t_end: float | None = None, **options: object) -> ga.Solution:
    """Solve a named problem, up to t_end."""
    return problem(name).solve(t_end=t_end, **options)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20080712)

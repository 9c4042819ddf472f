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
    p = problem(name)
    t_span = p.t_span if t_end is None else (p.t_span[0], t_end)
    return ga.solve(p.system, t_span, p.q0, p.v0, args=p.args, **{"h": p.h, **options})


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20080712)

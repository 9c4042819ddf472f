"""The number of XLA operations in a step: what the time of a small system is made of."""

import pytest
from benchmarks.operations import operations

import genalpha as ga


@pytest.mark.parametrize("name", ["pendulum", "rolling-disk"])
def test_a_step_stays_short(name):
    """Bounds with some room for other versions of XLA; the numbers themselves are in docs/benchmarks.md."""
    counts = operations(ga.problems.get(name))
    assert 0 < counts["correction"] <= 29
    assert counts["correction"] < counts["step"] <= 75
    assert 0 < counts["jacobian"] <= 60
    assert sum(counts["kinds"]["step"].values()) == counts["step"]

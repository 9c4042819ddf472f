"""The error that ``accuracy`` claims, against an independent integrator, on random systems."""

import numpy as np
import pytest

import genalpha as ga
from accuracy_claims import SMOOTH, broken, claims
from genalpha.engine.extrapolation import Sizes
from random_mechanisms import STRUCTURES


def test_a_few():
    found = list(claims(["poly-2-1-0"], 3, (1e-8,)))
    assert len(found) == 3
    for claim in found:
        assert claim.true < 2 * claim.accuracy + 3 * claim.reference, claim
        assert claim.true < 5 * claim.estimate + 3 * claim.reference, claim


def test_a_mechanism_that_cannot_move():
    """It has as many constraints as coordinates: velocities are rounding, and have no relative errors."""
    structure = STRUCTURES["poly-1-1-0"]
    member = structure.draw(np.random.default_rng(23))
    sol = ga.solve(structure.system, (0.0, 4.0), member.q0, member.v0, args=(member.args,), accuracy=1e-8)
    assert np.abs(sol.q - member.q0).max() < 1e-14
    assert np.abs(sol.v).max() < 1e-20
    rows = np.full((3, 1), 0.7), np.zeros((3, 1))
    sizes = Sizes.of(np.full((2, 1), 1e-8), *rows, 4.0)
    assert sizes.norm(np.zeros((3, 1)), np.full((3, 1), 1e-27)).max() < 1e-6


@pytest.mark.slow
def test_many():
    """At least 200 systems, with four accuracies each."""
    found = list(claims(SMOOTH, 13))
    assert len(found) >= 4 * 200
    assert not broken(found)

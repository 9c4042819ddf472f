"""The error that ``accuracy`` claims, against an independent integrator, on random systems."""

import pytest

from accuracy_claims import SMOOTH, broken, claims


def test_a_few():
    found = list(claims(["poly-2-1-0"], 3, (1e-8,)))
    assert len(found) == 3
    for claim in found:
        assert claim.true < 2 * claim.accuracy + 3 * claim.reference, claim
        assert claim.true < 5 * claim.estimate + 3 * claim.reference, claim


@pytest.mark.slow
def test_many():
    """At least 200 systems, with four accuracies each."""
    found = list(claims(SMOOTH, 13))
    assert len(found) >= 4 * 200
    assert not broken(found)

"""Elimination in a given order of rows."""

import numpy as np
import pytest

from genalpha.numerics import linear


@pytest.mark.parametrize("size", [1, 4, linear.MOST_ELIMINATED + 2])
def test_rows_in_order_are_eliminated(size, rng):
    """Larger ones go to the library."""
    matrix = rng.normal(size=(size, size)) + 3 * size * np.eye(size)
    for rhs in (rng.normal(size=size), rng.normal(size=(size, 2))):
        found = linear.solve_in_order(matrix, rhs)
        np.testing.assert_allclose(found, np.linalg.solve(matrix, rhs), rtol=1e-12)

"""Sparse LU in machine code: patterns, factors and solutions of random matrices."""

import numpy as np
import pytest
import scipy.sparse as sparse

from genalpha.compiler import sparse_pattern as factors
from genalpha.compiler.markowitz import Elimination, Exhausted
from genalpha.compiler.sparse_factors import Lists, SparseFactors


def factored(pattern, values):
    return SparseFactors(Lists(pattern), values)


def entries(size, seed, twice=True):
    """Random entries of a matrix that is not singular, some of them at the same place."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(size, size=(2, 3 * size))
    values = rng.normal(size=3 * size)
    order = rng.permutation(size)  # no zero-free diagonal
    rows, columns = np.concatenate([rows, np.arange(size)]), np.concatenate([columns, order])
    values = np.concatenate([values, 4 + rng.random(size)])
    if twice:
        rows, columns, values = (np.concatenate([x, x[:size]]) for x in (rows, columns, values))
    return rows, columns, values


@pytest.mark.parametrize("size", [1, 2, 7, 40, 300])
@pytest.mark.parametrize("seed", range(3))
def test_solutions_are_those_of_the_matrix(size, seed):
    rows, columns, values = entries(size, seed)
    matrix = sparse.csc_matrix((values, (rows, columns)), shape=(size, size))
    found = factored(factors.analysed(size, rows, columns, values), values)
    assert not found.work.any()  # it is zero again
    b = np.random.default_rng(seed).normal(size=size)
    x = found.solve(b)
    np.testing.assert_allclose(matrix @ x, b, atol=1e-11 * (1 + np.abs(x).max()))
    assert found.healthy
    np.testing.assert_allclose(found.report[3], values.sum(), atol=1e-9)


def test_other_numbers_have_the_same_pattern():
    """The pattern holds for all numbers, also if entries were zero when it was made."""
    rows, columns, values = entries(60, 0, twice=False)
    some = np.where(np.arange(len(values)) % 3 == 0, 0.0, values)
    some[-60:] = values[-60:]
    pattern = factors.analysed(60, rows, columns, some)
    b = np.random.default_rng(1).normal(size=60)
    x = factored(pattern, values).solve(b)
    matrix = sparse.csc_matrix((values, (rows, columns)), shape=(60, 60))
    np.testing.assert_allclose(matrix @ x, b, atol=1e-8 * (1 + np.abs(x).max()))


def test_the_report_tells_of_small_pivots_and_numbers_that_are_not_finite():
    rows, columns = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    pattern = factors.patterned((np.arange(2), np.arange(2)), 2, rows, columns)
    small = factored(pattern, np.array([1e-9, 1.0, 1.0, 1.0]))
    growth, largest, inverse, total = small.report
    assert not small.healthy
    assert growth == pytest.approx(1e9)
    assert largest * inverse > 1e17
    assert np.isfinite(total)
    assert not np.isfinite(factored(pattern, np.array([1.0, np.nan, 1.0, 3.0])).report[3])


def test_a_singular_matrix_has_no_pattern():
    with pytest.raises(factors.Singular):
        factors.analysed(2, np.array([0, 0]), np.array([0, 1]), np.array([1.0, 2.0]))


def test_fill_is_known_beforehand():
    """An arrow that is eliminated from its head fills the whole matrix."""
    size = 6
    rows = np.concatenate([np.arange(size), np.zeros(size - 1, int), np.arange(1, size)])
    columns = np.concatenate([np.arange(size), np.arange(1, size), np.zeros(size - 1, int)])
    full = factors.patterned((np.arange(size), np.arange(size)), size, rows, columns)
    assert len(full.li) == len(full.ui) == size * (size - 1) // 2
    last = np.arange(size)[::-1].copy()
    assert len(factors.patterned((last, last), size, rows, columns).li) == size - 1


def arrow_of_blocks(count):
    """Full blocks of 3 that are all joined to one more unknown: few new entries if this comes last."""
    block, last = np.arange(3 * count).reshape(-1, 3), np.full((count, 3), 3 * count)
    inside = [x.reshape(-1) for x in np.broadcast_arrays(block[:, :, None], block[:, None, :])]
    rows = np.concatenate([inside[0], block.reshape(-1), last.reshape(-1), [3 * count]])
    columns = np.concatenate([inside[1], last.reshape(-1), block.reshape(-1), [3 * count]])
    return rows, columns, np.random.default_rng(0).random(len(rows)) + 10 * (rows == columns)


def test_markowitz_order_has_the_least_fill():
    """The block that is eliminated fills nothing but itself and the last row and column."""
    rows, columns, values = arrow_of_blocks(20)
    row, column = Elimination(61, rows, columns, values, 0.1).order()
    assert sorted(row) == sorted(column) == list(range(61))
    pattern = factors.patterned((row, column), 61, rows, columns)
    assert len(pattern.li) + len(pattern.ui) == 20 * 3 * 2 + 2 * 60  # without the diagonal
    b = np.random.default_rng(1).normal(size=61)
    x = factored(pattern, values).solve(b)
    matrix = sparse.csc_matrix((values, (rows, columns)), shape=(61, 61))
    np.testing.assert_allclose(matrix @ x, b, atol=1e-10 * (1 + np.abs(x).max()))


@pytest.mark.parametrize("seed", range(3))
def test_multiples_of_rows_are_as_small_as_the_threshold_says(seed):
    rows, columns, values = entries(80, seed)
    for threshold in (0.1, 0.5):
        order = Elimination(80, rows, columns, values, threshold).order()
        pattern = factors.patterned(order, 80, rows, columns)
        assert factored(pattern, values).report[0] <= 1 / threshold * (1 + 1e-9)


def test_the_order_with_less_work_is_taken(monkeypatch):
    """COLAMD is better for long chains, and Markowitz' order for most other matrices.

    It is not taken if its pivots differ much more in size.
    """
    better = set()
    monkeypatch.setattr(factors, "SPREAD", np.inf)
    for seed in range(4):
        rows, columns, values = entries(120, seed)
        taken = factors.analysed(120, rows, columns, values)
        elimination = Elimination(120, rows, columns, values, 0.1)
        own = factors.patterned(elimination.order(), 120, rows, columns)
        with monkeypatch.context() as patch:
            patch.setattr(factors, "SMALL", 0)
            colamd = factors.analysed(120, rows, columns, values)
        work = [factors._work(x) for x in (own, colamd)]
        assert factors._work(taken) == min(work)
        better.add(int(np.argmin(work)))
        with monkeypatch.context() as patch:
            patch.setattr(factors, "SPREAD", 1e-9)
            assert factors._work(factors.analysed(120, rows, columns, values)) == work[1]
    assert 0 in better


def test_no_entry_can_be_a_pivot():
    with pytest.raises(Exhausted):
        Elimination(2, np.array([0, 1]), np.array([0, 0]), np.ones(2), 0.1).order()

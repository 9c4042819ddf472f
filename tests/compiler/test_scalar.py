"""Functions written in JAX and compiled as scalar programs give the results of JAX, however they are run."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from compiled import HAS_CC, Rows, by_c, by_llvm
from genalpha.compiler import machine
from genalpha.compiler.primitives import calls, table
from genalpha.compiler.reader import Symbols, inline
from scalar_functions import ANYWHERE, FUNCTIONS, split


def points() -> tuple[np.ndarray, np.ndarray]:
    """Ordinary rows, and rows of numbers that are not."""
    rng = np.random.default_rng(0)
    ordinary = rng.uniform(-2, 2, (5, 18))
    odd = rng.choice(
        [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 2.5, np.inf, -np.inf, np.nan, 1e300, -1e-300], (24, 18)
    )
    ordinary[3] = np.round(ordinary[3])
    ordinary[4, :8] = 0.75  # ties
    return ordinary, odd


class Results:
    """All functions at all points by JAX, and what the package makes of them."""

    def __init__(self, folder: Any) -> None:
        ordinary, odd = points()
        self.rows: dict[str, Rows] = {}
        self.failures: dict[str, Exception] = {}
        for name, function in FUNCTIONS.items():
            rows = Rows(name, 18)
            try:
                given = [Symbols(ids, "f") for ids in split(rows.inputs)]
                outputs = jax.tree.leaves(inline(rows.graph, function, *given))
            except Exception as error:
                self.failures[name] = error
                continue
            self.rows[name] = rows.finish(np.concatenate([np.ravel(x) for x in outputs]).tolist())
        self.points = {n: np.concatenate([ordinary, odd]) if n in ANYWHERE else ordinary for n in FUNCTIONS}
        by_jax = jax.jit(lambda row: {n: f(*split(row)) for n, f in FUNCTIONS.items()})
        runs = [by_jax(row) for row in np.concatenate([ordinary, odd])]
        flat = lambda tree: np.concatenate([np.ravel(x).astype(float) for x in jax.tree.leaves(tree)])
        self.expected = {n: np.array([flat(r[n]) for r in runs[: len(self.points[n])]]) for n in FUNCTIONS}
        many = list(self.rows.values())
        self.ways = {"graph": lambda rows, table: rows.evaluate(table)}
        self.ways |= {f"{lanes} lanes": by_llvm(many, lanes) for lanes in (1, machine.lanes())}
        if HAS_CC:
            self.ways["C"] = by_c(many, folder)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("rows"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_numbers_as_jax(results: Results, name: str) -> None:
    if name in results.failures:
        raise results.failures[name]
    expected = results.expected[name]
    for way, run in results.ways.items():
        found = run(results.rows[name], results.points[name])
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10, err_msg=way)


def test_tables_are_covered() -> None:
    """Every primitive that has a scalar form occurs in some function above."""
    seen: set[str] = set()

    def walk(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            seen.add(equation.primitive.name)
            for value in jax.tree.leaves(
                list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")
            ):
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns"):
                    walk(inner)

    for function in FUNCTIONS.values():
        walk(jax.make_jaxpr(lambda row, f=function: f(*split(row)))(np.ones(18)).jaxpr)
    spare = {
        "add_any",
        "copy_p",
        "name",
        "lt_to",
        "le_to",
        "stack",
        "device_put",
        "genalpha_derivative",
        "genalpha_host",
        "genalpha_nudge",
        "genalpha_scalars",
    }  # no function of JAX makes these
    older = {"pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"} | {
        n for n in table.TABLE if "scatter_" in n
    }
    assert set(table.TABLE) | set(calls.CALLS) <= seen | spare | older
    assert seen & {"remat", "remat2", "checkpoint"}

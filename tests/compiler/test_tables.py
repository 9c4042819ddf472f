"""Tables are read from memory, and give the results of JAX, however they are run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy.ndimage import map_coordinates

import genalpha as ga
from compiled import HAS_CC, Rows, by_c, by_llvm
from genalpha.compiler import emit_llvm, machine
from genalpha.compiler.differentiate import jacobian, pulled_back
from genalpha.compiler.graph import Graph, Unsupported
from genalpha.compiler.primitives import lookup
from genalpha.compiler.program import cut
from genalpha.compiler.reader import Symbols, inline

SIZE = 13
XS, FS = jnp.linspace(-1.5, 1.5, SIZE) ** 3, jnp.cos(jnp.arange(SIZE) ** 1.5)
GRID, WHOLE = jnp.sin(jnp.arange(30.0)).reshape(5, 6), jnp.arange(SIZE) ** 2
MODES = ("clip", "fill", "wrap")


def at(s: Any) -> Any:
    """Indices, some of them outside of the table."""
    return jnp.floor(jnp.clip(4.0 * s + 6.0, -1e6, 1e6)).astype(int)


def bilinear(table: Any, a: Any, b: Any) -> Any:
    i = jnp.clip(jnp.floor(a).astype(int), 0, table.shape[0] - 2)
    j = jnp.clip(jnp.floor(b).astype(int), 0, table.shape[1] - 2)
    u, w = a - i, b - j
    low, high = ((1 - w) * table[k, j] + w * table[k, j + 1] for k in (i, i + 1))
    return (1 - u) * low + u * high


def cubic(s: Any, x: Any, f: Any) -> Any:
    """A piecewise cubic polynomial with four coefficients an interval."""
    i = jnp.clip(jnp.searchsorted(x, s, side="right") - 1, 0, len(x) - 2)
    table = jnp.stack([f, f**2, jnp.sin(f), 0.1 * f], axis=1)
    return jax.vmap(lambda a, c: jnp.polyval(c, a))(jnp.clip(s, -9.0, 9.0) - x[i], table[i])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "interp": jnp.interp,
    "interp_known": lambda s, x, f: jnp.interp(s, XS, FS),
    "interp_derived": lambda s, x, f: jnp.interp(s, 2.0 * x, -(f**3)),
    "interp_moving": lambda s, x, f: jnp.interp(s, x, s[1] * jnp.sin(f) + FS),
    "interp_outside": lambda s, x, f: jnp.interp(s, x, f, left=-7.0, right=s[0]),
    "interp_extrapolated": lambda s, x, f: jnp.interp(s, x, f, left="extrapolate", right="extrapolate"),
    "interp_of_interp": lambda s, x, f: jnp.interp(jnp.interp(s, x, f), XS, f),
    "mapped": lambda s, x, f: jax.vmap(lambda a, b: jnp.interp(a, x, b * f))(s, s),
    "tables_side_by_side": lambda s, x, f: jax.vmap(lambda g: jnp.interp(s[0], x, g))(jnp.stack([f, f**2])),
    "left": lambda s, x, f: jnp.searchsorted(x, s),
    "right": lambda s, x, f: jnp.searchsorted(x, s, side="right"),
    "left_known": lambda s, x, f: jnp.searchsorted(XS, s),
    "unrolled": lambda s, x, f: jnp.searchsorted(x, s, method="scan_unrolled"),
    "compare_all": lambda s, x, f: jnp.searchsorted(x, s, method="compare_all"),
    "not_sorted": lambda s, x, f: jnp.searchsorted(f, s),
    "whole_numbers": lambda s, x, f: jnp.searchsorted(3 * np.arange(SIZE), at(s)),
    "known_point": lambda s, x, f: jnp.searchsorted(x, jnp.array([0.1, np.nan])),
    "subscript": lambda s, x, f: [f[at(s)], FS[3:][at(s)], f[-at(s)], x[::-1][at(s)]],
    "take": lambda s, x, f: [jnp.take(f, at(s), mode=mode) for mode in MODES],
    "get": lambda s, x, f: f.at[at(s)].get(mode="fill", fill_value=7.0),
    "integers": lambda s, x, f: [jnp.take(WHOLE, at(s), mode=m) for m in MODES],
    "integers_outside": lambda s, x, f: jnp.take(at(f), at(s), mode="clip"),
    "booleans": lambda s, x, f: [(f > 0)[at(s)], (FS > 0)[at(s)], jnp.take(f > 0, at(s))],
    "window": lambda s, x, f: lax.dynamic_slice(f, (at(s)[0],), (4,)),
    "windows": lambda s, x, f: lax.dynamic_slice(GRID, tuple(at(s)), (2, 3)),
    "rows": lambda s, x, f: [GRID[at(s)], GRID.T[at(s)], jnp.outer(x, f)[at(s)[0]]],
    "both": lambda s, x, f: [GRID[tuple(at(s))], jnp.outer(x, f)[tuple(at(s))]],
    "columns": lambda s, x, f: jnp.concatenate([x, f]).reshape(SIZE, 2)[:, 1][at(s)],
    "one_known": lambda s, x, f: [GRID[2, at(s)], jnp.outer(x, f)[at(s), 3]],
    "bilinear": lambda s, x, f: [bilinear(t, *jnp.clip(s + 2, -9, 9)) for t in (GRID, jnp.outer(x, f))],
    "map_coordinates": lambda s, x, f: [
        map_coordinates(table, [s[:1] + 2, s[1:] + 2], order=order, mode=mode)
        for table in (GRID, jnp.outer(f, x))
        for order, mode in ((0, "nearest"), (1, "constant"), (1, "wrap"))
    ],
    "cubic": cubic,
    "mixed": lambda s, x, f: jnp.concatenate([s, jnp.ones(4), f, x * s[0]])[at(s)],
    "not_one_formula": lambda s, x, f: [jnp.cumsum(f)[at(s)], jnp.interp(s, x, jnp.cumsum(f) * s[0])],
    "not_finite": lambda s, x, f: jnp.array([1.0, np.nan, -np.inf, np.inf, *range(9)])[at(s)],
    "chosen": lambda s, x, f: jnp.where(f > s[0], f, 2.0 * f)[at(s)],
    "nested": lambda s, x, f: jnp.interp(s, x, jnp.interp(f, XS, FS))[:1],
    "in_a_branch": lambda s, x, f: jnp.where(s > 0, jnp.exp(jnp.interp(s, x, jnp.sin(f) * s[0])), jnp.cos(s)),
    "of_unknowns": lambda s, x, f: jnp.concatenate([s, s**2, f])[:12][at(s)],
}


def split(row: Any) -> tuple[Any, Any, Any]:
    return row[:2], row[2 : 2 + SIZE], row[2 + SIZE :]


def points() -> np.ndarray:
    rng = np.random.default_rng(3)
    usual = rng.uniform(-3, 3, (12, 2))
    odd = [[0.25, XS[4]], [XS[0], XS[-1]], [np.nan, 0.3], [np.inf, -np.inf], [1e300, -1e300], [-0.0, 0.0]]
    s = np.concatenate([usual, odd])
    x, f = np.sort(rng.normal(size=(len(s), SIZE)), axis=1), rng.normal(size=(len(s), SIZE))
    x[12:] = XS
    x[13, 5:8] = XS[5]  # a jump
    return np.concatenate([s, x, f], axis=1)


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(x).astype(float) for x in jax.tree.leaves(tree)])


def read(function: Callable[..., Any]) -> tuple[Rows, np.ndarray]:
    rows = Rows("table", 2 + 2 * SIZE)
    found = inline(rows.graph, function, *(Symbols(ids, "f") for ids in split(rows.inputs)))
    return rows, np.concatenate([np.ravel(x) for x in jax.tree.leaves(found)])


class Results:
    """All functions at all points by JAX, and what the package makes of them."""

    def __init__(self, folder: Any) -> None:
        self.points, self.rows = points(), {}
        for name, function in FUNCTIONS.items():
            rows, outputs = read(function)
            rows.name = f"rows_{name}"
            self.rows[name] = rows.finish(outputs.tolist())
        by_jax = jax.jit(lambda row: {n: f(*split(row)) for n, f in FUNCTIONS.items()})
        runs = [by_jax(row) for row in self.points]
        self.expected = {n: np.array([flat(r[n]) for r in runs]) for n in FUNCTIONS}
        many = list(self.rows.values())
        pieces = {name: copy.copy(rows) for name, rows in self.rows.items()}
        for rows in pieces.values():
            rows.program = cut(rows.program, 7)
        self.ways = {"graph": lambda name, table: self.rows[name].evaluate(table)}
        for lanes in (1, machine.lanes()):
            whole, parts = by_llvm(many, lanes), by_llvm(list(pieces.values()), lanes)
            self.ways[f"{lanes} lanes"] = lambda name, table, run=whole: run(self.rows[name], table)
            self.ways[f"{lanes} lanes, in pieces"] = lambda name, table, run=parts: run(pieces[name], table)
        if HAS_CC:
            text = by_c(many, folder)
            self.ways["C"] = lambda name, table: text(self.rows[name], table)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("tables"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_numbers_as_jax(results: Results, name: str) -> None:
    for way, run in results.ways.items():
        found = run(name, results.points)
        np.testing.assert_allclose(found, results.expected[name], rtol=1e-12, atol=1e-12, err_msg=way)


SMOOTH = [
    "interp",
    "interp_derived",
    "interp_moving",
    "bilinear",
    "cubic",
    "mixed",
    "of_unknowns",
    "windows",
    "not_one_formula",
]


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_with_respect_to_everything(name: str) -> None:
    function = lambda row: flat_traced(FUNCTIONS[name](*split(row)))
    flat_traced = lambda tree: jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(tree)])
    rows, outputs = read(FUNCTIONS[name])
    matrix = jacobian(rows.graph, outputs, rows.inputs)
    weights = np.array([rows.graph.constant(0.5 + k) for k in range(len(outputs))])
    pulled = pulled_back(rows.graph, outputs, rows.inputs, weights)
    shape = matrix.shape
    by_jax = jax.jit(jax.jacfwd(function))
    for row in points()[:4]:
        numbers = dict(zip(rows.inputs.tolist(), row.tolist(), strict=True))
        expected = np.asarray(by_jax(row))
        found = np.array(rows.graph.evaluate(matrix.ravel().tolist(), numbers)).reshape(shape)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        back = rows.graph.evaluate(pulled.tolist(), numbers)
        np.testing.assert_allclose(back, (0.5 + np.arange(shape[0])) @ expected, rtol=1e-9, atol=1e-9)


# --- sizes -----------------------------------------------------------------------------------------------


def step_of(force: Callable[..., Any], *args: np.ndarray) -> tuple[Graph, np.ndarray, int]:
    """A force q ↦ f(q, tables), its derivative, and the number of operations."""
    graph = Graph()
    q = graph.inputs(1)
    tables = [Symbols(graph.inputs(x.shape), "f") for x in args]
    value = inline(graph, force, Symbols(q, "f"), *tables)
    jacobian(graph, value, q)
    return graph, value, graph.operations


@pytest.mark.parametrize("size", [100, 1000])
def test_tables_cost_few_operations(size: int) -> None:
    x, few = np.linspace(-1.0, 1.0, size), 60
    assert step_of(jnp.interp, x, x)[2] < few
    assert step_of(lambda q: jnp.interp(q, x, x**3))[2] < few
    assert step_of(lambda q, x, f: jnp.interp(q, x, -(f**3)), x, x)[2] < 3 * size + few
    assert step_of(lambda q, f: f[at(q)], x)[2] < few
    assert step_of(lambda q, f: map_coordinates(f, [q, 2 * q], order=1), x.reshape(10, -1))[2] < 5 * few


def test_a_search_that_is_not_recognised_is_cheap_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(-1.0, 1.0, 1000)
    monkeypatch.setattr(lookup, "SEARCH", "another name")
    assert step_of(jnp.interp, x, x)[2] < 400
    rows, outputs = read(jnp.interp)
    rows.finish(outputs.tolist())
    found = rows.evaluate(points()[:4])
    np.testing.assert_allclose(found, [jnp.interp(*split(row)) for row in points()[:4]], rtol=1e-12)


def test_choices_between_few_entries_stay_choices() -> None:
    ops = lambda count: {node.op for node in step_of(lambda q, f: f[at(q)], np.zeros(count))[0].nodes}
    assert "table" not in ops(8)
    assert "table" in ops(9)


def test_a_derived_table_is_one_loop() -> None:
    rows = Rows("loop", 2000)
    x, f = (Symbols(ids, "f") for ids in rows.inputs.reshape(2, -1))
    value = inline(rows.graph, lambda x, f: jnp.interp(0.5, x, -(f**3) + 2.0 * jnp.arange(1000.0)), x, f)
    rows.finish(value.reshape(-1).tolist())
    (kernel,) = rows.program.kernels.values()
    assert kernel.operations < 60
    assert len(emit_llvm.emit([(rows.program, {"loop": rows.map})]).splitlines()) < 300


def test_the_limit_of_operations_does_not_count_entries() -> None:
    table = np.cos(np.arange(200.0))[:, None] * np.sin(np.arange(200.0))
    graph = Graph(table.size)
    ids = Symbols(graph.inputs(table.shape), "f")
    inline(graph, lambda q, f: bilinear(f, q, q), Symbols(graph.inputs(()), "f"), ids)
    with pytest.raises(Unsupported, match="a table of more than"):
        inline(graph, lambda q: jnp.zeros(lookup.LARGEST + 1)[q.astype(int)], Symbols(graph.inputs(()), "f"))


def test_constant_tables_are_part_of_the_text() -> None:
    texts = []
    for table in (FS, FS, FS + 1e-15):
        rows, outputs = read(lambda s, x, f, table=table: jnp.interp(s, x, table))
        texts.append(emit_llvm.emit([(rows.finish(outputs.tolist()).program, {"r": rows.map})]))
    assert texts[0] == texts[1] != texts[2]


# --- runs ------------------------------------------------------------------------------------------------

FINE = np.linspace(-2.0, 2.0, 101)
TABLED = ga.System(np.eye(1), lambda t, q, v, x, f: jnp.interp(q, x, f))
KINDS: dict[str, tuple[ga.System, tuple[Any, ...]]] = {
    "arguments": (TABLED, (FINE, -(FINE**3))),
    "known": (ga.System(np.eye(1), lambda t, q, v: jnp.interp(q, FINE, -(FINE**3))), ()),
    "derived": (ga.System(np.eye(1), lambda t, q, v, x: jnp.interp(q, x, -(x**3))), (FINE,)),
    "of_the_step": (
        ga.System(np.eye(1), lambda t, q, v, x: jnp.interp(q, x, -x * (1 + 0.1 * jnp.cos(5 * t)))),
        (FINE,),
    ),
    "of_time": (ga.System(np.eye(1), lambda t, q, v, x: -q + jnp.interp(t, x, q[0] * x)), (FINE,)),
}


SLOW = [(kind, {"rtol": 1e-4}) for kind in KINDS] + [("known", {"h": 0.01}), ("of_time", {"h": 0.01})]
RUNS = [(kind, {"h": 0.01}) for kind in ("arguments", "derived", "of_the_step")]
RUNS += [pytest.param(*run, marks=pytest.mark.slow) for run in SLOW]  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(("kind", "steps"), RUNS)
def test_runs_equal_those_by_xla(kind: str, steps: dict[str, float]) -> None:
    system, args = KINDS[kind]
    run = lambda backend: ga.solve(system, (0, 1.0), [1.0], [0.5], args=args, backend=backend, **steps)
    one, two = run("native"), run("xla")
    assert one.backend == "native"
    assert one.stats.newton_iterations == two.stats.newton_iterations
    for name in ("t", "q", "v", "a"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-9, atol=1e-9)


def test_lanes_share_a_table_or_have_their_own() -> None:
    q0, count = np.linspace(-1.0, 1.0, 11)[:, None], 11
    own = -(FINE**3) * np.linspace(0.5, 1.5, count)[:, None]
    for f, axes in ((own[0], (None, None)), (own, (None, 0))):
        run = lambda q, f, solve, **more: solve(TABLED, (0, 0.5), q, [0.0], args=(FINE, f), h=0.02, **more)
        many = run(q0, f, ga.solve_batch, args_axes=axes)
        assert many.backend == "native"
        for k in (0, 4, 10):
            alone = run(q0[k], f if f.ndim == 1 else f[k], ga.solve)
            np.testing.assert_allclose(many.q[k], alone.q[-len(many.q[k]) :], rtol=1e-12)
            np.testing.assert_allclose(many.a[k], alone.a[-len(many.a[k]) :], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["known", "derived", "of_the_step", "of_time"])
def test_lanes_with_every_kind_of_table(kind: str) -> None:
    system, args = KINDS[kind]
    run = lambda q, solve, **more: solve(system, (0, 0.5), q, [0.5], args=args, h=0.01, **more)
    many = run(np.array([[0.7], [1.0], [-0.4]]), ga.solve_batch, args_axes=(None,) * len(args))
    for k, q in enumerate((0.7, 1.0, -0.4)):
        np.testing.assert_array_equal(many.q[k, -1], run([q], ga.solve).q[-1])


def spline() -> tuple[np.ndarray, np.ndarray]:
    """−sin as a cubic spline: its knots, and coefficients (4, intervals)."""
    from scipy.interpolate import CubicSpline

    knots = np.linspace(-3.0, 3.0, 61)
    return knots, CubicSpline(knots, -9.81 * np.sin(knots)).c


def test_order_of_convergence_with_a_cubic_table() -> None:
    def force(t: Any, q: Any, v: Any, x: Any, c: Any) -> Any:
        i = jnp.clip(jnp.searchsorted(x, q, side="right") - 1, 0, len(x) - 2)
        s = q - x[i]
        return ((c[0, i] * s + c[1, i]) * s + c[2, i]) * s + c[3, i]

    system, args = ga.System(np.eye(1), force), spline()
    run = lambda n: ga.solve(system, (0, 2.0), [1.0], [0.0], args=args, h=2.0 / n, backend="native").q[-1, 0]
    exact = run(4096)
    errors = np.array([abs(run(n) - exact) for n in (64, 128, 256)])
    np.testing.assert_allclose(np.log2(errors[:-1] / errors[1:]), 2.0, atol=0.1)

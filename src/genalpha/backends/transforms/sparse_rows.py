"""Quantities of rows of large assemblies as operations of JAX: derived ones, and the motion between steps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.sparse import front, models
from genalpha.backends.sparse.copy_functions import CopyArgs, CopyFunction, Vectors, flat_data
from genalpha.backends.sparse.equations import Equations
from genalpha.backends.sparse.models import KindModel, rows_of
from genalpha.backends.sparse.terms import balance
from genalpha.backends.transforms.operation import Arrays, Operation, Shape
from genalpha.backends.transforms.records import Rebuild
from genalpha.engine import interpolate
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived, derive_rows
from genalpha.engine.setup import Setup
from genalpha.numerics.data import Scale

_INPUTS = {"t": "", "q": "q", "v": "v", "a": "v", "lam": "g", "psi": "k"}


class _OfCopy(NamedTuple):
    """What one copy adds to the equations, hidden constraints, reactions and constraints of the whole."""

    balance: Any
    holonomic: Any
    nonholonomic: Any
    reaction: Any
    g: Any
    g_dot: Any
    k: Any


def _of_copy(model: KindModel, x: dict[str, Any], data: Any) -> _OfCopy:
    system, dims, none = model.system(data, model.dims), model.dims, jnp.zeros(0)
    t, q, v, a, lam, psi = (x[name] for name in _INPUTS)
    rows = balance(system, dims, t, q, v, a, lam, psi)
    forces = system.holonomic_force(t, q, lam), system.nonholonomic_force(t, q, v, psi)
    g, g_dot = system.g_and_dot(t, q, v) if dims.m else (none, none)
    reaction = system.reactions(t, q, v, lam, psi) if model.own_reaction else forces[0] + forces[1]
    return _OfCopy(rows, *forces, reaction, g, g_dot, system.k(t, q, v))


# The vectors that copies add to, and the places of a copy in them.
_SUMS = {"holonomic": "v", "nonholonomic": "v", "reaction": "v", "g": "g", "g_dot": "g", "k": "k"}
_SIZES = ("g", "g_dot", "k")  # of which the largest entry is an output


class SparseDerived(Operation):
    """Quantities derived from rows, as by `derive_row`.

    Inputs are t, q, v, λ and ψ of rows, the scale, and doubles.
    """

    def __init__(self, setup: Setup, doubles: list[Any], rebuild: Rebuild) -> None:
        self.setup, self.rebuild, self.shape_of = setup, rebuild, [np.shape(x) for x in doubles]
        self.smooth = (True,) * len(Derived._fields)
        kinds = self._equations([np.zeros(s) for s in self.shape_of]).parts
        self._args = CopyArgs(kinds, rebuild, self.shape_of)
        self._made: dict[str, CopyFunction] = {}

    def _equations(self, doubles: list[Any]) -> Equations:
        return front.projector(self.setup, self.rebuild(doubles)).equations

    def apply(self, *arguments: Any) -> Derived:
        """The quantities of traced rows."""
        return Derived(*self(*jax.tree.leaves(arguments)))

    def shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        count, (_, n, m, p) = inputs[0][0], self.setup.dims
        return [(count, n), (count, m), (count, p), *[(count,)] * 3, *[(count, n)] * 3]

    def value(self, inputs: Arrays) -> list[np.ndarray]:
        ends, good = StepEnd(*(np.asarray(x) for x in inputs[:5])), self._good(inputs)
        found = [np.full(s, np.nan) for s in self.shapes([np.shape(x) for x in inputs])]
        if good.any():
            chosen = StepEnd(*(x[good] for x in ends))
            first, number = _distinct(*chosen[:3])
            some = StepEnd(*(x[first] for x in chosen))
            for out, x in zip(found, front.derived(self._equations(list(inputs[6:])), some), strict=True):
                out[good] = x[number]
        return found

    @staticmethod
    def _good(inputs: Arrays) -> np.ndarray:
        return np.all([np.isfinite(x).reshape(len(x), -1).all(axis=1) for x in inputs[:3]], axis=0)

    # --- derivatives ------------------------------------------------------------------------------

    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        good = self._good(inputs)
        found = [np.full(s, np.nan) for s in self.shapes([np.shape(x) for x in inputs])]
        if good.any():
            at = _SolvedRows(self, inputs, good)
            moved = dict(zip(("t", "q", "v"), (np.asarray(x)[good] for x in changes[:3]), strict=True))
            for out, x in zip(found, at.changed(moved, list(changes[6:])), strict=True):
                out[good] = x
        return found

    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        good, found = self._good(inputs), [np.zeros(np.shape(x)) for x in inputs]
        asked = np.any([np.reshape(w, (len(good), -1)).any(axis=1) for w in weights], axis=0)
        if (asked & ~good).any():
            return [x * np.nan for x in found]
        if asked.any():
            state, doubles = _SolvedRows(self, inputs, asked).pulled([np.asarray(w)[asked] for w in weights])
            for out, name in zip(found, ("t", "q", "v"), strict=False):
                out[asked] = state[name]
            found[6:] = doubles
        return found

    def function(self, model: KindModel) -> CopyFunction:
        if model.name not in self._made:
            self._made[model.name] = CopyFunction("quantities", model, _of_copy, _INPUTS, model.data)
        return self._made[model.name]

    def by_xla(self, *inputs: Any) -> list[Any]:
        *ends, scale = inputs[:6]
        cut = np.cumsum([self.setup.dims.n, self.setup.dims.m])
        return [
            *derive_rows(
                self.setup, StepEnd(*ends), Scale(*jnp.split(scale, cut)), self.rebuild(list(inputs[6:]))
            )
        ]


def _distinct(*parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that differ from the row before, and for each row the number of the one that it repeats.

    Runs under error control have rows that repeat the last one.
    """
    table = np.concatenate([x.reshape(len(x), -1) for x in parts], axis=1)
    new = np.append(True, (table[1:] != table[:-1]).any(axis=1))
    return np.flatnonzero(new), np.cumsum(new) - 1


class _SolvedRows:
    """Some rows: their equations, solved, and the derivatives of what follows from them."""

    def __init__(self, of: SparseDerived, inputs: Arrays, which: np.ndarray) -> None:
        self.of, self.args = of, of._args
        t, q, v, lam, psi = (np.asarray(x)[which] for x in inputs[:5])
        equations = of._equations(list(inputs[6:]))
        self.parts, self.count = equations.parts, len(t)
        self.data = {model.name: flat_data(model) for model in self.parts}
        first, number = _distinct(t, q, v)
        states = equations.rows(t[first], q[first], v[first])
        solved = [at.accelerations(guess) for at, *guess in zip(states, lam[first], psi[first], strict=True)]
        self.saddles = [solved[i][1] for i in number]
        a, lam, psi = (np.stack(x)[number] for x in zip(*(forces for forces, _ in solved), strict=True))
        self.x: Vectors = {"t": t, "q": q, "v": v, "a": a, "lam": lam, "psi": psi}

    def _largest(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Where the largest of some constraints is in each row, and its sign."""
        total = self._sum(
            name, lambda model: getattr(self.of.function(model).value(self.x, self.data[model.name]), name)
        )
        if not total.shape[1]:
            return np.zeros(self.count, int), np.zeros(self.count)
        at = np.abs(total).argmax(axis=1)
        return at, np.sign(total[np.arange(self.count), at])

    def _sum(self, name: str, values: Callable[[KindModel], np.ndarray]) -> np.ndarray:
        """The sum of what all copies add to a vector (R, ...)."""
        _, n, m, p = self.of.setup.dims
        size = n + m + p if name == "balance" else {"v": n, "g": m, "k": p}[_SUMS[name]]
        total = np.zeros((self.count, size))
        for model in self.parts:
            places = (
                rows_of(model, self.of.setup.dims)
                if name == "balance"
                else getattr(model.places, _SUMS[name])
            )
            if places.size:
                found = values(model).reshape(self.count, -1)
                index = np.arange(self.count)[:, None] * size + places.reshape(1, -1)
                total += np.bincount(index.reshape(-1), found.reshape(-1), total.size).reshape(total.shape)
        return total

    def _solve(self, rows: np.ndarray, transposed: bool) -> np.ndarray:
        return np.stack([s.solved(row, transposed) for s, row in zip(self.saddles, rows, strict=True)])

    def changed(self, moved: Vectors, doubles: list[np.ndarray]) -> list[np.ndarray]:
        """Changes of all quantities, from those of t, q, v and the doubles."""
        _, n, m, _ = self.of.setup.dims
        turned = self.args.spread(doubles, {name: data.shape[1] for name, data in self.data.items()})

        def change(name: str, model: KindModel) -> np.ndarray:
            function = self.of.function(model)
            found = function.change(self.x, self.data[model.name], moved, turned[model.name])
            return found[:, getattr(function.columns, name)]

        rows = -self._solve(self._sum("balance", lambda model: change("balance", model)), transposed=False)
        forces = np.split(rows, [n, n + m], axis=1)
        moved = moved | dict(zip(("a", "lam", "psi"), forces, strict=True))
        found = {name: self._sum(name, functools.partial(change, name)) for name in _SUMS}
        sizes = []
        for name in _SIZES:
            at, sign = self._largest(name)
            sizes.append(sign * found[name][np.arange(self.count), at] if found[name].shape[1] else sign)
        return [*forces, *sizes, *(found[name] for name in ("holonomic", "nonholonomic", "reaction"))]

    def pulled(self, weights: list[np.ndarray]) -> tuple[Vectors, list[np.ndarray]]:
        """Weights of t, q and v, and of the doubles."""
        dims = self.of.setup.dims
        given = dict(zip(("holonomic", "nonholonomic", "reaction"), weights[6:], strict=True))
        for name, weight in zip(_SIZES, weights[3:6], strict=True):
            at, sign = self._largest(name)
            given[name] = np.zeros((self.count, dims.p if name == "k" else dims.m))
            if given[name].shape[1]:
                given[name][np.arange(self.count), at] = sign * weight
        total: Vectors = {name: np.zeros(x.shape) for name, x in self.x.items()}
        args = {name: np.zeros(data.shape) for name, data in self.data.items()}
        self._pull(given, total, args)
        rows = np.concatenate(
            [total[name] + w for name, w in zip(("a", "lam", "psi"), weights, strict=False)], axis=1
        )
        self._pull({"balance": -self._solve(rows, transposed=True)}, total, args)
        return total, self.args.pulled(args)

    def _pull(self, given: dict[str, np.ndarray], total: Vectors, args: dict[str, np.ndarray]) -> None:
        for model in self.parts:
            function = self.of.function(model)
            weights = np.zeros((self.count, model.copies, function.results))
            for name, rows in given.items():
                places = (
                    rows_of(model, self.of.setup.dims)
                    if name == "balance"
                    else getattr(model.places, _SUMS[name])
                )
                weights[:, :, getattr(function.columns, name)] = rows[:, places]
            flat = weights.reshape(-1, function.results)
            args[model.name] += function.pull(self.x, self.data[model.name], flat, total)


_BETWEEN = {"t0": "", "q0": "q", "v0": "v", "t1": "", "q1": "q", "v1": "v", "t": ""}


def _between(model: KindModel, x: dict[str, Any], data: Any) -> Any:
    none = jnp.zeros(0)
    before, after = (StepEnd(x[f"t{k}"], x[f"q{k}"], x[f"v{k}"], none, none) for k in range(2))
    return interpolate.between(model.space, before, after, x["t"])[1:3]


class SparseSampling(Operation):
    """The motion between two ends of a step, node by node: q, v, λ and ψ (R, ...).

    Inputs are the ends before and after, and the times, each with one row for each time.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup, self.smooth = setup, (True,) * 4
        self.nodes = models.of_nodes(setup.system)  # type: ignore[arg-type]
        self._made: dict[str, CopyFunction] = {}

    def apply(self, *arguments: Any) -> Any:
        return self(*jax.tree.leaves(arguments))

    def shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        return [(inputs[0][0], x) for x in self.setup.dims]

    def _function(self, model: KindModel) -> CopyFunction:
        if model.name not in self._made:
            self._made[model.name] = CopyFunction("between", model, _between, _BETWEEN, ())
        return self._made[model.name]

    @staticmethod
    def _vectors(inputs: Arrays) -> Vectors:
        t0, q0, v0, _, _, t1, q1, v1, _, _, t = map(np.asarray, inputs)
        return dict(zip(_BETWEEN, (t0, q0, v0, t1, q1, v1, t), strict=True))

    @staticmethod
    def _share(inputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """How much of a step has passed, and its length."""
        t0, t1, t = (np.asarray(inputs[i]) for i in (0, 5, 10))
        h = np.where(t1 == t0, 1.0, t1 - t0)
        return ((t - t0) / h)[:, None], h[:, None]

    def _motion(
        self, results: Callable[[KindModel], tuple[np.ndarray, np.ndarray]], count: int
    ) -> list[np.ndarray]:
        q, v = np.zeros((count, self.setup.dims.size)), np.zeros((count, self.setup.dims.n))
        for model in self.nodes:
            of_q, of_v = results(model)
            q[:, model.places.q], v[:, model.places.v] = (
                x.reshape(count, model.copies, -1) for x in (of_q, of_v)
            )
        return [q, v]

    def value(self, inputs: Arrays) -> list[np.ndarray]:
        x, (share, _) = self._vectors(inputs), self._share(inputs)
        none = lambda model: np.zeros((model.copies, 0))
        found = self._motion(lambda model: self._function(model).value(x, none(model)), len(share))
        return found + [inputs[i] + share * (inputs[i + 5] - inputs[i]) for i in (3, 4)]

    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        x, dx, (share, h) = self._vectors(inputs), self._vectors(changes), self._share(inputs)

        def results(model: KindModel) -> tuple[np.ndarray, np.ndarray]:
            function, none = self._function(model), np.zeros((model.copies, 0))
            found = function.change(x, none, dx, none)
            return found[:, function.columns[0]], found[:, function.columns[1]]

        moved = ((dx["t"] - dx["t0"])[:, None] - share * (dx["t1"] - dx["t0"])[:, None]) / h
        forces = []
        for i in (3, 4):
            mixed = changes[i] + share * (changes[i + 5] - changes[i])
            forces.append(mixed + moved * (inputs[i + 5] - inputs[i]))
        return self._motion(results, len(share)) + forces

    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        x, (share, h) = self._vectors(inputs), self._share(inputs)
        total = {name: np.zeros(y.shape) for name, y in x.items()}
        for model in self.nodes:
            function, none = self._function(model), np.zeros((model.copies, 0))
            given = np.zeros((len(share), model.copies, function.results))
            given[:, :, function.columns[0]] = np.asarray(weights[0])[:, model.places.q]
            given[:, :, function.columns[1]] = np.asarray(weights[1])[:, model.places.v]
            function.pull(x, none, given.reshape(-1, function.results), total)
        of_share, forces = np.zeros(len(share)), {}
        for i, w in ((3, weights[2]), (4, weights[3])):
            forces[i], forces[i + 5] = (1 - share) * w, share * w
            of_share += (w * (inputs[i + 5] - inputs[i])).sum(axis=1) / h[:, 0]
        total["t"] += of_share
        total["t1"] -= of_share * share[:, 0]
        total["t0"] -= of_share * (1 - share[:, 0])
        t0, q0, v0, t1, q1, v1, t = total.values()
        return [t0, q0, v0, forces[3], forces[4], t1, q1, v1, forces[8], forces[9], t]

    def by_xla(self, *inputs: Any) -> list[Any]:
        one = lambda *x: interpolate.between(
            self.setup.system.space, StepEnd(*x[:5]), StepEnd(*x[5:10]), x[10]
        )
        found = jax.vmap(one)(*inputs)
        return [found.q, found.v, found.lam, found.psi]

"""Derivatives of the start of a large assembly: consistent values, and what the method makes of them.

a, λ and ψ solve E(t, q, v, a, λ, ψ) = 0: the equations of motion and the hidden constraints, sums over all
parts. Their rates solve E' = 0, the derivative of E along the motion. Both have the same matrix, the
derivative of E with respect to a, λ and ψ. A method may also shift the velocities by d with M d + Bᵀμ = 0 and
B d = (G r, 0), where r is its wish.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from genalpha.backends.sparse.copy_functions import CopyFunction, Vectors, flat_data
from genalpha.backends.sparse.equations import AtState
from genalpha.backends.sparse.matrices import Saddle
from genalpha.backends.sparse.models import Blocks, KindModel, counts, rows_of
from genalpha.backends.sparse.start import begun_copy
from genalpha.backends.sparse.step_derivatives import Moments
from genalpha.backends.sparse.terms import balance
from genalpha.engine.setup import Setup
from genalpha.numerics.data import State
from genalpha.numerics.derivatives import value_and_rate

_STATE = {"t": "", "q": "q", "v": "v"}
_FORCES = {"a": "v", "lam": "g", "psi": "k"}
_RATES = {"a_dot": "v", "lam_dot": "g", "psi_dot": "k"}
_SHIFT = {"d": "v", "mu": "g", "nu": "k", "r": "v"}
_BEGIN = {**_STATE, **_FORCES, "a_dot": "v", "scale": "v", "moved": "v", "h": ""}


class Balance(NamedTuple):
    """E and E' of one copy: rows of motion (n,), holonomic (m,) and nonholonomic constraints (p,)."""

    value: Any
    rate: Any


def balanced(model: KindModel, x: dict[str, Any], data: Any) -> Balance:
    system = model.system(data, model.dims)
    rows = lambda *at: balance(system, model.dims, *at)
    at = tuple(x[name] for name in (*_STATE, *_FORCES))
    rates = (jnp.ones_like(x["t"]), model.space.rate(x["q"], x["v"]), x["a"], *(x[name] for name in _RATES))
    return Balance(*value_and_rate(rows, at, rates))


def shifted(model: KindModel, x: dict[str, Any], data: Any) -> Any:
    """The equations of a shift of velocities for one copy."""
    system, dims, (t, q, v) = model.system(data, model.dims), model.dims, (x[name] for name in _STATE)
    motion, rest = system.M(t, q) @ x["d"], []
    if dims.m:
        G = system.G(t, q)
        motion, rest = motion + x["mu"] @ G, [G @ (x["d"] - x["r"])]
    if dims.p:
        K = system.K(t, q, v)
        motion, rest = motion + x["nu"] @ K, [*rest, K @ x["d"]]
    return jnp.concatenate([motion, *rest])


def begun(setup: Setup, model: KindModel, x: dict[str, Any], data: Any) -> Any:
    """The carry of one copy, the shift of velocities that the method wants, and its further variables."""
    dims = model.full(setup.dims)
    lam, psi = (y if y.size else jnp.zeros(n) for y, n in ((x["lam"], dims.m), (x["psi"], dims.p)))
    state, motion = State(x["t"], x["q"], x["v"], x["a"], lam, psi), (x["a_dot"], x["scale"], x["moved"])
    carry, _, wanted, start = begun_copy(setup, model, state, motion, x["h"], data)
    return carry, wanted, setup.method.first_extra(dims, start, x["h"])


class Functions:
    """The functions of all kinds that a start is made of, made once."""

    def __init__(self, setup: Setup, nodes: list[KindModel], blocks: Blocks) -> None:
        self.setup, self.nodes, self.blocks = setup, nodes, blocks
        self._made: dict[tuple[str, str], CopyFunction] = {}

    def _get(self, name: str, model: KindModel, function: Any, kinds: dict[str, str]) -> CopyFunction:
        if (name, model.name) not in self._made:
            self._made[name, model.name] = CopyFunction(name, model, function, kinds, model.data)
        return self._made[name, model.name]

    def balance(self, model: KindModel) -> CopyFunction:
        return self._get("balance", model, balanced, _STATE | _FORCES | _RATES)

    def shift(self, model: KindModel) -> CopyFunction:
        return self._get("shift", model, shifted, _STATE | _SHIFT)

    def begin(self, model: KindModel) -> CopyFunction:
        return self._get("begin", model, lambda *x: begun(self.setup, *x), _BEGIN)

    def unit(self, model: KindModel) -> CopyFunction:
        """The coordinates of a node with unit quaternions, and by how much they were none."""
        one = lambda model, x, data: (model.space.normalize(x["q"]), model.space.defect(x["q"]))
        return self._get("unit", model, one, {"q": "q"})

    def placed(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same for the whole."""
        found, defects = q.copy(), [np.zeros(0)]
        for model in self.nodes:
            found[model.places.q], defect = self.unit(model).value({"q": q}, np.zeros((model.copies, 0)))
            defects.append(np.ravel(defect))
        return found, np.concatenate(defects)


class StartDerivatives:
    """The derivatives of one start, from t, q, v, the first step and the args to the carry and the record.

    q must have unit quaternions. ``given`` are the coordinates from which they were made.
    """

    def __init__(self, functions: Functions, at: AtState, given: np.ndarray, h: float, guess: Any) -> None:
        self.of, self.setup, self.dims = functions, functions.setup, functions.setup.dims
        self.nodes, self.parts = functions.nodes, at.parts
        self.data = {model.name: flat_data(model) for model in (*self.nodes, *self.parts)}
        (a, lam, psi), saddle = at.accelerations(guess)
        self.saddle = saddle
        self.linear = saddle if at.equations.linear else at.saddle(at.scale)
        self.given = {"q": given}
        self.x: Vectors = {
            "t": np.array(at.t),
            "q": at.q,
            "v": at.v,
            "a": a,
            "lam": lam,
            "psi": psi,
            "h": np.array(h),
        }
        self.x["scale"] = np.asarray(at.scale.a)
        if self.setup.method.needs_rate:
            rates = self.saddle.solved(-self._sum(self.of.balance, lambda found: found.rate, self.x))
            self.x |= self._split(rates, *_RATES)
        self.shifts = not all(
            self.of.begin(model).constant(self.of.begin(model).columns[1]) for model in self.nodes
        )
        if self.shifts:
            r = np.zeros(self.dims.n)
            for model in self.nodes:
                r[model.places.v] = self._value(self.of.begin(model), self.x)[1]
            rows = -self._sum(self.of.shift, lambda found: found, self.x | {"r": r})
            self.x |= self._split(self.linear.solved(rows), "d", "mu", "nu") | {"r": r}
            self.x["moved"] = self.x["d"]

    # --- vectors of the whole ---------------------------------------------------------------------

    def _split(self, rows: np.ndarray, *names: str) -> Vectors:
        _, n, m, _ = self.dims
        return dict(zip(names, np.split(rows, [n, n + m]), strict=True))

    def _value(self, function: CopyFunction, x: Vectors) -> Any:
        return function.value(x, self.data[function.model.name])

    def _added(self, model: KindModel, rows: np.ndarray) -> np.ndarray:
        return np.bincount(rows_of(model, self.dims).reshape(-1), rows.reshape(-1), sum(self.dims[1:]))

    def _sum(self, function: Any, pick: Any, x: Vectors) -> np.ndarray:
        """The sum of rows of all parts."""
        total = np.zeros(sum(self.dims[1:]))
        for model in self.parts:
            total += self._added(model, pick(self._value(function(model), x)))
        return total

    # --- reverse ----------------------------------------------------------------------------------

    def pulled(self, carry: Moments, seen: np.ndarray) -> tuple[Vectors, dict[str, np.ndarray]]:
        """Weights of t, q, v and h, and of the data of all copies (K, D), from those of carry and record."""
        size, n, m, p = self.dims
        total: Vectors = {name: np.zeros(np.shape(self.x.get(name, np.zeros(n)))) for name in _BEGIN}
        args = {name: np.zeros(data.shape) for name, data in self.data.items()}
        q, v, a, lam, psi, extra = np.split(seen, np.cumsum([size, n, n, m, p]))
        for name, weight in {"q": q, "v": v, "lam": lam, "psi": psi, "h": carry.h}.items():
            total[name] += weight
        motion = carry.motion + np.concatenate([np.zeros(size + n), a])
        for model, own in zip((*self.nodes, *self.parts), carry.own, strict=True):
            begin = self.of.begin(model)
            weights = self._carried(begin, carry._replace(motion=motion), own, extra)
            args[model.name] += begin.pull(self.x, self.data[model.name], weights, total)
        if self.shifts:
            self._pull_shift(total, args)
        self._pull_forces(total, args)
        found = {name: total[name] for name in ("t", "v", "h")} | {"q": np.zeros(size)}
        for model in self.nodes:
            unit = self.of.unit(model)
            weights = np.zeros((model.copies, unit.results))
            weights[:, unit.columns[0]] = total["q"][model.places.q]
            unit.pull(self.given, self.data[model.name], weights, found)
        return found, args

    def _carried(self, begin: CopyFunction, carry: Moments, own: np.ndarray, extra: np.ndarray) -> np.ndarray:
        """The weights (K, R) of what the method makes of the start of each copy."""
        weights, at = np.zeros((begin.model.copies, begin.results)), begin.model.places
        columns, _, others = begin.columns
        weights[:, self._own_columns(columns)] = own
        if begin.model.element is None:
            q, v, a = np.split(carry.motion, [self.dims.size, self.dims.size + self.dims.n])
            weights[:, columns.q], weights[:, columns.v], weights[:, columns.a] = q[at.q], v[at.v], a[at.v]
            if columns.a_old is not None:
                weights[:, columns.a_old] = carry.a_old[at.v]
        for places, chosen in self._extras(begin.model):
            weights[:, others[chosen]] = extra[places]
        return weights

    @staticmethod
    def _own_columns(columns: Any) -> np.ndarray:
        return np.concatenate([np.zeros(0, int), *(np.ravel(x) for x in columns.own.values())])

    def _extras(self, model: KindModel) -> list[tuple[np.ndarray, slice]]:
        """Further variables of the method that a kind has: their places among all, and those of a copy."""
        found, first, here = [], 0, 0
        for block in self.of.blocks.extras:
            places, count = getattr(model.places, block.kind), counts(model.full(self.dims))[block.kind]
            if (block.kind == "v") == (model.element is None) and places.shape[1]:
                found.append((first + places, slice(here, here + count)))
            first, here = first + counts(self.dims)[block.kind], here + count
        return found

    def _pull_shift(self, total: Vectors, args: dict[str, np.ndarray]) -> None:
        _, n, m, p = self.dims
        by = -self.linear.solved(np.concatenate([total["moved"], np.zeros(m + p)]), transposed=True)
        wish: Vectors = total | {"r": np.zeros(n)}
        for model in self.parts:
            weights = by[rows_of(model, self.dims)]
            args[model.name] += self.of.shift(model).pull(self.x, self.data[model.name], weights, wish)
        for model in self.nodes:
            begin = self.of.begin(model)
            weights = np.zeros((model.copies, begin.results))
            weights[:, begin.columns[1]] = wish["r"][model.places.v]
            begin.pull(self.x, self.data[model.name], weights, total)

    def _pull_forces(self, total: Vectors, args: dict[str, np.ndarray]) -> None:
        """From weights of a, λ, ψ and a' to those of the state and of the args."""
        _, _, m, p = self.dims
        parts = [("rate", lambda: np.concatenate([total["a_dot"], np.zeros(m + p)]))]
        parts.append(("value", lambda: np.concatenate([total[name] for name in _FORCES])))
        for name, rows in parts if self.setup.method.needs_rate else parts[1:]:
            by = -self.saddle.solved(rows(), transposed=True)
            for model in self.parts:
                function = self.of.balance(model)
                weights = np.zeros((model.copies, function.results))
                weights[:, getattr(function.columns, name)] = by[rows_of(model, self.dims)]
                args[model.name] += function.pull(self.x, self.data[model.name], weights, total)

    # --- forward ----------------------------------------------------------------------------------

    def changed(self, changes: Vectors, turned: dict[str, np.ndarray]) -> tuple[Moments, np.ndarray]:
        """Changes of the carry and the first record, from those of t, q, v, h and the data of all copies."""
        size, n, _, _ = self.dims
        moved: Vectors = dict(changes)
        moved["q"] = np.zeros(size)
        for model in self.nodes:
            unit = self.of.unit(model)
            found = unit.change(self.given, self.data[model.name], changes, turned[model.name])
            moved["q"][model.places.q] = found[:, unit.columns[0]]
        moved |= self._forces(self.of.balance, "value", self.saddle, moved, turned, tuple(_FORCES))
        if self.setup.method.needs_rate:
            moved |= self._forces(self.of.balance, "rate", self.saddle, moved, turned, tuple(_RATES))
        if self.shifts:
            wish = np.zeros(n)
            for model in self.nodes:
                wish[model.places.v] = self._begin_change(model, moved, turned)[
                    :, self.of.begin(model).columns[1]
                ]
            moved["r"] = wish
            moved |= self._forces(self.of.shift, None, self.linear, moved, turned, ("d", "mu", "nu"))
            moved["moved"] = moved["d"]
        return self._begun(
            moved, turned, np.zeros(sum(counts(self.dims)[b.kind] for b in self.of.blocks.extras))
        )

    def _forces(
        self,
        of: Any,
        name: str | None,
        saddle: Saddle,
        moved: Vectors,
        turned: dict[str, np.ndarray],
        names: Any,
    ) -> Vectors:
        """Changes of the solution of a linear system of the whole."""
        total = np.zeros(sum(self.dims[1:]))
        for model in self.parts:
            function = of(model)
            found = function.change(self.x, self.data[model.name], moved, turned[model.name])
            total += self._added(model, found if name is None else found[:, getattr(function.columns, name)])
        return self._split(-saddle.solved(total), *names)

    def _begin_change(self, model: KindModel, moved: Vectors, turned: dict[str, np.ndarray]) -> np.ndarray:
        return self.of.begin(model).change(self.x, self.data[model.name], moved, turned[model.name])

    def _begun(
        self, moved: Vectors, turned: dict[str, np.ndarray], extra: np.ndarray
    ) -> tuple[Moments, np.ndarray]:
        motion = [moved["q"].copy(), moved["v"].copy(), np.zeros(self.dims.n)]
        old, own = np.zeros(self.dims.n), []
        for model in (*self.nodes, *self.parts):
            found, (columns, _, others) = (
                self._begin_change(model, moved, turned),
                self.of.begin(model).columns,
            )
            own.append(found[:, self._own_columns(columns)])
            if model.element is None:
                for x, at, places in zip(
                    motion,
                    (columns.q, columns.v, columns.a),
                    (model.places.q, *[model.places.v] * 2),
                    strict=True,
                ):
                    x[places] = found[:, at]
                if columns.a_old is not None:
                    old[model.places.v] = found[:, columns.a_old]
            for places, chosen in self._extras(model):
                extra[places] = found[:, others[chosen]]
        record = np.concatenate([moved["q"], moved["v"], motion[2], moved["lam"], moved["psi"], extra])
        return Moments(np.concatenate(motion), old, float(moved["h"]), own), record

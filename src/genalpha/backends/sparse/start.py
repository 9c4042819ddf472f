"""The start of a run with sparse matrices."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.sparse.equations import AtState, Equations
from genalpha.backends.sparse.matrices import Saddle
from genalpha.backends.sparse.models import KindModel, bare
from genalpha.backends.sparse.together import Together
from genalpha.engine.controller import Pace
from genalpha.engine.setup import Setup
from genalpha.engine.start import first_pace
from genalpha.engine.steps import Controlled
from genalpha.mechanics.initial_values import Beginning
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED, Carry, NewtonReport, Scale, State
from genalpha.numerics.tracing import zeros


class SparseStart(NamedTuple):
    """A run before its first step.

    ``numbers`` are the args of all parts. ``v`` and ``a_old`` (n,) and ``lag`` (2,) are those of the method.
    ``own`` are its own variables of all copies of each kind, one after the other. ``x`` (N,) are the first
    unknowns, ``row`` is the first record. ``pace`` is None for given steps.
    """

    state: State
    scale: Scale
    numbers: np.ndarray
    v: np.ndarray
    a_old: np.ndarray | None
    lag: Any
    own: np.ndarray
    x: np.ndarray
    t_alpha: float
    row: np.ndarray
    pace: Pace | None


# The inputs of the start of one copy.
INPUTS = ("q", "v", "a", "lam", "psi", "a_dot", "scale", "moved", "t", "h")


class Starter:
    """Finds consistent values and lets the method begin."""

    def __init__(self, setup: Setup, nodes: list[KindModel], equations: Equations) -> None:
        self.setup, self.nodes, self.parts, self.equations = setup, nodes, equations.parts, equations

    def run(self, at: AtState, first: Any, guess: Any = None) -> SparseStart:
        """The start. ``first`` is the size of the first step, or the control that chooses it."""
        setup, pace, scale = self.setup, None, at.scale
        (a, lam, psi), saddle = at.accelerations(guess)
        a_dot = at.rate(saddle, a, lam, psi) if setup.method.needs_rate else np.zeros_like(a)
        state = State(np.float64(at.t), at.q, at.v, a, lam, psi)  # type: ignore[arg-type]
        timing, h = np.zeros(0), first
        if isinstance(first, Controlled):
            pace = self._pace(state, a_dot, first)
            timing, h = np.concatenate([[at.t], np.zeros(2 + 2 * setup.dims.n)]), pace.h
        vector = self.equations.vector(**state._asdict(), a_dot=a_dot, scale=scale.a, h=h)
        one = functools.partial(_begun, setup)
        names = ("begin", self.nodes, one, INPUTS, vector, setup.dims)
        begin, wanted = self.equations.together(*names), np.zeros(setup.dims.n)
        found = begin(vector)
        begun = [begin.of(k, found) for k in range(len(self.nodes))]
        for model, (*_, change) in zip(self.nodes, begun, strict=True):  # that the method wants of velocities
            wanted[model.places.v] = change
        if wanted.any():
            moved = self._shift(at, saddle if self.equations.linear else at.saddle(scale), wanted)
            vector[self.equations.inputs.where["moved"]] = moved
            found = begin(vector)
            begun = [begin.of(k, found) for k in range(len(self.nodes))]
        v, new_a, a_old, lag, t_alpha = at.v.copy(), a.copy(), a.copy(), None, 0.0
        for model, (carry, t_alpha_of, _) in zip(self.nodes, begun, strict=True):
            v[model.places.v], new_a[model.places.v] = carry.v, carry.a
            if carry.a_old is not None:
                a_old[model.places.v] = carry.a_old
            lag = None if carry.lag is None else carry.lag[0]
            t_alpha = float(t_alpha_of[0])
        own = self._own(begin, found, vector)
        old = a_old if carry.a_old is not None else None
        carried = Carry(at.q, v, new_a, h, old, lag)  # type: ignore[arg-type]
        x = np.concatenate(setup.method.first_blocks(setup.dims, scale, carried, state))
        extra = np.zeros(0)
        if setup.method.extras(setup.dims):
            beginning = Beginning(state, a_dot, scale, *[None] * (len(Beginning._fields) - 3))  # type: ignore[arg-type]
            extra = np.asarray(setup.method.first_extra(setup.dims, beginning, h))
        row = np.concatenate([at.q, at.v, new_a, lam, psi, extra, np.zeros(len(COUNTED)), timing])
        return SparseStart(state, scale, self.equations.numbers, v, old, lag, own, x, t_alpha, row, pace)

    def _shift(self, at: AtState, saddle: Saddle, wanted: np.ndarray) -> np.ndarray:
        """The smallest change d (n,) of the velocities with G d = G wanted, K d = 0 (`Beginning.shift`)."""
        m, p = self.setup.dims[2:]
        return saddle.solve(np.zeros_like(wanted), at.rates(wanted)[:m], np.zeros(p))[0]

    def _pace(self, state: State, a_dot: np.ndarray, first: Controlled) -> Pace:
        """The pace before the first step."""
        sizes, one = np.empty(len(a_dot)), lambda model, q: model.space.magnitude(q)
        for model in self.nodes:
            sizes[model.places.v] = self.equations.each("magnitude", model, one, state.q[model.places.q])
        with np.errstate(all="ignore"):
            found = first_pace(self.setup, sizes, state, a_dot, first, codes.SUCCESS)
        return Pace(*map(float, found))

    def _own(self, begin: Together, found: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """The method's own variables of all copies; ``found`` are the starts of nodes."""
        setup = bare(self.setup)
        one = lambda model, *row: _begun(setup, model, *row)[0].own
        about = (setup.method, bool(setup.dims.m), bool(setup.dims.p))
        parts = self.equations.together("own", self.parts, one, INPUTS, vector, setup.dims, about)

        def places(of: Together, columns: list[Any]) -> np.ndarray:
            found = [
                of.places(k, x).reshape(-1) for k, own in enumerate(columns) for x in jax.tree.leaves(own)
            ]
            return np.concatenate([np.zeros(0, int), *found])

        columns = lambda: ([carry.own for carry, *_ in begin.columns], parts.columns)
        make = lambda: [places(*x) for x in zip((begin, parts), columns(), strict=True)]
        of_nodes, of_parts = self.equations.made("places of own", make)
        return np.concatenate([found[of_nodes], parts(vector)[of_parts]])


def _begun(setup: Setup, model: KindModel, *row: Any) -> tuple[Carry, Any, Any]:
    """The carry of one copy, the time of a_α, and the change of velocities that the method wants."""
    q, v, a, lam, psi, a_dot, scale, moved, t, h, data = row
    return begun_copy(setup, model, State(t, q, v, a, lam, psi), (a_dot, scale, moved), h, data)[:3]


def begun_copy(
    setup: Setup, model: KindModel, state: State, motion: tuple[Any, Any, Any], h: Any, data: Any
) -> tuple[Carry, Any, Any, Beginning]:
    """What the method makes of the start of one copy; ``motion`` are a', the scale and the shift of v.

    It is the carry, the time of a_α, the shift that the method wants, and the start.
    """
    dims, (a_dot, scale, moved) = model.full(setup.dims), motion
    wanted, ones = [zeros(model.dims.n)], lambda n: 1.0 + zeros(n)

    class Moved(Beginning):
        def shift(self, r: Any) -> Any:
            wanted[0] = r
            return moved

    start = Moved(
        state,
        a_dot,
        Scale(scale, ones(dims.m), ones(dims.p)),
        NewtonReport(*[zeros()] * 6),
        zeros(dims.m + dims.p, dims.n),
        zeros(dims.m),
        zeros(dims.m),
        zeros(dims.p),
        zeros(dims.n, dims.n),
        zeros(dims.n),
    )
    carry, t_alpha = setup.method.begin(model.system(data, setup.dims), dims, start, h, ())
    return carry, t_alpha, wanted[0], start

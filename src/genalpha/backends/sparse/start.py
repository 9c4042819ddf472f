"""The start of a run with sparse matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.cache import program
from genalpha.backends.sparse.equations import AtState, Equations, Saddle
from genalpha.backends.sparse.models import KindModel
from genalpha.engine.controller import Pace
from genalpha.engine.setup import Setup
from genalpha.engine.start import first_pace
from genalpha.engine.steps import Controlled
from genalpha.mechanics.initial_values import Beginning
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED, Carry, NewtonReport, Scale, State


class SparseStart(NamedTuple):
    """A run before its first step.

    ``v`` and ``a_old`` (n,) and ``lag`` (2,) are those of the method. ``own`` are its own variables
    for each kind, with one row for each copy. ``x`` (N,) are the first unknowns, ``row`` is the first record.
    ``pace`` is None for given steps.
    """

    state: State
    scale: Scale
    v: np.ndarray
    a_old: np.ndarray | None
    lag: Any
    own: list[dict[str, Any]]
    x: np.ndarray
    t_alpha: float
    row: np.ndarray
    pace: Pace | None


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
            chosen = program(setup, "first pace", first_pace)(state, a_dot, first, codes.SUCCESS)
            pace = jax.tree.map(float, chosen)
            timing, h = np.concatenate([[at.t], np.zeros(2 + 2 * setup.dims.n)]), pace.h
        whole = _Whole(self, state, a_dot, scale, h)
        moved, wanted = np.zeros(setup.dims.n), np.zeros(setup.dims.n)
        begun = [whole.begun(model, moved) for model in self.nodes]
        for model, (*_, change) in zip(self.nodes, begun, strict=True):  # that the method wants of velocities
            wanted[model.places.v] = change
        if wanted.any():
            moved = self._shift(at, saddle if self.equations.linear else at.saddle(scale), wanted)
            begun = [whole.begun(model, moved) for model in self.nodes]
        v, new_a, a_old, lag, t_alpha = at.v.copy(), a.copy(), a.copy(), None, 0.0
        for model, (carry, t_alpha_of, _) in zip(self.nodes, begun, strict=True):
            v[model.places.v], new_a[model.places.v] = carry.v, carry.a
            if carry.a_old is not None:
                a_old[model.places.v] = carry.a_old
            lag = None if carry.lag is None else carry.lag[0]
            t_alpha = float(t_alpha_of[0])
        begun += [whole.begun(model, moved) for model in self.parts]
        own = [carry.own for carry, *_ in begun]
        carried = Carry(at.q, v, new_a, h, a_old, lag)  # type: ignore[arg-type]
        x = np.asarray(setup.method.first_guess(setup.dims, scale, carried, state))
        beginning = Beginning(state, a_dot, scale, *[None] * (len(Beginning._fields) - 3))  # type: ignore[arg-type]
        extra = np.asarray(setup.method.first_extra(setup.dims, beginning, h))
        row = np.concatenate([at.q, at.v, new_a, lam, psi, extra, np.zeros(len(COUNTED)), timing])
        old = a_old if carry.a_old is not None else None
        return SparseStart(state, scale, v, old, lag, own, x, t_alpha, row, pace)

    def _shift(self, at: AtState, saddle: Saddle, wanted: np.ndarray) -> np.ndarray:
        """The smallest change d (n,) of the velocities with G d = G wanted, K d = 0 (`Beginning.shift`)."""
        m = self.setup.dims.m
        return saddle.solve(np.zeros_like(wanted), (at.B[:m] @ wanted), np.zeros(self.setup.dims.p))[0]


class _Whole(NamedTuple):
    """The start of the whole, from which those of single copies are taken."""

    start: Starter
    state: State
    a_dot: np.ndarray
    scale: Scale
    h: float

    def begun(self, model: KindModel, moved: np.ndarray) -> tuple[Carry, np.ndarray, np.ndarray]:
        """The carries of all copies, the time of a_α, and the change of velocities that the method wants."""
        at, state, whole = model.places, self.state, self.start.setup.dims
        full = model.full(whole)
        filled = lambda x, places, count: x[places] if places.shape[1] else np.zeros((1, count))
        motion = (state.q[at.q], state.v[at.v], state.a[at.v])
        forces = (filled(state.lam, at.g, full.m), filled(state.psi, at.k, full.p))
        scale = self.scale.a[at.v]
        rows = (
            *motion,
            *forces,
            self.a_dot[at.v],
            scale,
            moved[at.v],
            np.array([state.t]),
            np.array([self.h]),
        )
        data = self.start.equations.data(model)
        return self.start.equations.each("begin", model, self._one, *rows, data)

    def _one(self, model: KindModel, *row: Any) -> Any:
        """The carry of one copy."""
        q, v, a, lam, psi, a_dot, scale, moved, t, h, data = row
        setup = self.start.setup
        dims, wanted = model.full(setup.dims), [jnp.zeros(model.dims.n)]

        class Moved(Beginning):
            def shift(self, r: Any) -> Any:
                wanted[0] = r
                return moved

        zeros = jnp.zeros
        start = Moved(
            State(t, q, v, a, lam, psi),
            a_dot,
            Scale(scale, jnp.ones(dims.m), jnp.ones(dims.p)),
            NewtonReport(*[zeros(())] * 6),
            zeros((dims.m + dims.p, dims.n)),
            zeros(dims.m),
            zeros(dims.m),
            zeros(dims.p),
            zeros((dims.n, dims.n)),
            zeros(dims.n),
        )
        carry, t_alpha = setup.method.begin(model.system(data, setup.dims), dims, start, h, ())
        return carry, t_alpha, wanted[0]

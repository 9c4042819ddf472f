"""The record of a step: one row of numbers that every backend writes, and quantities derived from it."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from genalpha.engine.files import storable
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.setup import Setup
from genalpha.mechanics.initial_values import accelerations, quick_accelerations
from genalpha.mechanics.system import Args, Dims
from genalpha.methods import Method
from genalpha.numerics.data import COUNTED, Carry, NewtonReport, Scale, State, StepOutput


class Rows(NamedTuple):
    """The parts of records, with time as the first axis; ``extra`` are the method's own variables by name.

    ``report`` has the columns iterations, jacobians, rounding and near_singular.
    """

    q: Any
    v: Any
    a_alpha: Any
    lam: Any
    psi: Any
    extra: dict[str, Any]
    report: Any


@storable
class Errors(NamedTuple):
    """Estimated local errors of each step under error control. The first row is zero.

    ``q`` and ``v`` have shape (N+1, n); the errors of q are in the tangent space. ``norm`` (N+1,) is the
    root mean square in units of the tolerances of a step, which are stricter than those of the run. A step is
    accepted if it is at most 1.
    """

    q: Any
    v: Any
    norm: Any


class Derived(NamedTuple):
    """Quantities derived from a row: v', λ, ψ, constraint residuals, reaction forces."""

    a: Any
    lam: Any
    psi: Any
    position: Any
    velocity: Any
    nonholonomic: Any
    holonomic_force: Any
    nonholonomic_force: Any
    reaction: Any


@dataclass(frozen=True)
class Layout:
    """The columns of a record.

    With given steps a record has ``plain`` columns. Under error control it has ``controlled`` columns: in
    addition the end and the size of the step, the norm of its error, and the errors of q and v (2n). If a
    batch samples the motion between its steps, t, q, v, λ and ψ at the start of the step follow.
    """

    dims: Dims
    parts: dict[str, slice]
    extra: dict[str, slice]
    plain: int
    controlled: int

    @classmethod
    def of(cls, method: Method, dims: Dims) -> Layout:
        size, n, m, p = dims
        widths = {"q": size, "v": n, "a_alpha": n, "lam": m, "psi": p}
        names, extras = list(widths), method.extras(dims)
        ends = itertools.accumulate([*widths.values(), *extras.values(), len(COUNTED)], initial=0)
        cuts = list(itertools.starmap(slice, itertools.pairwise(ends)))
        parts = dict(zip([*names, *extras], cuts, strict=False))
        plain = cuts[-1].stop
        own = {name: parts.pop(name) for name in extras}
        return cls(dims, parts | {"report": cuts[-1]}, own, plain, plain + 3 + 2 * n)

    def rows(self, table: Any) -> Rows:
        """The parts of records (..., width)."""
        q, v, a, lam, psi, report = (table[..., at] for at in self.parts.values())
        extra = {name: table[..., at] for name, at in self.extra.items()}
        return Rows(q, v, a, lam, psi, extra, report)

    def report(self, table: Any) -> Any:
        """Newton's counts in records (..., width)."""
        return table[..., self.parts["report"]]

    def put(self, table: Any, at: State) -> None:
        """Overwrite the motion in records (..., width)."""
        for name in ("q", "v", "lam", "psi"):
            table[..., self.parts[name]] = getattr(at, name)

    def ends(self, table: Any, t: Any) -> StepEnd:
        """The motion in records (..., width), at times t."""
        return StepEnd(t, *(table[..., self.parts[name]] for name in ("q", "v", "lam", "psi")))

    def timing(self, table: Any) -> tuple[Any, Any]:
        """Ends and sizes of the steps, from records under error control."""
        return table[..., self.plain], table[..., self.plain + 1]

    @property
    def of_errors(self) -> slice:
        """The columns of errors under error control."""
        return slice(self.plain + 2, self.controlled)

    def errors(self, table: Any) -> Errors:
        """The errors in records under error control."""
        return self.split_errors(table[..., self.of_errors])

    def split_errors(self, part: Any) -> Errors:
        """The norm of the error and the errors of q and v, from their columns (..., 1 + 2n)."""
        n = self.dims.n
        return Errors(part[..., 1 : n + 1], part[..., n + 1 :], part[..., 0])

    def began(self, table: Any) -> StepEnd:
        """The motion at the start of each step, from records that a batch samples."""
        size, n, m, p = self.dims
        ends = itertools.accumulate([self.controlled, 1, size, n, m, p])
        t, q, v, lam, psi = (table[..., a:b] for a, b in itertools.pairwise(ends))
        return StepEnd(t[..., 0], q, v, lam, psi)


_layout = functools.lru_cache(maxsize=256)(Layout.of)


def layout(setup: Setup) -> Layout:
    """The layout of the records for a setup."""
    return _layout(setup.method, setup.dims)


def record(carry: Carry, output: StepOutput, counts: Array) -> Array:
    """The record as one row of numbers, so that a loop needs a single write."""
    return jnp.concatenate([carry.q, carry.v, carry.a, output.lam, output.psi, output.extra, counts])


def counts(report: NewtonReport) -> Array:
    return jnp.stack([getattr(report, name) for name in COUNTED]).astype(float)


def derive_row(setup: Setup, at: StepEnd, scale: Scale, args: Args, quick: bool = False) -> Derived:
    """Accelerations, multipliers, residuals and reactions for one row.

    v', λ and ψ solve the equations of motion and the hidden acceleration constraints at t, q and v (JN08
    below (12)). So they are as accurate as q and v. Where these equations have no solution, v' is NaN, and λ
    and ψ are the method's own. With ``quick``, few iterations are made for a reaction of the user's own.
    """
    system, dims = setup.system, setup.dims
    t, q, v, *own = at
    solve = quick_accelerations if quick else accelerations
    a, lam, psi = solve(system, dims, scale, t, q, v, args, (own[0], own[1]))
    solved = jnp.isfinite(jnp.sum(a) + jnp.sum(lam) + jnp.sum(psi))
    lam, psi = jnp.where(solved, lam, own[0]), jnp.where(solved, psi, own[1])
    holonomic = system.holonomic_force(t, q, lam, args)
    nonholonomic = system.nonholonomic_force(t, q, v, psi, args)
    custom = system.reaction is not None
    reaction = system.reactions(t, q, v, lam, psi, args) if custom else holonomic + nonholonomic
    position, velocity = system.g_and_dot(t, q, v, args) if dims.m else (jnp.zeros(0),) * 2
    return Derived(
        a=jnp.where(solved, a, jnp.nan),
        lam=lam,
        psi=psi,
        position=jnp.max(jnp.abs(position), initial=0.0),
        velocity=jnp.max(jnp.abs(velocity), initial=0.0),
        nonholonomic=jnp.max(jnp.abs(system.k(t, q, v, args)), initial=0.0),
        holonomic_force=holonomic,
        nonholonomic_force=nonholonomic,
        reaction=reaction,
    )


def derive_rows(setup: Setup, at: StepEnd, scale: Scale, args: Args) -> Derived:
    """Accelerations, multipliers, residuals and reactions for rows (K, ...)."""
    return jax.vmap(lambda row: derive_row(setup, row, scale, args))(at)

"""Projections of one state onto the constraints of a system, traced or computed now."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha import methods
from genalpha.backends.cache import program
from genalpha.backends.native.projection import WholeProjector
from genalpha.backends.sparse import front as sparse
from genalpha.backends.sparse.projection import Projector
from genalpha.compiler.graph import Unsupported
from genalpha.engine.setup import Setup
from genalpha.mechanics import initial_values
from genalpha.mechanics.system import Args, System
from genalpha.numerics import codes
from genalpha.numerics.newton import Newton
from genalpha.numerics.tracing import under_transform
from genalpha.run import arguments


def position(system: System, t: Any, q: Any, args: Args, hold: Any = None) -> Array:
    """The nearest point on the holonomic constraints, ACB15 (6)."""
    n = q.size if system.space.dim is None else system.space.dim
    return _projected(system, "position", t, q, jnp.zeros(n), args, hold)


def velocity(system: System, t: Any, q: Any, v: Any, args: Args, hold: Any = None) -> Array:
    """The nearest velocity on the hidden constraints, ACB15 (7)."""
    return _projected(system, "velocity", t, q, v, args, hold)


def _projected(system: System, what: str, t: Any, q: Any, v: Any, args: Args, hold: Any) -> Array:
    dims, closes_over_traced = arguments.trace(system, t, q, v, args)
    q = arguments.point(system.space, q)
    setup = Setup(system, methods.SOI2(start="a0"), Newton(), dims)
    traced = closes_over_traced or under_transform(t, q, v, args)
    held = arguments.held(hold, dims.n)
    kept = held.q if what == "position" else held.v
    found = None
    if not traced:
        q = np.asarray(system.space.normalize(q))
        of_q, at, v = what == "position", float(t), np.asarray(v)
        run = lambda projector: (
            projector.position(at, q, kept) if of_q else projector.velocity(at, q, v, kept)
        )
        found = without_xla(setup, args, run)
    if found is None:
        project = {"position": _project_position, "velocity": _project_velocity}[what]
        project = functools.partial(project, held=kept)
        run = program(setup, ("project", what, kept, traced), project, outermost=not traced)
        found = run(jnp.asarray(t, float), q, v, args)
    result, status = found
    if traced:
        return jnp.where((status == codes.SUCCESS) & is_point(system, q), result, jnp.nan)
    if int(status) != codes.SUCCESS:
        raise ValueError(
            f"found no {what} on the constraints near the given one: "
            + codes.no_projection(int(status), bool(kept))
        )
    return jax.tree.map(np.asarray, result)


def without_xla(setup: Setup, args: Args, run: Callable[[Projector], Any]) -> Any:
    """What ``run`` finds by machine code: a status comes last. None if XLA has to find it.

    XLA has Newton's method with second derivatives of the constraints, which converges from farther away. It
    is tried if the simpler iteration fails.
    """
    if sparse.large(setup):
        return run(sparse.projector(setup, args))
    try:
        found = run(WholeProjector(setup, args))
    except Unsupported:
        return None
    return found if found[-1] == codes.SUCCESS else None


def is_point(system: System, q: Any) -> Array:
    """Whether the quaternions of a traced q are nearly of length one."""
    return codes.not_rotations(jnp.array(codes.SUCCESS), system.space.defect(q)) == codes.SUCCESS


def _project_position(
    setup: Setup, t: Any, q: Any, v: Any, args: Args, held: tuple[int, ...]
) -> tuple[Any, Any]:
    q = setup.system.space.normalize(q)
    return initial_values.project_position(setup.system, setup.dims, t, q, args, held)


def _project_velocity(
    setup: Setup, t: Any, q: Any, v: Any, args: Args, held: tuple[int, ...]
) -> tuple[Any, Any]:
    q = setup.system.space.normalize(q)
    return initial_values.project_velocity(setup.system, setup.dims, t, q, v, args, held=held)

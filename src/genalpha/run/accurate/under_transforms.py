"""``extrapolate`` under JAX transforms: columns that JAX traces, on a mesh that does not depend on values."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.engine import extrapolation
from genalpha.engine.extrapolation import StepMesh
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.steps import Given
from genalpha.numerics import codes
from genalpha.results import assemble
from genalpha.results.assemble import DERIVED
from genalpha.results.deferred import Deferred, value
from genalpha.results.global_errors import GlobalErrors
from genalpha.results.output import Output
from genalpha.results.solution import Solution
from genalpha.run import traced
from genalpha.run.accurate.combine import moved
from genalpha.run.request import Request


def run(asked: Request) -> Solution:
    """The combination of columns. A failure becomes the status."""
    want, keep = asked.accurate, asked.output
    assert want is not None
    if not keep.everything or keep.dense or len(want.ends) > 2:
        raise ValueError(
            "extrapolate under a JAX transform keeps the ends of steps h: leave out t_eval, dense_output, "
            "save and breakpoints"
        )
    mesh = StepMesh.of(want.ends, want.intervals or 1, smooth=False)
    columns = [_column(asked, mesh, parts) for parts in want.divisions]
    finest, space = columns[-1], asked.setup.system.space
    moves = jnp.stack([jax.vmap(space.difference)(finest.q, column.q) for column in columns])
    velocities = jnp.stack([column.v for column in columns])
    every, fewer = (extrapolation.weights(want.divisions[i:]) for i in (0, 1))
    of_all, of_some = (_combined(asked, finest, w, moves, velocities) for w in (every, fewer))
    found = {name: value(x) for name, x in assemble.derived(Deferred(lambda: of_all[2])).items()}
    kept: dict[str, Any] = {name: found[name] for name in DERIVED} | {"q": of_all[0], "v": of_all[1]}
    status = functools.reduce(codes.first, [column.status for column in columns])
    kept |= dict.fromkeys(("a_alpha", "t_alpha", "lam_method", "psi_method", "newton"))
    kept |= {"status": status, "extra": {}, "error": _errors(of_all, of_some), "complete": False}
    return dataclasses.replace(finest, **kept)


def _column(asked: Request, mesh: StepMesh, parts: int) -> Solution:
    times = mesh.segment(0, parts)
    steps = Given.of(times, np.diff(times))
    output = Output(every=parts)
    return traced.run(asked._replace(steps=steps, output=output, accurate=None))


def _combined(asked: Request, base: Solution, weights: np.ndarray, moves: Any, velocities: Any) -> Any:
    """q, v and what follows from them, for columns with these weights: the finest ones."""
    setup, w = asked.setup, jnp.asarray(weights)
    d, v = (jnp.tensordot(w, x[-len(weights) :], 1) for x in (moves, velocities))
    placed = lambda t, q, d, v: moved(setup, t, q, d, v, asked.args)
    q, v = jax.vmap(placed)(base.t, base.q, d, v)
    return q, v, traced.derived(asked, StepEnd(base.t, q, v, base.lam, base.psi)), d


def _errors(one: Any, two: Any) -> GlobalErrors:
    """The differences of two combinations, for the estimate of errors."""
    size = lambda x, y: jax.lax.stop_gradient(jnp.abs(x - y))
    forces = {name: size(getattr(one[2], name), getattr(two[2], name)) for name in ("a", "lam", "psi")}
    norm = jnp.full(len(one[1]), jnp.nan)
    return GlobalErrors(q=size(one[3], two[3]), v=size(one[1], two[1]), **forces, norm=norm)

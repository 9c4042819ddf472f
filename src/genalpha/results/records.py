"""What a solution holds besides its motion: residuals, reactions, totals and the history of the run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
from jax import Array

from genalpha.engine.files import storable


@storable
class Residuals(NamedTuple):
    """The largest constraint residual at each time, unscaled. Each array has shape (N+1,).

    ``position`` is the residual of g, ``velocity`` that of g_t + G v, ``nonholonomic`` that of k.
    """

    position: Array
    velocity: Array
    nonholonomic: Array


@storable
class Reactions(NamedTuple):
    """Reaction forces at each time. Each array has shape (N+1, n).

    ``holonomic`` is −Gᵀλ and ``nonholonomic`` is −Kᵀψ. ``total`` is their sum, or the system's own
    ``reaction`` if it has one.
    """

    holonomic: Array
    nonholonomic: Array
    total: Array


@dataclass(frozen=True)
class Stats:
    """Totals of a run.

    ``steps`` counts accepted steps and ``rejected`` the others. ``newton_iterations``, ``jacobians`` (new
    Newton matrices) and ``factorizations`` are totals over both. ``rounding_limited`` counts steps whose
    Newton iteration ended at rounding level. ``near_singular`` counts those of them in which the constraints
    were nearly dependent, so that the method's own multipliers lost digits: the mechanism passed a kinematic
    singularity. ``fallback`` is the reason why XLA computed the run, or a part
    of it, instead of native code; it is None if there was no such change.
    """

    steps: Any
    rejected: Any
    newton_iterations: Any
    jacobians: Any
    factorizations: Any
    rounding_limited: Any
    near_singular: Any
    fallback: str | None = None


COUNTS = tuple(spec.name for spec in fields(Stats) if spec.name != "fallback")
jax.tree_util.register_dataclass(Stats, data_fields=list(COUNTS), meta_fields=["fallback"])


@storable
class NewtonHistory(NamedTuple):
    """Newton's work in each step, arrays (N,): iterations, new matrices, whether it ended at rounding, and
    whether its matrix was nearly singular."""

    iterations: Array
    jacobians: Array
    rounding: Array
    near_singular: Array

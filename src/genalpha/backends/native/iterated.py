"""The start of runs with a reaction of the user's own: consistent values are found by an iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from genalpha.backends.native.step import LIMIT
from genalpha.backends.rowwise import Rowwise
from genalpha.engine.setup import Setup
from genalpha.engine.start import RunStart, start_run
from genalpha.mechanics.initial_values import Once
from genalpha.mechanics.system import Args
from genalpha.numerics import codes

if TYPE_CHECKING:
    from genalpha.backends.native.kernels import StartValues

_TURNS = 20  # the most iterations


def _guess(setup: Setup, at: StartValues) -> Once:
    """The multipliers from which an iteration starts."""
    ones: Any = (np.ones(setup.dims.m), np.ones(setup.dims.p))
    return Once(*(ones if at.guess is None else at.guess))


def one_turn(
    setup: Setup,
    at: StartValues,
    doubles: list[np.ndarray],
    rebuild: Callable[[Any], Args],
    normalize: bool = False,
) -> Rowwise:
    """One iteration for the start with a reaction of the user's own, as a function of rows.

    With ``normalize``, quaternions get the length one, which is done elsewhere otherwise.
    """
    point = setup.system.space.normalize if normalize else lambda q: q
    once = lambda t, q, v, h, x, guess: start_run(setup, t, point(q), v, h, rebuild(x), guess)
    return Rowwise("start", once, (*at.columns(doubles), _guess(setup, at)), LIMIT)


def iterated(setup: Setup, iteration: Rowwise, at: StartValues, doubles: list[np.ndarray]) -> RunStart | None:
    """The start with a reaction of the user's own. Its report says whether the iteration has converged."""
    guess, found = _guess(setup, at), None
    for _ in range(_TURNS if iteration.rows is not None else 0):
        found = iteration.one((*at.columns(doubles), guess))
        state = found.begin.state
        finite = np.isfinite(np.concatenate([state.lam, state.psi])).all()
        if found.begin.report.status == codes.SUCCESS or not finite:
            break
        guess = Once(state.lam, state.psi)
    return found


def iterated_together(setup: Setup, iteration: Rowwise, columns: Any) -> RunStart | None:
    """The starts of many members (B, ...), or None if they need XLA: one does not converge.

    ``columns`` are rows of the arguments of the compiled start. One row is the same for all.
    """
    if iteration.rows is None:
        return None
    found: Any = None
    left = np.arange(len(columns[1]))
    ones: Any = [np.ones((len(left), k)) for k in (setup.dims.m, setup.dims.p)]
    guess = Once(*ones)
    for _ in range(_TURNS):
        some = jax.tree.map(lambda x: x if len(x) == 1 else x[left], (*columns, guess))  # noqa: B023
        now = iteration(some)
        if found is None:
            found = jax.tree.map(np.array, now)
        for whole, part in zip(jax.tree.leaves(found), jax.tree.leaves(now), strict=True):
            whole[left] = part
        state = now.begin.state
        if not np.isfinite(np.concatenate([state.lam, state.psi], axis=1)).all():
            return None
        for whole, part in zip(ones, (state.lam, state.psi), strict=True):
            whole[left] = part
        left = left[now.begin.report.status != codes.SUCCESS]
        if not left.size:
            return found
    return None


def converged(
    setup: Setup, iteration: Rowwise, at: StartValues, doubles: list[np.ndarray]
) -> RunStart | None:
    """The start, or None if the iteration has not converged."""
    found = iterated(setup, iteration, at, doubles)
    return found if found is not None and found.begin.report.status == codes.SUCCESS else None

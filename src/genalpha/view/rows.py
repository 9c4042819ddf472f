"""Rows of a solution at evenly spaced times, and functions of one row evaluated for all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.engine.interpolate import StepEnd
from genalpha.numerics.data import State
from genalpha.results.phases import Phases
from genalpha.results.solution import Solution

# What a function of a row may take besides t and q.
NAMES = ("v", "a", "lam", "psi", "reaction")


class MotionRows:
    """Rows of a motion: times ``t`` (K,), and ``q`` and other quantities (K, ...) by name."""

    t: np.ndarray

    def column(self, name: str, what: str) -> np.ndarray:
        """A quantity (K, ...) by name. ``what`` needs it."""
        raise NotImplementedError

    def evaluate(self, function: Callable[..., Any], what: str) -> Any:
        """The values of a function of one row: an array (K, ...), or a pair of them if it returns a pair.

        A function that computes with JAX is vectorised. Others, and those for which this fails, are called
        for each row with NumPy's arrays.
        """
        names = _further(function, what)
        columns = [self.t, self.column("q", what), *(self.column(name, what) for name in names)]

        def call(t: Any, q: Any, *rest: Any) -> Any:
            return function(t, q, **dict(zip(names, rest, strict=True)))

        try:
            first = call(*(column[0] for column in columns))
            if len(self.t) > 1 and any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(first)):
                try:
                    found = jax.vmap(lambda *row: tuple(jnp.asarray(x, float) for x in parts(call(*row))))(
                        *columns
                    )
                    return _joined([np.asarray(x) for x in found])
                except Exception:  # such a function may still work with numbers; its own errors come again
                    pass
            rows = [first, *(call(*row) for row in zip(*(c[1:] for c in columns), strict=True))]
        except Exception as error:
            error.add_note(f"This happened in {what}. It is called with one row: t, and q of shape (n,)")
            raise
        try:
            return _joined([_stacked(part) for part in zip(*map(parts, rows), strict=True)])
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{what} must return a position of 2 or 3 numbers, or a tuple (position, rotation), "
                f"for every row. The first row gives {first!r}"
            ) from error


class Instant(MotionRows):
    """A single row, from a state."""

    def __init__(self, state: State | SimpleNamespace) -> None:
        self._state, self.t = state, np.array([state.t], dtype=float)

    def column(self, name: str, what: str) -> np.ndarray:
        if name == "reaction":
            raise ValueError(f"{what} needs reaction, which is known after a run: use lam and psi")
        found = getattr(self._state, name, None)
        if found is None:
            raise ValueError(f"{what} needs {name}, which is known after a run")
        return np.asarray(found)[None]


class Sampled(MotionRows):
    """Rows of a solution.

    If the solution can be interpolated, the times are evenly spaced. Otherwise they are those of the rows
    nearest to such times. After a failure the rows end where the run did.
    """

    def __init__(self, sol: Solution, frames: int) -> None:
        self._sol = sol
        if isinstance(sol.status, jax.core.Tracer):
            raise TypeError("a view needs numbers, and this solution is traced: call it outside of jax.jit")
        if np.ndim(sol.status):
            raise TypeError(
                "a view needs a single solution, and this is a batch: view a member, ga.view(sol[0], ...)"
            )
        if not isinstance(frames, int | np.integer) or not 1 <= frames <= 10_000:
            raise ValueError(f"frames is {frames!r}: pass an integer from 1 to 10000")
        self._dense = sol.space is not None and (sol.nodes is not None or sol.complete)
        source = sol if sol.nodes is None else sol.nodes
        if source.q is None:
            raise ValueError("a view needs q, and save left it out: keep it")
        times = np.asarray(source.t, dtype=float)
        good = np.isfinite(times) & np.isfinite(np.asarray(source.q)).all(axis=1)
        count = len(times) if good.all() else int(np.argmin(good))
        if not count:
            raise ValueError("a view needs a motion, and this solution has no rows: solve over a time span")
        even = np.linspace(times[0], times[count - 1], frames if times[count - 1] > times[0] else 1)
        if self._dense:
            self.t = even
            self._state = sol(self.t)
        else:
            self._rows = np.unique(np.clip(np.searchsorted(times[:count], even), 0, count - 1))
            self.t = times[self._rows]

    def column(self, name: str, what: str) -> np.ndarray:
        if self._dense and name != "reaction":
            found = getattr(self._state, name)
        elif self._dense:
            found = self._reaction()
        else:
            forces = self._sol.reactions if name == "reaction" else None
            kept = getattr(self._sol, name) if name != "reaction" else forces and forces.total
            found = None if kept is None else np.asarray(kept)[self._rows]
        if found is None:
            raise ValueError(f"{what} needs {name}, and save left it out: keep it, or pass dense_output=True")
        return np.asarray(found)

    def _reaction(self) -> np.ndarray | None:
        """Reaction forces at the times, by the equations of motion or else between the rows."""
        t, q, v, _, lam, psi = self._state
        if self._sol.phases is not None:
            return np.asarray(Phases(list(self._sol.phases))(StepEnd(t, q, v, lam, psi)).reaction)
        if self._sol.reactions is None:
            return None
        total = np.asarray(self._sol.reactions.total)
        return np.stack([np.interp(self.t, self._sol.t, part) for part in total.T], axis=1)


def parts(value: Any) -> tuple[Any, ...]:
    """The position and the rotation, if there is one. A pair has a vector as its first part.

    >>> parts((1.0, 2.0)), parts((np.ones(2), 0.5))
    (((1.0, 2.0),), (array([1., 1.]), 0.5))
    """
    return value if isinstance(value, tuple) and len(value) == 2 and np.ndim(value[0]) else (value,)


def _stacked(values: tuple[Any, ...]) -> np.ndarray:
    if any(value is None for value in values):
        raise TypeError("None is no number")
    return np.array(values, dtype=float)


def _joined(columns: list[np.ndarray]) -> Any:
    return columns[0] if len(columns) == 1 else tuple(columns)


def _further(function: Callable[..., Any], what: str) -> list[str]:
    """The names of the parameters after t and q."""
    try:
        given = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-in functions have no signature
        return []
    flexible = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    fixed = [x for x in given if x.kind not in flexible]
    needed = [x.name for x in fixed[2:] if x.name in NAMES or x.default is inspect.Parameter.empty]
    few = len(fixed) < 2 and not any(x.kind is flexible[0] for x in given)
    unknown = [name for name in needed if name not in NAMES]
    if few or unknown:
        listed = ", ".join(x.name for x in given)
        raise TypeError(
            f"{what} is a function of ({listed}): its first two parameters must be t and q, "
            f"and further ones can be {', '.join(NAMES)}"
        )
    return needed

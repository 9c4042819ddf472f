"""The parts of a solution in which one system and one set of args hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived
from genalpha.mechanics.system import Args, System
from genalpha.numerics.tracing import is_traced


@dataclass(frozen=True, eq=False)
class Phase:
    """A part of a solution, from t0 to t1, in which one system and one set of args hold.

    ``sol.q[phase.rows]`` are its rows. A time that two phases share belongs to the first one.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> spring = ga.System(jnp.eye(1), lambda t, q, v, k: -k * q)
    >>> sol = ga.solve(spring, (0.0, 1.0), [1.0], [0.0], h=0.1, args=(2.0,))
    >>> [(phase.t0, phase.t1, float(phase.args[0]), sol.q[phase.rows].shape) for phase in sol.phases]
    [(0.0, 1.0, 2.0, (11, 1))]
    """

    system: System
    args: Args
    t0: float
    t1: float
    rows: slice
    derive: Callable[[StepEnd], Derived] = field(repr=False)  # the equations of motion
    sizes: tuple[int, int]  # the numbers of multipliers λ and ψ
    nodes: int = 0  # how many ends of steps belong to it, if they are kept apart from the rows

    def own(self, ends: StepEnd) -> Derived:
        """a, λ, ψ and what follows from them. ``ends`` may have more multipliers than this phase."""
        m, p = self.sizes
        return self.derive(ends._replace(lam=ends.lam[:, :m], psi=ends.psi[:, :p]))

    def longer(self, t1: float, rows: int, nodes: int) -> Phase:
        """This phase up to a later time, with more rows and ends of steps."""
        kept = slice(self.rows.start, self.rows.stop + rows)
        return replace(self, t1=t1, rows=kept, nodes=self.nodes + nodes)


class Phases:
    """The phases of a solution, one after the other, and its events. Calling it solves their equations."""

    def __init__(self, phases: list[Phase], events: tuple[Any, ...] = ()) -> None:
        self.phases, self.events = phases, events

    def __call__(self, ends: StepEnd) -> Derived:
        """a, λ, ψ and what follows from them, at any times (K,) of the run."""
        if len(self.phases) == 1:
            return self.phases[0].derive(ends)
        bounds = np.array([phase.t1 for phase in self.phases[:-1]])
        if is_traced(ends):
            return self._traced(ends, jnp.searchsorted(bounds, ends.t, side="left"))
        return self._each(ends, np.searchsorted(bounds, ends.t, side="left"))

    def at_nodes(self, nodes: StepEnd) -> Derived:
        """The same at the ends of all steps. Where two phases meet, each has an end of its own."""
        if len(self.phases) == 1:
            return self.phases[0].derive(nodes)
        return self._each(nodes, np.repeat(np.arange(len(self.phases)), [p.nodes for p in self.phases]))

    def _each(self, ends: StepEnd, which: np.ndarray) -> Derived:
        """Each end (K,) by the phase with the given number."""
        numbers = np.unique(which) if which.size else [0]
        at = [np.flatnonzero(which == number) for number in numbers]
        parts = [
            self.phases[number].own(StepEnd(*(np.asarray(x)[here] for x in ends)))
            for number, here in zip(numbers, at, strict=True)
        ]
        place = np.argsort(np.concatenate(at), kind="stable")
        return jax.tree.map(lambda *each: stacked(*each)[place], *parts)

    def _traced(self, ends: StepEnd, which: Any) -> Derived:
        parts = [phase.own(ends) for phase in self.phases]
        wide = lambda x: which.reshape(-1, *[1] * (x.ndim - 1))

        def pick(*each: Any) -> Any:
            most = max(x.shape[-1] for x in each)
            pad = lambda x: jnp.pad(x, [(0, 0), (0, most - x.shape[-1])], constant_values=jnp.nan)
            each = tuple(map(pad, each)) if each[0].ndim > 1 else each
            return jnp.select([wide(each[0]) == i for i in range(len(each))], each)

        return jax.tree.map(pick, *parts)


def stacked(*parts: np.ndarray) -> np.ndarray:
    """Rows (K, ...) of several parts, one after the other. Columns that a part does not have are NaN.

    >>> stacked(np.ones((1, 2)), np.zeros((1, 1))).tolist()
    [[1.0, 1.0], [0.0, nan]]
    """
    if parts[0].ndim < 2 or len({x.shape[1] for x in parts}) == 1:
        return np.concatenate(parts)
    most = max(x.shape[1] for x in parts)
    pad = lambda x: np.pad(x, [(0, 0), (0, most - x.shape[1])], constant_values=np.nan)
    return np.concatenate([pad(x) for x in parts])

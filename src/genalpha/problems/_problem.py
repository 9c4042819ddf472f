"""What a named problem holds, and reference solutions that do not use this package's integrators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from genalpha.mechanics.system import System
from genalpha.numerics.data import State
from genalpha.results.solution import Solution
from genalpha.solve import solve

Vector = np.ndarray
# Arguments of solve that ask for error control.
_ERROR_CONTROL = ("accuracy", "rtol", "atol", "first_step", "max_step", "min_step", "max_steps")


class Reference(Protocol):
    """The true motion: ``reference(t)`` is a State. If t is an array, time is the first axis."""

    @property
    def kind(self) -> str: ...

    def __call__(self, t: Any) -> State: ...


@dataclass(frozen=True)
class Problem:
    """A named problem with everything needed to run it and to judge the result.

    ``energy(t, q, v, *args)`` is the mechanical energy, if there is one, and ``momentum(t, q, v, *args)`` a
    momentum. Both are constant from the time ``conserved_from`` on. ``reference(t)`` is the true State at t.
    ``published`` maps times to values that were computed elsewhere. ``h`` is a step size that resolves the
    motion well.
    """

    name: str
    title: str
    system: System
    t_span: tuple[float, float]
    q0: np.ndarray
    v0: np.ndarray
    coordinates: tuple[str, ...]
    source: str
    h: float
    args: tuple[Any, ...] = ()
    energy: Callable[..., Any] | None = None
    momentum: Callable[..., Any] | None = None
    conserved_from: float | None = None
    reference: Reference | None = None
    breakpoints: tuple[float, ...] = ()
    published: Mapping[float, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)

    def solve(self, *, t_end: float | None = None, h: Any = None, **options: Any) -> Solution:
        """Solve the problem with :func:`genalpha.solve`, up to ``t_end`` if that is given.

        If neither ``h`` nor an option of error control such as ``rtol`` is given, the step size is that of
        the problem.

        >>> import genalpha as ga
        >>> ga.problems.get("spring-chain").solve(t_end=0.5).stats.steps
        50
        """
        t0, t1 = self.t_span
        t_span = (t0, t1 if t_end is None else t_end)
        if h is None and all(options.get(name) is None for name in _ERROR_CONTROL):
            h = self.h
        if h is None and "breakpoints" not in options:
            inside = [t for t in self.breakpoints if t_span[0] < t < t_span[1]]
            options["breakpoints"] = inside
        return solve(self.system, t_span, self.q0, self.v0, h=h, args=self.args, **options)

    @property
    def conservative(self) -> bool:
        """Whether energy is conserved from the start."""
        return self.conserved_from is not None and self.conserved_from <= self.t_span[0]


@dataclass(frozen=True)
class ClosedForm:
    """A reference in closed form: ``formula(t)`` returns (q, v, a, λ, ψ) at one time."""

    formula: Callable[[float], tuple[Any, ...]]
    kind: str = "exact"

    def __call__(self, t: Any) -> State:
        return _stack(t, [self.formula(float(time)) for time in np.atleast_1d(t)])


@dataclass(frozen=True)
class ReducedODE:
    """A reference from the equations of motion in independent coordinates, derived by hand.

    ``rhs(t, y)`` is integrated from ``y0`` at ``t0`` by SciPy's DOP853 with tolerance 1e-13. ``lift(t, y)``
    returns (q, v, a, λ, ψ). If there are few times, the integration ends at each of them. If there are many,
    the values come from the dense output.
    """

    rhs: Callable[[float, Vector], Vector]
    lift: Callable[[float, Vector], tuple[Any, ...]]
    t0: float
    y0: Vector
    kind: str = "reduced ODE, DOP853, rtol 1e-13"

    def __call__(self, t: Any) -> State:
        from scipy.integrate import solve_ivp  # imported here because it is slow and rarely needed

        times = np.atleast_1d(np.asarray(t, dtype=float))
        order = np.argsort(times)
        options: dict[str, Any] = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14}
        states = np.empty((times.size, len(self.y0)))
        if times.size > 64:
            # The interpolant has a lower order than the steps. With short steps it is as accurate.
            span = (self.t0, float(times.max()))
            run = solve_ivp(self.rhs, span, self.y0, dense_output=True, max_step=2e-3, **options)
            states[:] = run.sol(times).T
        else:
            at, y = self.t0, np.asarray(self.y0, dtype=float)
            for i in order:
                if times[i] != at:
                    y = solve_ivp(self.rhs, (at, times[i]), y, **options).y[:, -1]
                    at = times[i]
                states[i] = y
        return _stack(t, [self.lift(time, y) for time, y in zip(times, states, strict=True)])


def _stack(t: Any, values: list[tuple[Any, ...]]) -> State:
    columns = [np.array([value[i] for value in values], dtype=float) for i in range(5)]
    if np.ndim(t) == 0:
        columns = [column[0] for column in columns]
    return State(np.asarray(t, dtype=float), *columns)  # type: ignore[arg-type]

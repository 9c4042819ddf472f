"""Measured orders of convergence: errors for a list of step sizes, compared with a reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from genalpha.problems import Problem

_COMPONENTS = ("q", "v", "a_alpha", "lam_method", "psi_method", "a", "lam", "psi")


@dataclass(frozen=True)
class Study:
    """Errors of one method on one problem at the end of the time span.

    ``h`` (H,) are the step sizes. ``errors[component]`` (H,) are the 2-norms of the errors of q and v, of the
    method's own a_alpha (at its own time t_alpha), lam_method and psi_method, and of a, lam and psi.
    Components that the problem does not have are left out.
    """

    problem: str
    method: str
    h: np.ndarray
    errors: dict[str, np.ndarray]

    @property
    def slopes(self) -> dict[str, float]:
        """Least-squares slopes of log(error) over log(h): the measured orders."""
        return {name: slope(self.h, error) for name, error in self.errors.items()}

    def finest(self, count: int) -> Study:
        """The last ``count`` step sizes only. At larger ones, higher terms of the error still matter."""
        errors = {name: error[-count:] for name, error in self.errors.items()}
        return Study(self.problem, self.method, self.h[-count:], errors)

    def table(self) -> str:
        """Errors and slopes as a Markdown table."""
        head = ["h", *self.errors]
        lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        for i, h in enumerate(self.h):
            lines.append(f"| {h:.6g} | " + " | ".join(f"{e[i]:.3e}" for e in self.errors.values()) + " |")
        lines.append("| slope | " + " | ".join(f"{s:.2f}" for s in self.slopes.values()) + " |")
        return "\n".join(lines)


def slope(h: Any, errors: Any) -> float:
    """Least-squares slope of log(errors) over log(h).

    >>> round(slope([0.1, 0.05, 0.025], [1e-2, 2.5e-3, 6.25e-4]), 12)
    2.0
    """
    return float(np.polyfit(np.log(h), np.log(errors), 1)[0])


def study(
    problem: Problem,
    method: Any = "soi2",
    *,
    h: Sequence[float],
    pattern: Sequence[float] = (1.0,),
    t_end: float | None = None,
    **options: Any,
) -> Study:
    """Run ``problem`` with every step size in ``h`` and measure the errors at the end.

    ``pattern`` divides each h into a repeating list of steps. For example (1/3, 2/3) alternates between h/3
    and 2h/3, as in JN08 section 8. ``options`` are passed to :func:`genalpha.solve`.

    >>> import genalpha as ga
    >>> result = study(ga.problems.get("double-pendulum"), "soi2", h=[4e-3, 2e-3, 1e-3, 5e-4], t_end=0.5)
    >>> {name: round(value, 1) for name, value in result.slopes.items()}
    {'q': 2.0, 'v': 2.0, 'a_alpha': 2.0, 'lam_method': 2.0, 'a': 2.0, 'lam': 2.0}
    """
    if problem.reference is None:
        raise ValueError(f"problem {problem.name!r} has no reference: choose a problem that has one")
    t0, t1 = problem.t_span
    t1 = t1 if t_end is None else t_end
    runs = []
    for size in h:
        count = round((t1 - t0) / size)
        sizes = np.tile((t1 - t0) / count * np.asarray(pattern), count)
        runs += [problem.solve(t_end=t1, h=sizes, method=method, **options)]
    end = problem.reference(t1)
    own = problem.reference([sol.t_alpha[-1] for sol in runs])
    errors = {}
    for name in _COMPONENTS:
        true = own.a if name == "a_alpha" else getattr(end, name.removesuffix("_method"))
        last = np.array([getattr(sol, name)[-1] for sol in runs])
        if last.size:
            errors[name] = np.linalg.norm(last - true, axis=1)
    return Study(problem.name, runs[-1].method, np.asarray(h, dtype=float), errors)

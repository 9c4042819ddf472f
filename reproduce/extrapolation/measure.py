"""Errors of extrapolated runs over step sizes, and the orders that can be read from them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import genalpha as ga
from genalpha.convergence import slope
from genalpha.methods import by_name

Rows = Mapping[str, np.ndarray]
COMPONENTS = ("q", "v", "lam", "psi")
COLUMNS = (1, 2, 3, 4, 5, 6)
# Errors are the largest at the ends of the last ones of so many parts of the span. One time would not do: the
# errors of a mechanism with one degree of freedom go through zero.
PARTS, LAST = 4, 3
# Numbers of intervals in a part. Even and odd ones differ for ρ∞ = 1.
INTERVALS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
EVEN = tuple(2 * count for count in INTERVALS[:-2])
ODD = (1, 3, 5, 7, 11, 15, 23, 31, 47, 63, 95, 127, 191)
# As ``accuracy`` sets it for many digits: else Newton's tolerance, not rounding, would end the ladders.
NEWTON = ga.Newton(tol=1e-14)
# Points count if errors are below the first of these, smaller than with one column less, and above so many
# times the error of the reference and the smallest error with so many columns or more.
SMALL, ABOVE = 0.03, 20.0
# An order is the slope over so many of the finest points that count, if the slopes between them differ by no
# more than the second.
FINEST, ALIKE = 3, 1.0
# Runs that check references, or are the reference: ρ∞, columns, numbers of intervals in a part.
FINE = (0.6, 5, (50, 100, 200))
MOST_STEPS = 10_000_000


@dataclass(frozen=True)
class Run:
    """A method with its damping, and the numbers of intervals in a part that it takes."""

    method: Any
    rho_inf: float = 0.8
    intervals: tuple[int, ...] = INTERVALS
    label: str = ""

    @property
    def name(self) -> str:
        return self.label or str(self.method)

    @property
    def made(self) -> Any:
        """The method as an object."""
        return by_name(self.method, self.rho_inf) if isinstance(self.method, str) else self.method


@dataclass(frozen=True)
class Case:
    """A problem up to ``t1``, its true rows, and the relative errors that these may have."""

    problem: ga.problems.Problem
    t1: float
    exact: Rows
    doubt: dict[str, float]
    source: str


@dataclass(frozen=True)
class Ladder:
    """Relative errors: ``errors[component]`` (columns, steps), NaN where a run failed."""

    h: np.ndarray
    errors: dict[str, np.ndarray]
    doubt: dict[str, float]

    def _of(self, component: str, columns: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Errors with so many columns and with one less, (H,) each, and the first step that is too fine."""
        i, errors = COLUMNS.index(columns), np.nan_to_num(self.errors[component], nan=np.inf)
        least = ABOVE * max(errors[i:].min(), self.doubt[component])
        end = int(np.argmin(np.append(errors[i] > least, False)))
        return errors[i], errors[i - 1] if i else np.full(len(self.h), np.inf), end

    def points(self, component: str, columns: int) -> slice:
        """The steps that count for so many columns."""
        errors, fewer, end = self._of(component, columns)
        begin = end
        while begin > max(0, end - FINEST) and errors[begin - 1] < min(SMALL, fewer[begin - 1]):
            begin -= 1
        return slice(begin, end)

    def order(self, component: str, columns: int) -> float:
        """The measured order; NaN if too few points are above rounding, or their slopes differ."""
        use = self.points(component, columns)
        h, errors = self.h[use], self._of(component, columns)[0][use]
        if len(h) < FINEST:
            return float("nan")
        between = np.diff(np.log(errors)) / np.diff(np.log(h))
        return slope(h, errors) if np.ptp(between) <= ALIKE else float("nan")

    def cell(self, component: str, columns: int) -> str:
        """The order, or why there is none."""
        order = self.order(component, columns)
        if np.isfinite(order):
            return f"{order:.1f}"
        if self.h[self.points(component, columns)].size == FINEST:
            return "uneven"
        errors, fewer, end = self._of(component, columns)
        last = slice(max(0, end - FINEST), end)
        lost = end >= FINEST and (errors[last] >= fewer[last]).all()
        return "no gain" if lost else "rounding"


def rows(problem: ga.problems.Problem, t1: float, intervals: int, columns: int, run: Run) -> Rows | None:
    """Rows of a run with so many intervals in a part; None if it failed. One column is a plain run."""
    more = {"extrapolate": columns, "max_steps": MOST_STEPS} if columns > 1 else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ga.FallbackWarning)
        sol = problem.solve(
            t_end=t1,
            h=(t1 - problem.t_span[0]) / (PARTS * intervals),
            method=run.made,
            newton=NEWTON,
            save=intervals,
            throw=False,
            **more,
        )
    return {name: np.asarray(getattr(sol, name)[-LAST:]) for name in COMPONENTS} if sol.success else None


def relative(found: Rows, exact: Rows) -> dict[str, float]:
    """The largest errors in 2-norms, over the largest norms."""

    def largest(x: np.ndarray) -> float:
        return float(np.linalg.norm(x, axis=1).max())

    return {
        name: largest(found[name] - exact[name]) / largest(exact[name]) for name in exact if exact[name].size
    }


def case(name: str, t1: float) -> Case:
    """A problem with its own reference, or with a fine extrapolated run; other fine runs check it."""
    problem = ga.problems.get(name)
    rho_inf, columns, counts = FINE
    free = problem.system.holonomic is None and problem.system.nonholonomic is None
    methods = ("generalized-alpha" if free else "projected", "soi2")
    fine = [
        [rows(problem, t1, count, columns, Run(method, rho_inf)) for method in methods] for count in counts
    ]
    pairs = [(one, two) for one, two in fine if one is not None and two is not None]
    if problem.reference is None:
        doubts = [relative(two, one) for one, two in pairs]
        best = min(range(len(pairs)), key=lambda i: sum(doubts[i].values()))
        source = f"`{methods[0]}`, ρ∞ = {rho_inf}, {columns} columns, {PARTS * counts[best]} intervals"
        return Case(problem, t1, pairs[best][0], doubts[best], source)
    t0 = problem.t_span[0]
    state = problem.reference(t0 + (t1 - t0) * np.arange(PARTS - LAST + 1, PARTS + 1) / PARTS)
    exact = {name: np.asarray(getattr(state, name)) for name in COMPONENTS}
    found = [relative(run, exact) for pair in pairs for run in pair]
    doubt = {name: min(one[name] for one in found) for name in found[0]}
    return Case(problem, t1, exact, doubt, problem.reference.kind)


def ladder(of: Case, run: Run) -> Ladder:
    """Errors of a method for all numbers of columns and of intervals."""
    h = (of.t1 - of.problem.t_span[0]) / (PARTS * np.array(run.intervals))
    errors = {name: np.full((len(COLUMNS), len(h)), np.nan) for name in of.doubt}
    for i, columns in enumerate(COLUMNS):
        for j, count in enumerate(run.intervals):
            found = rows(of.problem, of.t1, count, columns, run)
            if found is not None:
                for name, error in relative(found, of.exact).items():
                    errors[name][i, j] = error
    return Ladder(h, errors, of.doubt)

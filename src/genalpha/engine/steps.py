"""The steps of a run: given before it starts, or controlled by the error of each step.

:class:`Given` and :class:`Controlled` have the same interface. Both are trees of arrays for JAX.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from genalpha.engine.controller import Limits, Tolerances
from genalpha.engine.files import storable
from genalpha.engine.row import Errors, Layout
from genalpha.methods import Method
from genalpha.numerics.data import Times
from genalpha.numerics.tracing import is_traced

SPREAD = 1e-9  # a remainder below this fraction of h is spread over all steps
# Defaults of max_steps: outside of JAX transforms, and under them, where memory for all steps is reserved.
MOST_STEPS, MOST_TRACED = 1_000_000, 4096


@storable
@dataclass(frozen=True, eq=False)
class Given:
    """Steps that are known before the run.

    ``times`` (N+1,) are the start and the ends of all steps. ``steps`` holds the start and the size of each.
    ``even`` says that all steps but the last are equal.
    """

    times: Any
    steps: Times
    even: bool = False

    controlled: ClassVar[bool] = False

    @classmethod
    def of(cls, times: Any, sizes: Any, marks: Any = None, even: bool = False) -> Given:
        """Steps with these times and sizes; ``even`` if all but the last are known to be equal."""
        even = even or (not is_traced(sizes) and bool(np.all(sizes[:-1] == sizes[0])))
        return cls(times, Times(times[:-1], sizes, marks), even)

    @property
    def first(self) -> Any:
        """The size of the first step."""
        return self.steps.h[0]

    @property
    def first_size(self) -> float | None:
        """The size of the first step, if it is known."""
        return float(self.steps.h[0])

    @property
    def end(self) -> float:
        return float(self.times[-1])

    @property
    def expected(self) -> int | None:
        """The number of steps, if it is known."""
        return len(self.steps.h)

    @property
    def step_limits(self) -> tuple[float, float, float] | None:
        """The limits of steps under error control."""
        return None

    def room(self, before: int) -> int:
        """How many steps a part of a run may take after ``before`` steps of earlier parts."""
        return len(self.steps.h)

    def rows(self, most: int) -> int:
        """The number of steps for which memory is needed under a transform."""
        return len(self.steps.h)

    def suited(self, method: Method) -> Method:
        """The method, without its adjusting formulas if all steps are equal: they would change nothing."""
        if not (method.adjust and self.even and self.steps.h[-1] == self.steps.h[0]):
            return method
        return _without_adjusting(method)

    def check(self, method: Method) -> None:
        """Raise if the method cannot take such steps."""

    def width(self, layout: Layout) -> int:
        """The number of columns of a record."""
        return layout.plain

    def timing(self, layout: Layout, table: np.ndarray, done: int) -> tuple[np.ndarray, np.ndarray]:
        """Ends and sizes of the steps ``done``, ``done`` + 1, ... with these records; 0 is the start."""
        last, sizes = done + len(table), self.steps.h
        h = np.append(0.0, sizes[: last - 1]) if done == 0 else sizes[done - 1 : last - 1]
        return self.times[done:last], h

    def errors(self, layout: Layout, table: Any) -> Errors | None:
        """The estimated errors in records."""
        return None

    def totals(self, runner: Any, counted: np.ndarray) -> np.ndarray:
        """Newton's totals (3,) over all steps, rejected ones too; ``counted`` are those of the records."""
        return counted

    def resumed(self, t: float) -> Given:
        """The steps from a time t within these to the end.

        Equal steps stay equal and become a little shorter. In a list, the first step ends where the
        interrupted one would have ended. If little is left of that one, it ends where the following one would
        have ended, because a very short step between long ones is inaccurate.
        """
        times = np.asarray(self.times)
        rest = times[times > t]
        if self.even:
            count = max(1, math.ceil((times[-1] - t) / float(self.steps.h[0]) * (1 - SPREAD)))
            sizes = np.full(count, (times[-1] - t) / count)
            ends = t + sizes[0] * np.arange(count + 1)
            ends[-1] = times[-1]
        else:
            if len(rest) > 1 and rest[0] - t < 0.5 * (rest[1] - rest[0]):
                rest = rest[1:]
            ends = np.append(t, rest)
            sizes = np.diff(ends)
        return Given(ends, Times(ends[:-1], sizes, self._marked(ends)), self.even)

    def within(self, first: float, last: float) -> Given:
        """The steps from one time to another. The nearest ends of steps count."""
        times, (_, sizes, marks) = np.asarray(self.times), self.steps
        i, j = nearest(times, np.array([first, last])).tolist()
        return Given.of(times[i : j + 1], sizes[i:j], None if marks is None else marks[i:j])

    def _marked(self, ends: np.ndarray) -> np.ndarray | None:
        """The steps of another grid that end nearest to the times at which velocities are projected."""
        marks = self.steps.project
        if marks is None:
            return None
        wanted = np.asarray(self.times)[1:][np.asarray(marks)]
        nearest = [int(np.argmin(np.abs(ends[1:] - t))) for t in wanted[wanted > ends[0]]]
        return np.isin(np.arange(len(ends) - 1), nearest)

    def cut(self, layout: Layout, done: int, t: float, row: np.ndarray) -> Given:
        """The first ``done`` steps, the last of which now ends at t; ``row`` is its record."""
        times = np.append(np.asarray(self.times)[:done], t)
        marks = self.steps.project
        marks = None if marks is None else np.asarray(marks)[:done]
        sizes = np.append(np.asarray(self.steps.h)[: done - 1], times[-1] - times[-2])
        return Given(times, Times(times[:-1], sizes, marks), self.even)


@dataclass(frozen=True, eq=False)
class Controlled:
    """Steps that follow an error tolerance.

    ``wish`` is the size of the first step, NaN if it is to be estimated. At most ``most`` steps are taken;
    None means the default.
    """

    wish: Any
    tolerances: Tolerances
    limits: Limits
    most: int | None = None

    controlled: ClassVar[bool] = True

    @property
    def control(self) -> tuple[Tolerances, Limits]:
        return self.tolerances, self.limits

    @property
    def first(self) -> Controlled:
        """The control that estimates the first step."""
        return self

    @property
    def first_size(self) -> float | None:
        return None

    @property
    def end(self) -> float:
        return float(self.limits.end)

    @property
    def expected(self) -> int | None:
        return None

    @property
    def step_limits(self) -> tuple[float, float, float] | None:
        _, longest, shortest, quiet, _ = map(float, self.limits)
        return longest, shortest, quiet

    def room(self, before: int) -> int:
        return (MOST_STEPS if self.most is None else self.most) - before

    def rows(self, most: int) -> int:
        return most if self.most is None else self.most

    def suited(self, method: Method) -> Method:
        return method

    def check(self, method: Method) -> None:
        """Raise if the method does not adjust to changes of the step size."""
        if not method.adjust:
            raise ValueError(
                "adjust=False is not possible under error control: the step size changes in every step, so "
                "the method would be of first order only. Leave out adjust=False, or pass h"
            )

    def width(self, layout: Layout) -> int:
        return layout.controlled

    def timing(self, layout: Layout, table: np.ndarray, done: int) -> tuple[np.ndarray, np.ndarray]:
        return layout.timing(table)

    def errors(self, layout: Layout, table: Any) -> Errors | None:
        return layout.errors(table)

    def totals(self, runner: Any, counted: np.ndarray) -> np.ndarray:
        return np.array(runner.totals)

    def resumed(self, t: float) -> Controlled:
        return dataclasses.replace(self, wish=np.float64(np.nan))

    def until(self, t: float) -> Controlled:
        """The same steps up to another end."""
        return dataclasses.replace(self, limits=self.limits._replace(end=np.float64(t)))

    def cut(self, layout: Layout, done: int, t: float, row: np.ndarray) -> Controlled:
        row[layout.plain + 1] -= row[layout.plain] - t
        row[layout.plain] = t
        return self


@functools.lru_cache(maxsize=256)
def _without_adjusting(method: Method) -> Method:
    return dataclasses.replace(method, adjust=False)


def nearest(times: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The numbers of the increasing ``times`` that are nearest to the wanted ones (K,).

    >>> nearest(np.array([0.0, 1.0, 2.0]), np.array([0.4, 0.6, 5.0])).tolist()
    [0, 1, 2]
    """
    return np.searchsorted(0.5 * (times[1:] + times[:-1]), wanted)


Steps = Given | Controlled
jax.tree_util.register_dataclass(Given, data_fields=["times", "steps"], meta_fields=["even"])
jax.tree_util.register_dataclass(
    Controlled, data_fields=["wish", "tolerances", "limits"], meta_fields=["most"]
)

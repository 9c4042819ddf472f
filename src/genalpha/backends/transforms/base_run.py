"""What runs under JAX transforms have in common, whatever their steps and their matrices."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.kernels import StartValues
from genalpha.backends.transforms import undefined as undefined_at
from genalpha.backends.transforms.operation import Operation
from genalpha.backends.transforms.records import NUMBERS, Found, Rebuild, Taken
from genalpha.engine import row
from genalpha.engine import start as starts
from genalpha.engine.row import Rows
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Steps
from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args
from genalpha.numerics import codes


class RunOperation(Operation):
    """A run as an operation. ``first`` is an example of the first step, or the control that chooses it.

    Subclasses of two kinds say how steps are given or chosen, and whether matrices are dense or sparse.
    """

    timed = 0  # the number of arrays in ``timing``

    def __init__(self, setup: Setup, strict: bool, doubles: list[Any], rebuild: Rebuild, first: Any) -> None:
        self.setup, self.strict, self.rebuild = setup, strict, rebuild
        self.layout = row.layout(setup)
        *parts, report = self.layout.parts.values()
        self.parts = [*parts, *self.layout.extra.values(), report]
        smooth = len(self.parts) - 1
        self.smooth = (*[True] * smooth, *[False] * (1 + self.timed + len(NUMBERS) + 1))
        self.iterates = setup.system.reaction is not None  # at the start
        self._examined = False  # why derivatives are NaN
        self._prepare(doubles, first)

    @abstractmethod
    def _prepare(self, doubles: list[Any], first: Any) -> None:
        """Trace a step."""

    @property
    @abstractmethod
    def widths(self) -> tuple[int, int]:
        """The numbers of columns of a tape, and of those with derivatives, which are the first ones."""

    def run(self, *inputs: Any) -> Found:
        """The run, with inputs that JAX may trace."""
        parts = iter(self(*inputs))
        q, v, a_alpha, lam, psi = (next(parts) for _ in range(5))
        extra = {name: next(parts) for name in self.layout.extra}
        report, timing = next(parts), tuple(next(parts) for _ in range(self.timed))
        numbers = {name: next(parts) for name in NUMBERS}
        return Found(Rows(q, v, a_alpha, lam, psi, extra, report), timing, numbers, next(parts))

    # --- the start --------------------------------------------------------------------------------

    @abstractmethod
    def starting(self, at: StartValues, steps: Steps, doubles: list[np.ndarray]) -> tuple[Any, Any, int]:
        """The start or None, who takes the steps or None, and the status."""

    @abstractmethod
    def guess_of(self, run: Any) -> np.ndarray:
        """The multipliers of a start that an iteration has found: one more turn leads to the same."""

    @abstractmethod
    def first_rows(self, run: Any) -> tuple[np.ndarray, np.ndarray]:
        """The first row of the tape, and the first record; NaN if there is no start."""

    @abstractmethod
    def scale_of(self, run: Any) -> np.ndarray:
        """The scale of a start (n + m + p,); NaN if there is none."""

    def begun_by_xla(self, t: Any, q: Any, v: Any, args: Args, status: Any = codes.SUCCESS) -> Beginning:
        """The start as a traced computation. Its status says whether it is valid."""
        space = self.setup.system.space
        begin = starts.begin(self.setup, t, space.normalize(q), v, args)
        status = codes.not_rotations(jnp.asarray(status), space.defect(q))
        return starts.judged(begin, self.strict, status)

    @staticmethod
    def unless_failed(parts: list[Any], status: Any) -> list[Any]:
        """Parts that have NaN, also in all their derivatives, if a run has failed."""
        return [x * jnp.where(status == codes.SUCCESS, 1.0, jnp.nan) for x in parts]

    # --- derivatives ------------------------------------------------------------------------------

    @abstractmethod
    def changed(self, taken: Taken, start: np.ndarray, of_steps: np.ndarray) -> np.ndarray:
        """Changes of all records (N+1, width), from those of the start and of the steps (N, 2).

        NaN if a matrix is singular. JAX asks for such numbers too: those of the branch of a ``lax.cond`` that
        a member of a batch does not take. All inputs are zero there.
        """

    @abstractmethod
    def pulled(self, taken: Taken, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives with respect to the start and the steps (N, 2), from those to records (N+1, width)."""

    def _examine(self, taken: Taken, undefined: bool) -> None:
        """Warn, once, if derivatives are NaN because a function has none at some state of the run."""
        if undefined and not self._examined:
            self._examined = True
            undefined_at.warn(self.layout, taken, self._reason)

    def _reason(self, states: list[np.ndarray], doubles: list[np.ndarray]) -> str | None:
        """The first function that has no derivative at one of some states t, q, v (K, ...)."""
        return undefined_at.explained(self.setup, states, doubles, self.rebuild)

    def apart(self, start: np.ndarray, doubles: list[np.ndarray]) -> list[np.ndarray]:
        """The parts of a row of inputs of the start: t0, q, v, the first step, and the arguments."""
        dims = self.setup.dims
        sizes = [1, dims.size, dims.n, 1, *(np.size(x) for x in doubles)]
        return np.split(start, np.cumsum(sizes)[:-1])

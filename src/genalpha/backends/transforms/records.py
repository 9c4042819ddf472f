"""What runs under JAX transforms return, and what their derivatives need of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from genalpha.backends.native.tape import TapeSteps
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Rows
from genalpha.mechanics.system import Args
from genalpha.numerics.data import COUNTED

# The numbers that follow the parts of the records: status, steps taken and rejected, the time reached, that
# of a_α at the start, and Newton's totals.
NUMBERS = ("status", "taken", "rejected", "t_end", "t_alpha", *COUNTED)


class Found(NamedTuple):
    """The outputs of a run: its records in parts, numbers by name, and the scale.

    ``timing`` are the ends, the sizes and the errors (R, 1 + 2n) of the steps under error control.
    """

    rows: Rows
    timing: tuple[Any, ...]
    numbers: dict[str, Any]
    scale: Any

    def ends(self, t: Any) -> StepEnd:
        """The ends of steps at the times t (R,)."""
        return StepEnd(t, self.rows.q, self.rows.v, self.rows.lam, self.rows.psi)


# Args from the list of those that hold doubles.
Rebuild = Callable[[list[Any]], Args]
# Some steps of a run: the number of the first one, and the tape (n+1, W) from its start on.
Block = tuple[int, np.ndarray]


class Taken(NamedTuple):
    """A run that was computed: its start, the starts and sizes (N,) of its steps, and their tape in blocks.

    ``blocks`` returns the blocks of the tape in the order of time, or, if asked, in reverse.
    """

    t0: float
    q: np.ndarray
    v: np.ndarray
    doubles: list[np.ndarray]
    times: np.ndarray
    sizes: np.ndarray
    scale: np.ndarray
    blocks: Callable[[bool], Iterable[Block]]
    guess: np.ndarray = np.zeros(0)  # of multipliers, from which the start was found; a constant

    def steps(self, block: Block) -> tuple[slice, TapeSteps]:
        """The numbers of the steps in a block, and the steps of its tape."""
        first, table = block
        here = slice(first, first + len(table) - 1)
        return here, TapeSteps.of(table, self.times[here], self.sizes[here])

    @property
    def start(self) -> np.ndarray:
        """The inputs of the start: t0, q, v, the size of the first step, the arguments, and the guess."""
        first = self.sizes[0] if len(self.sizes) else 1.0
        parts = (self.t0, self.q, self.v, first, *self.doubles, self.guess)
        return np.concatenate([np.ravel(x) for x in parts])


# The run of a number in a batch.
RunOf = Callable[[int], Taken]

"""Which rows of a run are kept: every step, some of them, or the motion at given times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from genalpha.errors import unknown

# The quantities that ``save`` may name.
NAMES = (
    *("q", "v", "a", "a_alpha", "lam", "psi", "lam_method", "psi_method"),
    *("residuals", "reactions", "extra", "errors", "newton"),
)


_ROUNDING = 8 * np.finfo(float).eps


@dataclass(frozen=True, eq=False)
class Output:
    """Which rows are kept: every ``every``-th step and the last one, or the times ``t_eval``.

    If ``every`` is 0, only the last step is kept. ``names`` are the quantities to keep, None for all.
    ``dense`` keeps the ends of all steps for ``sol(t)``.
    """

    every: int = 1
    t_eval: Any = None
    names: tuple[str, ...] | None = None
    dense: bool = False

    def wanted(self, numbers: np.ndarray) -> np.ndarray:
        """Which of the steps with these numbers are kept, apart from the last step; 0 is the start."""
        return np.zeros(len(numbers), bool) if self.every == 0 else numbers % self.every == 0

    def rows(self, count: int) -> np.ndarray:
        """The numbers of the kept steps among ``count`` steps, including the last; 0 is the start.

        >>> Output(every=4).rows(10).tolist(), Output(every=0).rows(10).tolist()
        ([0, 4, 8, 10], [10])
        """
        numbers = np.arange(count + 1)
        return np.union1d(numbers[self.wanted(numbers)], [count])

    @property
    def complete(self) -> bool:
        """Whether ``sol(t)`` can be computed from the rows of the solution."""
        return (
            self.every == 1
            and self.t_eval is None
            and (self.names is None or {"q", "v", "lam", "psi"} <= set(self.names))
        )

    @property
    def everything(self) -> bool:
        return self.every == 1 and self.t_eval is None and self.names is None


jax.tree_util.register_dataclass(Output, data_fields=["t_eval"], meta_fields=["every", "names", "dense"])


def parse(save: Any, t_eval: Any, dense: bool, span: tuple[float, float]) -> Output:
    """Read the arguments ``save``, ``t_eval`` and ``dense_output``.

    >>> parse((10, ["q", "lam"]), None, False, (0.0, 1.0)).every
    10
    """
    every, names = 1, None
    pair = isinstance(save, tuple) and len(save) == 2 and not all(isinstance(x, str) for x in save)
    parts = save if pair else (save,)
    for part in parts:
        if isinstance(part, str) and part in ("all", "final"):
            every = 1 if part == "all" else 0
        elif isinstance(part, int | np.integer) and not isinstance(part, bool) and part > 0:
            every = int(part)
        elif isinstance(part, Sequence) and not isinstance(part, str):
            names = _names(part)
        else:
            raise ValueError(
                'save must be "all", "final", a whole number k > 0 for every k-th step, a list of quantities '
                f'such as ["q", "lam"], or a pair such as (k, ["q"]); got {save!r}'
            )
    if not isinstance(dense, bool):
        raise TypeError(f"dense_output must be True or False, got {dense!r}")
    if t_eval is not None and every != 1:
        raise ValueError("pass either t_eval or save, not both: each selects the rows")
    return Output(every, None if t_eval is None else times(t_eval, span), names, dense)


def _names(wanted: Sequence[Any]) -> tuple[str, ...]:
    for name in wanted:
        if name != "t" and name not in NAMES:
            raise unknown("quantity in save", name, NAMES)
    return tuple(sorted(set(wanted) - {"t"}))


def times(t_eval: Any, span: tuple[float, float]) -> np.ndarray:
    """The times ``t_eval``, checked and clipped to the span of a run."""
    try:
        wanted = np.array(t_eval, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"t_eval must be an array of times: {error}") from error
    if wanted.ndim != 1 or wanted.size == 0:
        raise ValueError(f"t_eval must be a one-dimensional array of times, got shape {wanted.shape}")
    if not (np.isfinite(wanted).all() and (np.diff(wanted) > 0).all()):
        raise ValueError("t_eval must increase, and must not hold NaN or infinite times")
    rounding = _ROUNDING * max(map(abs, span))  # 3 * 0.1 is larger than 0.3
    if wanted[0] < span[0] - rounding or wanted[-1] > span[1] + rounding:
        raise ValueError(
            f"t_eval reaches from {float(wanted[0])!r} to {float(wanted[-1])!r}, beyond the time span "
            f"{span}: pass times within it"
        )
    within = np.clip(wanted, *span)
    if not (np.diff(within) > 0).all():
        raise ValueError(
            "t_eval has several times that differ from an end of the time span only by rounding: keep one"
        )
    return within

"""Which rows of a run are kept: every step, some of them, or the motion at given times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from genalpha.errors import unknown
from genalpha.mechanics.system import Dims, System

# The quantities that ``save`` may name.
NAMES = (
    *("q", "v", "a", "a_alpha", "lam", "psi", "lam_method", "psi_method"),
    *("residuals", "reactions", "extra", "errors", "newton"),
)
# Those of which ``save`` may choose entries, and what their last axis counts.
ENTRIES = dict.fromkeys(("v", "a", "a_alpha", "reactions", "errors"), "v") | {
    "q": "q",
    "lam": "g",
    "lam_method": "g",
    "psi": "k",
    "psi_method": "k",
}

_ROUNDING = 8 * np.finfo(float).eps


@dataclass(frozen=True, eq=False)
class Output:
    """Which rows are kept: every ``every``-th step and the last one, or the times ``t_eval``.

    If ``every`` is 0, only the last step is kept. ``names`` are the quantities to keep, None for all;
    ``entries`` are the numbers of their entries that are kept, for quantities that are not kept whole.
    ``dense`` keeps the ends of all steps for ``sol(t)``.
    """

    every: int = 1
    t_eval: Any = None
    names: tuple[str, ...] | None = None
    dense: bool = False
    entries: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def chosen(self, name: str, found: Any) -> Any:
        """The entries to keep of a quantity. Its last axis is shorter then."""
        places = dict(self.entries).get(name)
        if places is None:
            return found
        at = np.array(places, dtype=int)
        return jax.tree.map(lambda x: x[..., at] if np.ndim(x) > 1 else x, found)

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
            and not self.entries
        )

    @property
    def everything(self) -> bool:
        return self.every == 1 and self.t_eval is None and self.names is None


jax.tree_util.register_dataclass(
    Output, data_fields=["t_eval"], meta_fields=["every", "names", "dense", "entries"]
)


def parse(save: Any, t_eval: Any, dense: bool, span: tuple[float, float]) -> Output:
    """Read the arguments ``save``, ``t_eval`` and ``dense_output``.

    >>> parse((10, ["q", "lam"]), None, False, (0.0, 1.0)).every
    10
    """
    every, names = 1, None
    entries: tuple[tuple[str, tuple[int, ...]], ...] = ()
    pair = isinstance(save, tuple) and len(save) == 2 and not all(isinstance(x, str) for x in save)
    parts = save if pair else (save,)
    for part in parts:
        if isinstance(part, str) and part in ("all", "final"):
            every = 1 if part == "all" else 0
        elif isinstance(part, int | np.integer) and not isinstance(part, bool) and part > 0:
            every = int(part)
        elif isinstance(part, Sequence | Mapping) and not isinstance(part, str):
            names = _names(part)
            entries = _entries(part) if isinstance(part, Mapping) else ()
        else:
            raise ValueError(
                'save must be "all", "final", a whole number k > 0 for every k-th step, a list of quantities '
                'such as ["q", "lam"], a dict with the nodes of each such as {"q": [0, 3]}, or a pair '
                f'such as (k, ["q"]); got {save!r}'
            )
    if not isinstance(dense, bool):
        raise TypeError(f"dense_output must be True or False, got {dense!r}")
    if t_eval is not None and every != 1:
        raise ValueError("pass either t_eval or save, not both: each selects the rows")
    return Output(every, None if t_eval is None else times(t_eval, span), names, dense, entries)


def _entries(wanted: Mapping[str, Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The numbers that are chosen of each quantity. None means all of them."""
    found = []
    for name, numbers in wanted.items():
        if numbers is None:
            continue
        if name not in ENTRIES:
            raise ValueError(f"{name} in save is kept whole, or not: pass None for it instead of {numbers!r}")
        array = np.asarray(numbers)
        if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
            raise TypeError(f"{name} in save must have a list of whole numbers, or None, got {numbers!r}")
        found.append((name, tuple(array.tolist())))
    return tuple(found)


def placed(kept: Output, system: System, dims: Dims) -> Output:
    """``kept`` with the places of entries instead of the numbers of nodes and multipliers."""
    if not kept.entries:
        return kept
    sizes, found = {"q": dims.size, "v": dims.n, "g": dims.m, "k": dims.p}, []
    for name, numbers in kept.entries:
        kind = ENTRIES[name]
        what, count, places = system.entries(kind, sizes[kind])
        wrong = [i for i in numbers if not 0 <= i < count]
        if wrong:
            raise ValueError(f"{name} in save asks for {what} {wrong[0]}, but there are {count}")
        found.append((name, tuple(int(i) for number in numbers for i in places(number))))
    return replace(kept, entries=tuple(found))


def _names(wanted: Sequence[Any] | Mapping[str, Any]) -> tuple[str, ...]:
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

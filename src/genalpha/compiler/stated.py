"""Derivatives that are stated instead of derived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Rule(NamedTuple):
    """A derivative that is stated instead of derived.

    The derivative is with respect to the nodes ``inputs``. ``partials`` returns pairs of a node and the
    derivative with respect to it; it is called when the derivative is needed. The node may be a new
    expression of ``inputs``. The nodes that ``held`` returns are stopped in this derivative only, not in
    higher derivatives. ``again`` makes the same node of other nodes, which its argument returns; without it,
    the rule is rewritten.
    """

    inputs: tuple[int, ...]
    partials: Callable[[], Sequence[tuple[int, int]]]
    held: Callable[[], Sequence[int]] = tuple
    again: Callable[[Callable[[np.ndarray], np.ndarray]], int] | None = None

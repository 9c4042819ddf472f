"""Where the numbers of a run with sparse matrices are in its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from genalpha.compiler.sparse_pattern import Order, Pattern


class Laid(NamedTuple):
    """Where arrays begin, how long they are, the end of the last one, and lists of places in them."""

    first: dict[str, int]
    lengths: dict[str, int]
    end: int
    lists: dict[str, np.ndarray]


@dataclass
class Ready:
    """The same with the matrices: their sizes and orders of pivots too, the head, and all lists in one.

    ``next`` are other pivots that an earlier run has chosen when these had become bad, ``changes`` how many
    changes of pivots came before. If none were good, the run has coupled its stages: ``couples``.
    """

    patterns: list[Pattern]
    first: dict[str, int]
    lengths: dict[str, int]
    sizes: dict[str, int]
    orders: tuple[Order, ...]
    head: np.ndarray
    lists: np.ndarray
    end: int
    next: Ready | None = None
    changes: int = 0
    couples: bool = False

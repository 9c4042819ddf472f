"""Instructions for programs that apply kernels to many copies of a thing, eight or so at a time.

Memory is one array of doubles. It begins with the slots of the central program, which has one lane. Behind it
are arrays, and the frames of each kind of thing: the slots of a group of copies, one copy in each lane. How
many copies there are, and where arrays, frames and lists of places begin, is not part of the code. It is in a
table of integers, the head, whose entries have names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from genalpha.compiler.program import Call


class Each(NamedTuple):
    """Run ``body`` for every group of a kind. ``kind`` is its name, ``stride`` the number of its slots.

    Its head entries are ``groups:kind`` and ``frames:kind``. If ``stride`` is 0, all groups use one frame.
    Else only those slots are in frames that a group needs later (see `frames`).
    """

    kind: str
    stride: int
    body: Sequence[Inside]


class Spread(NamedTuple):
    """Copy a slot of the central program to a slot of all lanes."""

    slot: int
    source: int


class Load(NamedTuple):
    """Copy the next entries of an array, one for each lane, to a slot."""

    slot: int
    array: str


class Unload(NamedTuple):
    """Copy a slot to the next entries of an array, one from each lane."""

    slot: int
    array: str


class Gather(NamedTuple):
    """Fill ``number`` slots from places in memory. The list ``places`` has one for each slot and lane."""

    slot: int
    number: int
    places: str


class Put(NamedTuple):
    """Copy ``number`` slots to places in memory."""

    slot: int
    number: int
    places: str


class Add(NamedTuple):
    """Add ``number`` slots to places in memory. Lanes may have the same place."""

    slot: int
    number: int
    places: str


class Keep(NamedTuple):
    """Copy ``number`` slots of every group to an array, one group after the other."""

    slot: int
    number: int
    array: str


class Largest(NamedTuple):
    """Raise the number in the central slot ``target`` to the largest of ``number`` slots.

    NaN counts as infinite.
    """

    slot: int
    number: int
    target: int


class Total(NamedTuple):
    """Add a slot of all lanes to the number in the central slot ``target``."""

    slot: int
    target: int


Inside = Call | Spread | Load | Unload | Gather | Put | Add | Keep | Largest | Total


class Clear(NamedTuple):
    """Set an array to zero. Its head entries are ``array`` and ``length:array``."""

    array: str


class Pick(NamedTuple):
    """Fill central slots from places in memory. The list ``places`` has one for each."""

    slot: int
    number: int
    places: str


class Copy(NamedTuple):
    """Copy central slots to an array."""

    slots: range
    array: str


class Record(NamedTuple):
    """Copy the array ``record`` to the records, to the row whose number is in the central slot ``place``."""

    place: int


class Zero(NamedTuple):
    """Set central slots to zero."""

    slot: int
    number: int


class Factor(NamedTuple):
    """Factorize a matrix, and store how it went in the central slots from ``report`` (see `sparse_text`).

    The head entries of its arrays and lists begin with its name.
    """

    matrix: str
    report: int


class Solve(NamedTuple):
    """Solve with the factors of a matrix or of its transpose: from the array ``rhs`` to ``result``."""

    matrix: str
    rhs: str
    result: str
    transposed: bool = False

"""Which slots of a kind of things are kept for every group of copies, and which are needed only for a moment.

What a loop over groups writes before it reads it need not be kept for each group. All groups use the same
memory for such slots, the scratch. So a large system has less memory to read and write, and what its kernels
compute stays in the caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from genalpha.compiler.program import Call, If, Instructions, Program, While
from genalpha.compiler.repeated import Each, Gather, Inside, Load, Spread


class Run(NamedTuple):
    """``number`` slots at places from ``place`` on; the first is number ``offset`` of a range."""

    offset: int
    place: int
    number: int


class Frames(NamedTuple):
    """The places (S,) of the slots of a kind: the first ``kept`` are in frames, the others in the scratch.

    Slots are ``read`` (S,) by some loop or not.
    """

    kept: int
    places: np.ndarray
    read: np.ndarray

    @property
    def scratch(self) -> int:
        """The number of slots in the scratch."""
        return len(self.places) - self.kept

    def runs(self, first: int, number: int) -> list[Run]:
        """Where a range of slots is, without those that are not read."""
        found: list[Run] = []
        for k in range(number):
            place = int(self.places[first + k])
            if not self.read[first + k]:
                continue
            last = found[-1] if found else Run(-1, -1, 0)
            if last.offset + last.number == k and last.place + last.number == place != self.kept:
                found[-1] = last._replace(number=last.number + 1)
            else:
                found.append(Run(k, place, 1))
        return found


def lay_out(
    programs: Mapping[str, Program], plans: Iterable[Instructions], held: Mapping[str, np.ndarray]
) -> dict[str, Frames]:
    """The frames of all kinds that have one for each group, by name.

    ``plans`` are all instructions. The slots ``held`` of a kind are read or written from elsewhere too.
    """
    loops: dict[str, list[Each]] = {}
    for plan in plans:
        for each in every_loop(plan):
            if each.stride:
                loops.setdefault(each.kind, []).append(each)
    return {kind: _frames(programs[kind], some, held.get(kind, ())) for kind, some in loops.items()}


def every_loop(plan: Instructions) -> Iterator[Each]:
    """The loops over groups in some instructions."""
    for part in plan:
        if isinstance(part, Each):
            yield part
        elif isinstance(part, If | While):
            yield from every_loop(part.body)


def _frames(program: Program, loops: list[Each], held: Iterable[int]) -> Frames:
    ever: set[int] = set()  # written by some loop
    read: set[int] = set()
    kept = {int(slot) for slot in held}
    for table in program.tables.values():
        kept.update(range(min(table.slots, default=0), max(table.slots, default=-1) + 1))
    read |= kept
    for each in loops:
        written: set[int] = set()
        for reads, writes in (step for part in each.body for step in _touched(program, part)):
            kept |= reads - written
            read |= reads
            written |= writes
        ever |= written
    kept |= set(range(program.slots)) - ever
    order = [*sorted(kept), *(slot for slot in range(program.slots) if slot not in kept)]
    places = np.empty(program.slots, np.int64)
    places[order] = np.arange(program.slots)
    return Frames(len(kept), places, np.isin(np.arange(program.slots), list(read)))


def _touched(program: Program, part: Inside) -> Iterator[tuple[set[int], set[int]]]:
    """The slots that an instruction reads, and those that it writes after that; one pair for each kernel."""
    if isinstance(part, Call):
        for name in program.pieces.get(part.kernel, [part.kernel]):
            kernel = program.kernels[name]
            yield {slot for _, slot in kernel.loads}, {slot for slot, _ in kernel.stores}
        return
    slots = set(range(part.slot, part.slot + getattr(part, "number", 1)))
    yield (set(), slots) if isinstance(part, Spread | Load | Gather) else (slots, set())


def placed(program: Program, frames: Frames) -> Program:
    """The program with its slots at their places."""
    at: Any = frames.places.tolist().__getitem__
    kernels = {
        name: kernel._replace(
            loads=tuple((i, at(slot)) for i, slot in kernel.loads),
            stores=tuple((at(slot), i) for slot, i in kernel.stores),
        )
        for name, kernel in program.kernels.items()
    }
    tables = {i: t._replace(first=at(t.first)) if t.slots else t for i, t in program.tables.items()}
    return replace(program, kernels=kernels, tables=tables, kept=frames.kept)

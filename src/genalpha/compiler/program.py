"""Straight-line kernels on one array of doubles, made from a graph. The emitters write them as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from genalpha.compiler.formula import Formula, equidistant, find
from genalpha.compiler.graph import Graph, Node
from genalpha.numerics.host import HostCall


class Call(NamedTuple):
    """Run a kernel."""

    kernel: str


class If(NamedTuple):
    """If the number in slot ``flag`` is not zero, run ``body``."""

    flag: int
    body: Instructions


class While(NamedTuple):
    """While the number in slot ``flag`` is not zero, run ``body``."""

    flag: int
    body: Instructions


# Call, If, While, StoreRow, NextTime, and those of `repeated`.
Instructions = Sequence[Any]


class Kernel(NamedTuple):
    """Load slots, compute, store slots. In this order, the same slot may be read and written.

    Tables are read and written while it computes.

    ``loads`` are pairs of a node and its slot, ``body`` lists nodes in order, ``stores`` are pairs of a slot
    and its node.
    """

    name: str
    loads: tuple[tuple[int, int], ...]
    body: tuple[int, ...]
    stores: tuple[tuple[int, int], ...]

    @property
    def operations(self) -> int:
        return len(self.body)


class Table(NamedTuple):
    """Where the ``size`` entries of a table are: in the slots first, first + step, ...

    If they are known, they are in ``numbers`` instead. If ``copied``, a kernel writes them into the slots, by
    a loop if there is a ``formula``; otherwise they are inputs, which are read where they are.
    """

    size: int
    first: int = 0
    step: int = 1
    numbers: np.ndarray | None = None
    copied: bool = False
    formula: Formula | None = None

    @property
    def slots(self) -> range:
        size = self.size if self.numbers is None else 0
        return range(self.first, self.first + self.step * size, self.step)

    def within(self, places: dict[int, int]) -> bool:
        """Whether the slots are in an array, at the same distances; ``places`` are those of slots in it."""
        first = places.get(self.first)
        return first is not None and all(places.get(s) == first + s - self.first for s in self.slots)


@dataclass(frozen=True)
class Program:
    """Kernels and the nodes they compute. It is immutable.

    ``slots`` is the size of the array that the kernels work on. ``tables`` says where tables are. If a kernel
    was cut, ``pieces`` lists the names of its parts. The slots from ``kept`` on are in another array, the
    scratch (see `frames`). ``hosts`` are the Python functions that its nodes "host" call. Kernels whose
    names are in ``rare`` run rarely, and need not be fast.
    """

    nodes: tuple[Node, ...]
    constants: dict[int, float | bool]
    kernels: dict[str, Kernel]
    slots: int
    tables: dict[int, Table]
    pieces: dict[str, list[str]] = field(default_factory=dict)
    kept: int | None = None
    hosts: dict[int, HostCall] = field(default_factory=dict)
    rare: frozenset[str] = frozenset()

    def tables_of(self, kernel: Kernel) -> set[int]:
        """The tables that a kernel reads."""
        if not self.tables:
            return set()
        return {j for i in kernel.body for j in self.nodes[i].inputs if j in self.tables}


class StoreRow(NamedTuple):
    """Copy the slots ``row`` to the records, to the row whose number is in slot ``place``."""

    row: range
    place: int


class NextTime(NamedTuple):
    """Add one to the number in slot ``place``, and copy the entry with that number in the list of times to
    ``slot``."""

    slot: int
    place: int


class Loop(NamedTuple):
    """The steps of a run: what is done in each, and where its data are.

    ``once`` is a kernel, or instructions, before the first of them. The run continues while slot ``alive`` is
    not zero. ``row`` is the range of slots that make a record. The
    slots ``listed`` are set to t_n and h before each step, and after it a record is written if a list has a
    row for it. If ``listed`` is None, the body handles times and records.
    """

    once: str | Instructions
    body: Instructions
    alive: int
    row: range
    listed: tuple[int, int] | None


class Map(NamedTuple):
    """A kernel applied to rows of an array: the slots of its inputs, and those of its results."""

    kernel: str
    inputs: range
    outputs: range


class Read(NamedTuple):
    """Columns of an array, from ``column`` on, that go to slots."""

    array: int
    column: int
    slots: range


class AddTo(NamedTuple):
    """Add the number in slot ``value`` to the sum whose place is in slot ``place``."""

    value: int
    place: int


class Walk(NamedTuple):
    """A kernel applied to one row after the other of several arrays. Slots keep their numbers between rows.

    Before the kernel, ``reads`` load a row of arrays with so many columns (``widths``). After it, the slots
    ``outputs`` are a row of results, and ``adds`` add to an array of ``sums`` numbers. On a GPU, all systems
    share the array ``common``.
    """

    kernel: str
    widths: tuple[int, ...]
    reads: tuple[Read, ...]
    outputs: range
    adds: tuple[AddTo, ...]
    sums: int
    common: int


def reads(array: int, columns: Iterable[int], slots: Iterable[int]) -> list[Read]:
    """The columns of an array that go to slots, as few reads of adjacent columns and slots."""
    found: list[Read] = []
    for column, slot in zip(map(int, columns), map(int, slots), strict=True):
        last = found[-1] if found else None
        if last is not None and (column, slot) == (last.column + len(last.slots), last.slots.stop):
            found[-1] = last._replace(slots=range(last.slots.start, slot + 1))
        else:
            found.append(Read(array, column, range(slot, slot + 1)))
    return found


@dataclass
class Builder:
    """Assigns slots and makes kernels. Every input has a level: how often it changes.

    Values that depend on lower levels only are computed by the kernel of the lower level, and stored in slots
    for the others. So what is the same for all iterations of a step is computed once per step, and what is
    the same for all steps is computed once per run.
    """

    graph: Graph
    slots: int = 0
    slot_of: dict[int, int] = field(default_factory=dict)
    level_of: dict[int, int] = field(default_factory=dict)
    wanted: list[tuple[str, int, dict[int, int]]] = field(default_factory=list)
    tables: dict[int, Table] = field(default_factory=dict)
    _levels: list[int] = field(default_factory=list)

    def slot(self, count: int) -> np.ndarray:
        """New slots."""
        self.slots += count
        return np.arange(self.slots - count, self.slots)

    def inputs(self, slots: np.ndarray, level: int) -> np.ndarray:
        """New input nodes, whose values are in these slots."""
        ids = self.graph.inputs(slots.shape)
        self.slot_of.update(zip(ids.reshape(-1).tolist(), slots.reshape(-1).tolist(), strict=True))
        self.level_of.update(dict.fromkeys(ids.reshape(-1).tolist(), level))
        return ids

    def kernel(self, name: str, level: int, *outputs: tuple[np.ndarray, np.ndarray]) -> None:
        """Request a kernel that stores nodes in slots."""
        stores: dict[int, int] = {}
        for slots, ids in outputs:
            stores.update(zip(np.ravel(slots).tolist(), np.ravel(ids).tolist(), strict=True))
        self.wanted.append((name, level, stores))

    def levels(self) -> list[int]:
        """For each node the highest level of the inputs it depends on; −1 for constants."""
        levels, nodes = self._levels, self.graph.nodes
        for k in range(len(levels), len(nodes)):
            op, inputs, _ = nodes[k]
            if op == "input":
                levels.append(self.level_of.get(k, -1))  # an input without a level counts as constant
            elif len(inputs) == 2:
                a, b = levels[inputs[0]], levels[inputs[1]]
                levels.append(a if a > b else b)
            else:
                levels.append(max((levels[j] for j in inputs), default=-1))
        return levels

    def table(self, i: int) -> Table:
        """Where a table is. Inputs in equidistant slots are read there; others get slots of their own."""
        if i not in self.tables:
            entries, numbers = self.graph.nodes[i].inputs, self.graph.contents.get(i)
            if numbers is not None:
                self.tables[i] = Table(len(numbers), numbers=numbers)
            elif i in self.graph.hosts:  # results, and after them inputs
                size = self.graph.hosts[i].count + len(entries)
                self.tables[i] = Table(size, int(self.slot(size)[0]), copied=True)
            elif (place := equidistant(entries, self.slot_of)) is not None:
                self.tables[i] = Table(len(entries), *place)
            else:
                formula, first = find(self.graph, entries, self.slot_of), int(self.slot(len(entries))[0])
                self.tables[i] = Table(len(entries), first, copied=True, formula=formula)
        return self.tables[i]

    def build(self, hoisting: dict[int, str]) -> Program:
        """The program with all kernels; ``hoisting`` names the kernel of each lower level."""
        hoisted: dict[int, int] = {}  # the slots of numbers, and the first slots of tables
        kernels = {}
        for name, level, stores in sorted(self.wanted, key=lambda k: -k[1]):
            lower, tables = [low for low in hoisting if low < level], []
            if name in hoisting.values():
                mine = next(low for low, kernel in hoisting.items() if kernel == name)
                here = [i for i in hoisted if self.levels()[i] == mine]
                tables = [i for i in here if self.graph.nodes[i].kind == "t"]
                stores = stores | {hoisted[i]: i for i in here if i not in self.tables}
            kernels[name] = self._cut(name, stores, lower, hoisted, tables)
        nodes, constants = list(self.graph.nodes), dict(self.graph.constants)
        for i, place in self.tables.items():
            if place.formula is not None:
                nodes[i] = nodes[i]._replace(inputs=place.formula.needs)
        hosts = {i: call for i, call in self.graph.hosts.items() if i in self.tables}
        return Program(tuple(nodes), constants, kernels, self.slots, dict(self.tables), hosts=hosts)

    def _cut(
        self,
        name: str,
        stores: dict[int, int],
        lower: Sequence[int],
        hoisted: dict[int, int],
        tables: Sequence[int],
    ) -> Kernel:
        """A kernel that fills slots, and tables for other kernels."""
        nodes, constants, levels, slot_of = (
            self.graph.nodes,
            self.graph.constants,
            self.levels(),
            self.slot_of,
        )
        loads: dict[int, int] = {}
        body: set[int] = set()
        stack: list[int] = [*stores.values(), *tables]
        while stack:
            i = stack.pop()
            if i in body or i in loads or i in constants:
                continue
            _, inputs, kind = nodes[i]
            if kind == "t":
                copied = self.table(i).copied
                self.levels()  # a formula of the table may be new
                if not copied:
                    continue
            if i in slot_of:
                loads[i] = slot_of[i]
            elif levels[i] in lower and kind == "t":
                hoisted[i] = self.table(i).first
            elif levels[i] in lower and kind == "f":
                if i not in hoisted:
                    hoisted[i] = int(self.slot(1)[0])
                loads[i] = hoisted[i]
            else:
                body.add(i)
                formula = self.tables[i].formula if kind == "t" else None
                stack.extend(inputs if formula is None else formula.needs)
        return Kernel(name, tuple(sorted(loads.items())), tuple(sorted(body)), tuple(sorted(stores.items())))


def sharable(program: Program, slots: Iterable[int]) -> list[int]:
    """Those of the slots that tables are read from, and that can be in an array of their own.

    No table is partly in this array.
    """
    rest = set(slots)
    inputs = [table for table in program.tables.values() if rest and table.slots and not table.copied]
    rest &= {slot for table in inputs for slot in table.slots}
    while True:
        places = {slot: k for k, slot in enumerate(sorted(rest))}
        apart = [t for t in inputs if not rest.isdisjoint(t.slots) and not t.within(places)]
        if not apart:
            return sorted(rest)
        rest.difference_update(apart[0].slots)


# The most operations in one compiled function.
PIECE = 1500


def cut(program: Program, most: int) -> Program:
    """The program with kernels of at most ``most`` operations.

    Compilers need more than twice the time for twice the code in one function. Values that a later piece
    needs from an earlier one are stored in new slots.
    """
    kernels: dict[str, Kernel] = {}
    names: dict[str, list[str]] = {}
    slots = program.slots
    for name, kernel in program.kernels.items():
        count = -(-len(kernel.body) // most) or 1
        size = max(1, -(-len(kernel.body) // count))
        parts = [kernel.body[k : k + size] for k in range(0, len(kernel.body), size)] or [()]
        # Slots that no part reads can be stored at once, all others only after every part has read them.
        read = {slot for _, slot in kernel.loads}
        read.update(*(program.tables[i].slots for i in program.tables_of(kernel)))
        early = {i: slot for slot, i in kernel.stores if slot not in read}
        late = [(slot, i) for slot, i in kernel.stores if early.get(i) != slot]
        computed = set(kernel.body)
        late += [(slot, i) for i, slot in early.items() if i not in computed]
        crossing = _crossing(program.nodes, parts, [i for _, i in late])
        places = dict(kernel.loads) | {i: slot for i, slot in early.items() if i in computed}
        fresh = [i for i in crossing if i not in places]
        places |= {i: slots + k for k, i in enumerate(fresh)}
        slots += len(fresh)
        names[name] = []
        for k, part in enumerate(parts):
            stores = [(places[i], i) for i in part if i in early or i in crossing]
            stores += late if k == len(parts) - 1 else ()
            wanted = {j for i in part for j in program.nodes[i].inputs} | {i for _, i in stores}
            loads = [(i, places[i]) for i in sorted(wanted - set(part)) if i in places]
            piece = name if len(parts) == 1 else f"{name}_{k}"
            kernels[piece] = Kernel(piece, tuple(loads), tuple(part), tuple(stores))
            names[name].append(piece)
    return replace(program, kernels=kernels, slots=slots, pieces=names)


def _crossing(
    nodes: Sequence[Node], parts: Sequence[Sequence[int]], outputs: Iterable[int]
) -> dict[int, None]:
    """The nodes that a later part needs. Tables are in memory already."""
    part_of = {i: k for k, part in enumerate(parts) for i in part}
    found = {i: None for i in outputs if part_of.get(i, len(parts)) < len(parts) - 1}
    for k, part in enumerate(parts):
        needed = (j for i in part for j in nodes[i].inputs if part_of.get(j, k) < k)
        found |= {j: None for j in needed if nodes[j].kind != "t"}
    return found

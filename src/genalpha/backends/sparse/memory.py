"""The memory of a run with sparse matrices: one array of doubles, one of integers, and the head."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from genalpha.backends.native.code import aligned
from genalpha.backends.sparse import points, sources
from genalpha.backends.sparse.code import SparseCode
from genalpha.backends.sparse.kinds import Kind
from genalpha.backends.sparse.laid import Laid, Ready
from genalpha.backends.sparse.models import BlockPlace, KindModel, counts, length, of_stage, places_of
from genalpha.backends.sparse.sources import Sources
from genalpha.compiler.sparse_pattern import Order, Pattern, address, analysed, patterned
from genalpha.mechanics.system import Dims
from genalpha.numerics.data import COUNTED, Scale

_LINE = 8  # arrays begin at multiples of this many doubles
# Lists of places, and patterns of matrices, with more unknowns are not kept for other runs.
KEPT = 100_000
# The most changes of pivots that are kept for other runs.
CHANGES = 32


class SparseMemory:
    """Numbers of a run, and where they are.

    ``w`` are the numbers: first the slots of the central program, last the factors of the matrix. ``lists``
    are places in it, ``head`` says where arrays and lists begin.
    """

    def __init__(self, code: SparseCode, dims: Dims) -> None:
        self.code, self.dims = code, dims
        self.sizes: dict[str, int] = {}  # of the matrices
        self.orders: tuple[Order, ...] = ()  # of their pivots
        self.head, self.lists = np.zeros(0, np.int64), np.zeros(0, np.int32)  # not written yet
        self.laid = self._kept("laid", self._lay_out)
        self.first, self.lengths, self.own_end, self._lists = self.laid
        self.ready: Ready | None = None  # the pivots in use
        ready = code.kept.get("ready")
        self.w = aligned(self.own_end if ready is None else ready.end)

    def _kept(self, name: str, make: Callable[[], Any]) -> Any:
        """What other runs with this code may use, if it is not too large."""
        kept = self.code.kept
        if name in kept:
            return kept[name]
        found = make()
        if length(self.code.blocks.unknowns) <= KEPT:
            kept[name] = found
        return found

    def _lay_out(self) -> Laid:
        """Find places for all arrays but those of matrices, and write the lists of places."""
        code, dims = self.code, self.dims
        self.first, self.lengths, self._lists = {}, {}, {}
        self._end = -(-code.central.program.slots // _LINE) * _LINE
        blocks, (size, n, m, p) = code.blocks, dims
        extra = sum({"v": n, "g": m, "k": p}[b.kind] for b in blocks.extras)
        unknowns, rows = length(blocks.unknowns), length(blocks.rows)
        motion, counts_ = size + 2 * n + m + p + extra, len(COUNTED)
        self._array("record", motion + counts_ + (3 + 2 * n if code.controlled else 0))
        first = self.first["record"] + motion
        self.first |= {"counts": first, "timing": first + counts_, "errors": first + counts_ + 3}
        if code.taped:
            self._array("past", len(code.central.times) - 2)
        self._array("a_old", n)
        self._array("x", unknowns)
        if code.taped:  # records go on up to here
            for kind in code.kinds:
                self._array(f"own:{kind.name}", kind.model.copies * len(kind.own_slots))
            self.lengths["record"] = self._end - self.first["record"]
        for name in ("guess", "p0", "p1", "p2", "d"):
            self._array(name, unknowns)
        self._array("r", rows)
        self._array("trash", 1)
        for kind in code.kinds:
            numbers = kind.model.groups * kind.model.lanes
            self._array(f"frames:{kind.name}", numbers * code.frames[kind.name].kept)
            self._array(f"entries:{kind.name}", numbers * len(kind.entries))
        self._more_arrays()
        scratch = [code.frames[kind.name].scratch * kind.model.lanes for kind in code.kinds]
        self._array("scratch", max(scratch))
        self._write_lists()
        return Laid(self.first, self.lengths, self._end, self._lists)

    def _more_arrays(self) -> None:
        self._array("frames:stream", self.code.stream.slots * self.code.width)
        for name, count in points.arrays(self.code.kinds).items():
            self._array(name, count)

    def _array(self, name: str, count: int) -> None:
        self.first[name], self.lengths[name] = self._end, count
        self._end += -(-count // _LINE) * _LINE

    # --- parts of the memory ----------------------------------------------------------------------

    def array(self, name: str) -> np.ndarray:
        first = self.first[name]
        return self.w[first : first + self.lengths[name]]

    def slots(self, places: Any) -> np.ndarray:
        """Slots of the central program."""
        return self.w[places]

    def frames(self, kind: Kind) -> np.ndarray:
        """The frames of a kind (groups, slots, lanes)."""
        kept = self.code.frames[kind.name].kept
        return self.array(f"frames:{kind.name}").reshape(-1, kept, kind.model.lanes)

    def fill(self, kind: Kind, slots: np.ndarray, values: np.ndarray) -> None:
        """Write values (K, ...) of all copies into slots (...) of their frames."""
        if slots.size:
            flat = np.asarray(values, dtype=float).reshape(kind.model.copies, -1)
            self.frames(kind)[:, self._places(kind, slots)] = self._grouped(kind, flat, flat[-1])

    def read(self, kind: Kind, slots: np.ndarray) -> np.ndarray:
        """The numbers of all copies (K, S) in some slots."""
        return self._by_copy(kind, self.frames(kind)[:, self._places(kind, slots)])

    def lanes(self, kind: Kind, slot: np.ndarray) -> np.ndarray:
        """One slot of all groups (groups, lanes), to be read or written."""
        return self.frames(kind)[:, self._places(kind, slot)[0]]

    def _places(self, kind: Kind, slots: np.ndarray) -> np.ndarray:
        """The places of slots in a frame."""
        return self.code.frames[kind.name].places[slots.reshape(-1)]

    def _entries(self, kind: Kind) -> np.ndarray:
        """The entries of the matrices of all copies (K, E), after one of the plans that keep them."""
        shape = (kind.model.groups, len(kind.entries), kind.model.lanes)
        return self._by_copy(kind, self.array(f"entries:{kind.name}").reshape(shape))

    @staticmethod
    def _by_copy(kind: Kind, grouped: np.ndarray) -> np.ndarray:
        """Numbers (groups, S, lanes) as (K, S)."""
        groups, slots, lanes = grouped.shape
        return grouped.swapaxes(1, 2).reshape(groups * lanes, slots)[: kind.model.copies]

    @staticmethod
    def _grouped(kind: Kind, rows: np.ndarray, padding: Any) -> np.ndarray:
        """Rows (K, E) of copies as (groups, E, lanes)."""
        lanes = kind.model.lanes
        missing = -len(rows) % lanes
        full = np.concatenate([rows, np.broadcast_to(padding, (missing, rows.shape[1]))])
        return full.reshape(len(full) // lanes, lanes, rows.shape[1]).swapaxes(1, 2)

    # --- lists ------------------------------------------------------------------------------------

    def _write_lists(self) -> None:
        code, first, n = self.code, self.first, self.dims.n
        self._lists["seen"] = (first["record"] + code.central.watched.places).astype(np.int32)
        for kind in code.kinds:
            at = kind.model.places
            self._read_lists(kind)
            rows = first["r"] + places_of(code.blocks.rows, at)
            for stage, used in enumerate(kind.used):
                self._list(kind, f"rows{stage}", [rows[:, used]], first["trash"])
            _, motion, forces = self._of_record(kind, "record", "a_old")
            self._list(kind, "motion", motion, first["trash"])
            errors = [first["errors"] + at.v, first["errors"] + n + at.v]
            self._list(kind, "errors", errors, first["trash"])
            self._list(kind, "d", [first["d"] + places_of(code.blocks.unknowns, at)], None)
            for stage, used in enumerate(kind.disturbed):
                self._list(kind, f"disturbed{stage}", [rows[:, used]], first["trash"])
            self._list(kind, "forces", forces, first["trash"])
        for kind, name, places in points.lists(code.kinds, first, n):
            self._list(kind, name, [places], first["trash"] if kind.is_node else None)

    def _read_lists(self, kind: Kind) -> None:
        """Where a kind reads what its step comes from, and its unknowns."""
        at, name, code = kind.model.places, kind.name, self.code
        self._list(kind, "carry", self._of_record(kind, "record", "a_old")[0], None)
        self._list(kind, "x", [self.first["x"] + places_of(code.blocks.unknowns, at)], None)
        if code.taped:
            own = np.arange(self.lengths[f"own:{name}"]).reshape(kind.model.copies, -1)
            self._list(kind, "own", [self.first[f"own:{name}"] + own], self.first["trash"])

    def _of_record(self, kind: Kind, record: str, old: str) -> tuple[list[np.ndarray], ...]:
        """The places of a kind in an array with the form of a record, and in one with that of a_old.

        They are those of what it carries, of the motion after a step, and of the forces.
        """
        size, n, m, p = self.dims
        at, begin = kind.model.places, self.first[record]
        q, v, a, g, k = np.cumsum([begin, size, n, n, m])
        extra, begin = {}, int(k) + p
        for block in self.code.blocks.extras:
            extra[block] = begin + getattr(at, block.kind)
            begin += {"v": n, "g": m, "k": p}[block.kind]
        adjusted = len(kind.carried) > at.q.shape[1] + 2 * at.v.shape[1]
        carry = [q + at.q, v + at.v, a + at.v, *([self.first[old] + at.v] if adjusted else [])]
        motion = [*carry, *(places for block, places in extra.items() if block.kind == "v")]
        forces = [g + at.g, k + at.k, *(places for block, places in extra.items() if block.kind != "v")]
        return carry, motion, forces

    def _list(self, kind: Kind, name: str, parts: list[np.ndarray], padding: int | None) -> None:
        """A list of places for the slots of all copies; without ``padding`` the last copy is repeated."""
        rows = np.concatenate(parts, axis=1)
        padded = self._grouped(kind, rows, rows[-1] if padding is None else padding)
        self._lists[f"{kind.name}:{name}"] = padded.astype(np.int32)

    # --- the matrix -------------------------------------------------------------------------------

    def use(self, patterns: list[Pattern]) -> None:
        """Make room for the matrices of all stages and their factors, and write the head."""
        ready = self.code.kept.get("ready")
        if ready is None or ready.patterns is not patterns:
            ready = self._with(patterns)
            if patterns is self.code.patterns and self.lengths["x"] <= KEPT:
                self.code.kept["ready"] = ready
        self.go_on(ready)

    def go_on(self, ready: Ready) -> None:
        """Use these pivots from now on."""
        fresh, self.ready = not self.orders, ready
        self.first, self.lengths, self.sizes = ready.first, ready.lengths, ready.sizes
        self.orders, self.head, self.lists = ready.orders, ready.head, ready.lists
        if len(self.w) != ready.end or not fresh:
            w = aligned(ready.end)
            w[: self.own_end] = self.w[: self.own_end]
            self.w = w

    def other_pivots(self) -> None:
        """Choose pivots for the entries that are in the frames. Raises :class:`Singular`."""
        before = self.ready
        self.use(self.analyse())
        assert self.ready is not None
        if before is not None:
            self.ready.changes = before.changes + 1
            if self.ready.changes <= min(CHANGES, KEPT // self.lengths["x"]):
                before.next = self.ready

    def known_pivots(self) -> bool:
        """Go on with the pivots that an earlier run has chosen in place of these, if there are any."""
        found = None if self.ready is None else self.ready.next
        if found is not None:
            self.go_on(found)
        return found is not None

    def _with(self, patterns: list[Pattern]) -> Ready:
        """The memory with these matrices."""
        code = self.code
        self.first, self.lengths, self._end, self._lists = map(copy.copy, self.laid)
        self.sizes = {}
        self.orders = tuple((pattern.row, pattern.column) for pattern in patterns)
        places: dict[str, list[np.ndarray]] = {kind.name: [] for kind in code.kinds}
        for stage, pattern in enumerate(patterns):
            name = f"lu{stage}"
            sizes = {"a": pattern.ap[-1], "l": pattern.lp[-1], "u": pattern.up[-1]}
            size = len(pattern.row)
            for part, count in {**sizes, "inv": size, "x": size}.items():
                self._array(f"{name}:{part}", int(count))
            done = 0
            for kind in code.kinds:
                shape = (kind.model.copies, len(kind.patterns[stage]))
                count = shape[0] * shape[1]
                here = pattern.places[done : done + count].reshape(shape) + self.first[f"{name}:a"]
                places[kind.name].append(here)
                done += count
            for part in ("ap", "ai", "lp", "li", "up", "ui"):
                self._lists[f"{name}:{part}"] = getattr(pattern, part)
            rows, columns = self._of_stage(stage)
            self._lists[f"{name}:row"], self._lists[f"{name}:column"] = (
                rows[pattern.row],
                columns[pattern.column],
            )
            self.sizes[f"{name}:n"] = size
        for kind in code.kinds:
            self._list(kind, "entries", places[kind.name], self.first["trash"])
        self._write_head()
        return Ready(
            patterns, self.first, self.lengths, self.sizes, self.orders, self.head, self.lists, self._end
        )

    def _of_stage(self, stage: int) -> list[np.ndarray]:
        """The places of the rows and the unknowns of a stage."""
        return [self.compact(of_stage(b, stage)) for b in (self.code.blocks.rows, self.code.blocks.unknowns)]

    def compact(self, blocks: tuple[BlockPlace, ...]) -> np.ndarray:
        """The places of the entries that are not padding."""
        of = counts(self.dims)
        return np.concatenate([b.first + np.arange(of[b.kind]) for b in blocks]).astype(np.int32)

    def _write_head(self) -> None:
        width, code = self.code.width, self.code
        head = dict(self.first) | {f"length:{name}": count for name, count in self.lengths.items()}
        head |= self.sizes
        for kind in code.kinds:
            head[f"groups:{kind.name}"] = kind.model.groups
        blocks = [(f"block:{k}", b) for k, b in enumerate(code.blocks.unknowns)]
        head["groups:unknowns"] = length(code.blocks.unknowns) // width
        for stage in range(code.blocks.stages):
            rows = of_stage(code.blocks.rows, stage)
            count = sum(block.length for block in rows)
            head[f"r:{stage}"], head[f"length:r:{stage}"] = self.first["r"] + rows[0].first, count
            head[f"groups:rows:{stage}"] = count // width
            head[f"frames:rows:{stage}"] = self.first.get("frames:stream", 0)
        for k, (name, block) in enumerate(blocks):
            head[f"groups:{name}"] = block.length // width
            head[f"x:{k}"], head[f"d:{k}"] = self.first["x"] + block.first, self.first["d"] + block.first
        for name in ("unknowns", *(name for name, _ in blocks)):
            head[f"frames:{name}"] = self.first.get("frames:stream", 0)
        begin, arrays = 0, []
        for name, array in self._lists.items():
            pad = -begin % 16
            arrays += [np.zeros(pad, np.int32), array.reshape(-1)]
            head[name] = begin + pad
            begin += pad + array.size
        self.lists = np.concatenate(arrays)
        entries = [head.get(name, 0) for name in code.entries_of_head]  # there may be no matrix yet
        self.head = np.array(entries, np.int64)

    def analyse(self, orders: Sequence[Order] = ()) -> list[Pattern]:
        """Orders of pivots for the entries that are in the frames, for the matrix of each stage.

        If orders are given, these are used.
        """
        code = self.code
        make = lambda k, *matrix: patterned(orders[k], *matrix[:3]) if orders else analysed(*matrix)
        values = [self._entries(kind) for kind in code.kinds]
        done = [0] * len(values)
        found = []
        for stage in range(code.blocks.stages):
            numbers = []
            for blocks, at in zip(
                (code.blocks.rows, code.blocks.unknowns), self._of_stage(stage), strict=True
            ):
                number = np.full(length(blocks), -1, np.int32)
                number[at] = np.arange(len(at))
                numbers.append(number)
            size, entries = len(at), []
            for k, kind in enumerate(code.kinds):
                pattern, places = kind.patterns[stage], kind.model.places
                row = numbers[0][places_of(code.blocks.rows, places)][:, pattern[:, 0]]
                column = numbers[1][places_of(code.blocks.unknowns, places)][:, pattern[:, 1]]
                here = values[k][:, done[k] : done[k] + len(pattern)]
                done[k] += len(pattern)
                entries.append([x.reshape(-1) for x in (row, column, here)])
            found.append(make(stage, size, *map(np.concatenate, zip(*entries, strict=True))))
        return found

    def run(self, name: str) -> None:
        """Run instructions outside of the loop of steps."""
        if not len(self.head):
            self._write_head()
        self.code.plans[name](address(self.w), address(self.head), address(self.lists))

    def fill_constants(self, models: list[KindModel], scale: Scale, numbers: np.ndarray) -> None:
        """Write the scale and the ``numbers`` of all copies of the models into their frames."""
        find = lambda: sources.of_constants(self.code.kinds, models, self.dims)
        self._put("constants", find, np.concatenate([*scale, numbers]))

    def fill_own(self, own: np.ndarray) -> None:
        """Write the method's own variables of all copies, one kind after the other, into their frames."""
        if own.size:
            self._put("own", lambda: sources.of_own(self.code.kinds), own)

    def fill_tolerances(self, values: np.ndarray) -> None:
        """Write the tolerances (4, n) into the frames of nodes."""
        find = lambda: sources.of_tolerances(self.code.kinds, self.dims)
        self._put("tolerances", find, values.reshape(-1))

    def _put(self, name: str, find: Callable[[], list[Sources]], values: np.ndarray) -> None:
        """Write some of the ``values`` into frames."""
        targets, places = self._kept(name, lambda: self._scattered(find()))
        self.w[targets] = values[places]

    def _scattered(self, found: list[Sources]) -> tuple[np.ndarray, np.ndarray]:
        """The places in memory of slots of all copies, and those of their values."""
        targets, values = [np.zeros(0, int)], [np.zeros(0, int)]
        for kind, slots, places in found:
            if slots.size:
                frames = self.first[f"frames:{kind.name}"] + np.arange(self.lengths[f"frames:{kind.name}"])
                frames = frames.reshape(-1, self.code.frames[kind.name].kept, kind.model.lanes)
                targets.append(frames[:, self._places(kind, slots)].reshape(-1))
                values.append(self._grouped(kind, places, places[-1]).reshape(-1))
        return np.concatenate(targets), np.concatenate(values)

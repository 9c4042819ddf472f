"""Kernels in LLVM's language, for one system, or for several in the lanes of a vector."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from genalpha.compiler.arithmetic import FUNCTIONS, SEARCHES
from genalpha.compiler.branches import Branch, StoreNode, arranged, structured
from genalpha.compiler.fused import Fusions
from genalpha.compiler.graph import CallsHost
from genalpha.compiler.machine import host_symbol
from genalpha.compiler.objects import RARELY
from genalpha.compiler.program import Kernel, Program
from genalpha.compiler.search_text import SEARCH, SIDES

_ARITHMETIC = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv"}
_PLAIN = {op: text.removesuffix(" contract") for op, text in _ARITHMETIC.items()}
_COMPARISONS = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une"}
_INTRINSICS = {
    "abs": "fabs",
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "rint": "rint",
    "sin": "sin",
    "cos": "cos",
    "exp": "exp",
    "exp2": "exp2",
    "log": "log",
    "pow": "pow",
    "fma": "fma",
}
_SPECIAL = {"max", "min", "neg", *_ARITHMETIC, *_INTRINSICS}
_LIBRARY = {op for op in FUNCTIONS if op not in _SPECIAL}


class KernelEmitter:
    """Text for vectors of ``lanes`` doubles, or for plain doubles.

    ``prefix`` distinguishes the tables of several programs. If kernels are ``masked``, they change only some
    lanes. The slots ``common`` hold one number for all
    lanes. They follow after all other slots.
    """

    def __init__(
        self,
        program: Program,
        lanes: int,
        prefix: str = "",
        common: Sequence[int] = (),
        masked: bool = True,
    ) -> None:
        self.program, self.lanes, self.prefix, self.masked = program, lanes, prefix, masked and lanes > 1
        self.common = {} if lanes == 1 else {slot: k for k, slot in enumerate(sorted(common))}
        self.number = "double" if lanes == 1 else f"<{lanes} x double>"
        self.boolean = "i1" if lanes == 1 else f"<{lanes} x i1>"
        self.suffix = "f64" if lanes == 1 else f"v{lanes}f64"
        self.lines: list[str] = []
        self.used: set[str] = set()
        self.searches: dict[str, str] = {}  # functions that are called, by name
        self.hosts: set[str] = set()  # names of Python functions that are called
        self.loaded: dict[int, int] = {}  # the slots of nodes that the kernel loads
        self.arithmetic = _ARITHMETIC  # with "contract" the compiler decides what is fused
        self.fusions: Fusions | None = None  # of this kernel
        self._names: dict[int, str] = {}  # of nodes, as far as they were asked for
        self.labels = 0

    # --- small things ---------------------------------------------------------------------------

    def constant(self, value: float | bool) -> str:
        if isinstance(value, bool):
            text, kind = ("true" if value else "false"), "i1"
        else:
            text, kind = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}", "double"
        return text if self.lanes == 1 else f"splat ({kind} {text})"

    def name(self, i: int) -> str:
        found = self._names.get(i)
        if found is None:
            constants = self.program.constants
            found = self._names[i] = self.constant(constants[i]) if i in constants else f"%n{i}"
        return found

    def kind(self, i: int) -> str:
        return self.number if self.program.nodes[i].kind == "f" else self.boolean

    def say(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def label(self) -> str:
        self.labels += 1
        return f"b{self.labels}"

    def mark(self, label: str) -> None:
        self.lines.append(f"{label}:")

    # --- kernels --------------------------------------------------------------------------------

    def kernel(self, kernel: Kernel) -> None:
        """A function of the array of slots, and of a mask: the lanes that it may change."""
        mask = f", {self.boolean} %mask" if self.masked else ""
        scratch = "" if self.program.kept is None else ", ptr noalias %scratch"
        self.lines.append(f"define internal void @{kernel.name}(ptr noalias %w{scratch}{mask}) nounwind {{")
        if kernel.name in self.program.rare:
            self.lines.append(RARELY)
        program, self.block, self.loaded = self.program, "0", dict(kernel.loads)
        body = structured(program.nodes, kernel.body, [i for _, i in kernel.stores])
        stores = [StoreNode(*store) for store in kernel.stores]
        parts: list[int | Branch | StoreNode] = [*self.loaded, *body, *stores]
        if program.kept is not None:  # a kind of thing; others have the same bits with and without lanes
            tables = (program.tables[i] for i in program.tables_of(kernel))
            read = {*self.loaded.values(), *(slot for table in tables for slot in table.slots)}
            parts = arranged(program.nodes, body, self.loaded, stores, read)
            rare = kernel.name in program.rare  # never optimized: a fused operation would bring nothing
            self.arithmetic, self.fusions = _PLAIN, None if rare else Fusions(program.nodes, kernel)
        self.body(parts)
        self.say("ret void")
        self.lines.append("}")

    def load(self, i: int, slot: int) -> None:
        self._names[i] = f"%n{i}"  # in another kernel it may have been the name of what it is a copy of
        if slot in self.common:
            self.spread(i, slot)
            return
        flag = self.program.nodes[i].kind == "b"
        self.say(f"%a{i} = getelementptr {self.number}, {self.place(slot)}")
        self.say(f"%{'l' if flag else 'n'}{i} = load {self.number}, ptr %a{i}")
        if flag:
            self.say(f"%n{i} = fcmp une {self.number} %l{i}, {self.constant(0.0)}")

    def spread(self, i: int, slot: int) -> None:
        """Load a number that is the same in all lanes."""
        self.say(f"%a{i} = getelementptr double, ptr %w, i64 {self.start_of_common + self.common[slot]}")
        self.say(f"%l{i} = load double, ptr %a{i}")
        self.broadcast(f"%l{i}", i)

    def broadcast(self, value: str, i: int) -> None:
        """A number in all lanes, as node i."""
        if self.lanes == 1:
            self.say(f"%n{i} = select i1 true, double {value}, double {value}")
            return
        self.say(f"%i{i} = insertelement {self.number} poison, double {value}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        self.say(f"%n{i} = shufflevector {self.number} %i{i}, {self.number} poison, {zeros}")

    def place(self, slot: int) -> str:
        """The array in which a slot is, and its number there."""
        kept = self.program.kept
        return f"ptr %w, i64 {slot}" if kept is None or slot < kept else f"ptr %scratch, i64 {slot - kept}"

    def store(self, place: str, i: int, name: str) -> None:
        """Store a node at a place, in the lanes that may change; ``name`` is for intermediate values."""
        value, n = self.name(i), name
        if self.program.nodes[i].kind == "b":
            one, zero = self.constant(1.0), self.constant(0.0)
            self.say(f"%d{n} = select {self.boolean} {value}, {self.number} {one}, {self.number} {zero}")
            value = f"%d{n}"
        self.say(f"%s{n} = getelementptr {self.number}, {place}")
        if self.masked:
            self.say(f"%o{n} = load {self.number}, ptr %s{n}")
            self.say(f"%k{n} = select {self.boolean} %mask, {self.number} {value}, {self.number} %o{n}")
            value = f"%k{n}"
        self.say(f"store {self.number} {value}, ptr %s{n}")

    def body(self, body: Iterable[int | Branch | StoreNode]) -> None:
        for part in body:
            if isinstance(part, Branch):
                self.branch(part)
            elif isinstance(part, StoreNode):
                self.store(self.place(part.slot), part.node, str(part.slot))
            elif part in self.loaded:
                self.load(part, self.loaded[part])
            else:
                self.node(part)

    def branch(self, branch: Branch) -> None:
        """Each side runs only if some lane takes it. The choices follow."""
        condition = self.name(branch.condition)
        sides = []
        for side, body in ((1, branch.yes), (2, branch.no)):
            named = lambda side=side: [self.name(self.program.nodes[i].inputs[side]) for i in branch.results]
            if not body:
                sides.append(named())
                continue
            k, before = self.label(), self.block
            taken = condition
            if side == 2:
                self.say(f"%i{k} = xor {self.boolean} {condition}, {self.constant(True)}")
                taken = f"%i{k}"
            if self.lanes > 1:
                self.say(f"%j{k} = call i1 @llvm.vector.reduce.or.v{self.lanes}i1({self.boolean} {taken})")
                taken = f"%j{k}"
            self.say(f"br i1 {taken}, label %in{k}, label %out{k}")
            self.start_block(f"in{k}")
            self.body(body)
            self.say(f"br label %out{k}")
            last = self.block
            self.start_block(f"out{k}")
            values = named()
            for n, value in enumerate(values):
                self.say(
                    f"%r{k}.{n} = phi {self.number} [ {value}, %{last} ], [ {self.constant(0.0)}, %{before} ]"
                )
            sides.append([f"%r{k}.{n}" for n in range(len(values))])
        for i, yes, no in zip(branch.results, *sides, strict=True):
            self.say(f"%n{i} = select {self.boolean} {condition}, {self.number} {yes}, {self.number} {no}")

    def start_block(self, label: str) -> None:
        self.mark(label)
        self.block = label

    def node(self, i: int) -> None:
        (op, inputs, _), name = self.program.nodes[i], self.name
        number, boolean = self.number, self.boolean
        if op in _ARITHMETIC:  # most of them
            a, b = inputs
            lines = None if self.fusions is None else self.fusions.text(i, name, number, self.suffix)
            if lines is None:
                lines = [f"  %n{i} = {self.arithmetic[op]} {number} {name(a)}, {name(b)}"]
            self.lines += lines
            return
        at = [name(j) for j in inputs]
        if op == "neg":
            self.say(f"%n{i} = fneg {number} {at[0]}")
        elif op in _INTRINSICS:
            self.used.add(op)
            values = ", ".join(f"{number} {x}" for x in at)
            self.say(f"%n{i} = call {number} @llvm.{_INTRINSICS[op]}.{self.suffix}({values})")
        elif op in ("max", "min"):  # NaN if one is NaN, as in NumPy
            self.say(f"%c{i} = fcmp {'ogt' if op == 'max' else 'olt'} {number} {at[0]}, {at[1]}")
            self.say(f"%e{i} = select {boolean} %c{i}, {number} {at[0]}, {number} {at[1]}")
            self.say(f"%u{i} = fcmp uno {number} {at[0]}, {at[0]}")
            self.say(f"%n{i} = select {boolean} %u{i}, {number} {at[0]}, {number} %e{i}")
        elif op in _COMPARISONS:
            self.say(f"%n{i} = fcmp {_COMPARISONS[op]} {number} {at[0]}, {at[1]}")
        elif op in ("and", "or", "xor"):
            self.say(f"%n{i} = {op} {boolean} {at[0]}, {at[1]}")
        elif op == "not":
            self.say(f"%n{i} = xor {boolean} {at[0]}, {self.constant(True)}")
        elif op == "select":
            kind = self.kind(i)
            self.say(f"%n{i} = select {boolean} {at[0]}, {kind} {at[1]}, {kind} {at[2]}")
        elif op in ("copy", "stop"):
            self._names[i] = at[0]
        elif op == "table":
            self.fill(i)
        elif op == "host":
            self.host(i)
        elif op == "take":
            self.take(i, *inputs)
        elif op in SEARCHES:
            self.search(i, op, *inputs)
        else:
            self.library(i, op, at)

    def library(self, i: int, op: str, at: list[str]) -> None:
        """A call of the C library."""
        self.used.add(op)

        def call(lane: int, n: str) -> str:
            values = ", ".join(f"double {self.entry(i, k, lane, x)}" for k, x in enumerate(at))
            return f"call double @{op}({values})"

        self.lane_by_lane(i, call)

    def entry(self, i: int, k: int, lane: int, x: str) -> str:
        """One lane of ``x``, which is input k of node i."""
        if self.lanes == 1:
            return x
        self.say(f"%x{i}.{k}.{lane} = extractelement {self.number} {x}, i64 {lane}")
        return f"%x{i}.{k}.{lane}"

    def lane_by_lane(self, i: int, compute: Callable[[int, str], str]) -> None:
        """Node i from doubles: ``compute(lane, name)`` is the instruction for one lane."""
        if self.lanes == 1:
            self.say(f"%n{i} = {compute(0, f'{i}.0')}")
            return
        whole = "poison"
        for lane in range(self.lanes):
            self.say(f"%y{i}.{lane} = {compute(lane, f'{i}.{lane}')}")
            target = f"%n{i}" if lane == self.lanes - 1 else f"%z{i}.{lane}"
            self.say(f"{target} = insertelement {self.number} {whole}, double %y{i}.{lane}, i64 {lane}")
            whole = target

    # --- tables ---------------------------------------------------------------------------------

    @property
    def start_of_common(self) -> int:
        return self.program.slots * self.lanes

    def memory(self, table: int) -> tuple[str, int, int, int]:
        """Where a table is: a pointer, the offset of its first entry, the distances of entries and lanes."""
        place = self.program.tables[table]
        if place.numbers is not None:
            return f"@{self.prefix}t{table}", 0, 1, 0
        if place.first in self.common:
            return "%w", self.start_of_common + self.common[place.first], place.step, 0
        return "%w", place.first * self.lanes, place.step * self.lanes, 1

    def fill(self, i: int) -> None:
        """Write the entries of a table, by a loop if they have a formula."""
        place = self.program.tables[i]
        if place.formula is None:
            for slot, j in zip(place.slots, self.program.nodes[i].inputs, strict=True):
                self.store(self.place(slot), j, f"{slot}.t")
            return
        before, (counter, entry, body, others, _) = self.block, place.formula
        self.say(f"br label %fill{i}")
        self.start_block(f"fill{i}")
        self.say(f"%k{i} = phi i64 [ 0, %{before} ], [ %next{i}, %fill{i} ]")
        self.say(f"%c{i} = sitofp i64 %k{i} to double")
        self.broadcast(f"%c{i}", counter)
        self.body(body)
        self.say(f"%slot{i} = add i64 %k{i}, {place.first}")
        self.store(f"ptr %w, i64 %slot{i}", entry, f"{i}.t")
        self.say(f"%next{i} = add i64 %k{i}, 1")
        self.say(f"%more{i} = icmp slt i64 %next{i}, {place.size}")
        self.say(f"br i1 %more{i}, label %fill{i}, label %filled{i}")
        self.start_block(f"filled{i}")
        for k, j in others:
            self.store(self.place(place.first + k), j, f"{place.first + k}.t")

    def host(self, i: int) -> None:
        """Call a Python function with a block of memory: places for the results, then the inputs.

        The name of the function becomes a pointer when the code is loaded (see `machine`).
        """
        if self.lanes > 1:
            raise CallsHost(self.program.hosts[i])
        place, count = self.program.tables[i], self.program.hosts[i].count
        for slot, j in zip(place.slots[count:], self.program.nodes[i].inputs, strict=True):
            self.store(self.place(slot), j, f"{slot}.t")
        self.hosts.add(host_symbol(i))
        self.say(f"%p{i} = getelementptr double, {self.place(place.first)}")
        self.say(f"call void @{host_symbol(i)}(ptr %p{i})")

    def take(self, i: int, table: int, index: int) -> None:
        """Read an entry of a table."""
        pointer, first, step, apart = self.memory(table)
        whole = "i64" if self.lanes == 1 else f"<{self.lanes} x i32>"
        self.say(f"%i{i} = fptosi {self.number} {self.name(index)} to {whole}")

        def entry(lane: int, n: str) -> str:
            at = f"%i{i}"
            if self.lanes > 1:
                self.say(f"%j{n} = extractelement {whole} {at}, i64 {lane}")
                self.say(f"%e{n} = zext i32 %j{n} to i64")
                at = f"%e{n}"
            self.say(f"%m{n} = mul i64 {at}, {step}")
            self.say(f"%o{n} = add i64 %m{n}, {first + apart * lane}")
            self.say(f"%p{n} = getelementptr double, ptr {pointer}, i64 %o{n}")
            return f"load double, ptr %p{n}"

        self.lane_by_lane(i, entry)

    def search(self, i: int, op: str, table: int, x: int) -> None:
        """Look for a number in a sorted table."""
        pointer, first, step, apart = self.memory(table)
        size = self.program.tables[table].size
        name = f"{self.prefix}{op}.{step}"
        self.searches[name] = SEARCH.format(name=name, step=step, **SIDES[op])

        def place(lane: int, n: str) -> str:
            self.say(f"%p{n} = getelementptr double, ptr {pointer}, i64 {first + apart * lane}")
            value = self.entry(i, 0, lane, self.name(x))
            return f"call double @{name}(ptr %p{n}, i64 {size}, i64 {size.bit_length()}, double {value})"

        self.lane_by_lane(i, place)

    def tables(self) -> list[str]:
        """The tables of constants."""
        lines = []
        for i, place in self.program.tables.items():
            if place.numbers is not None:
                bits = place.numbers.view(np.uint64).tolist()
                numbers = ", ".join(f"double 0x{x:016X}" for x in bits)
                kind = f"[{place.size} x double]"
                lines.append(f"@{self.prefix}t{i} = internal constant {kind} [{numbers}], align 64")
        return lines

    def declarations(self) -> list[str]:
        lines = [text for _, text in sorted(self.searches.items())]
        for op in sorted(self.used | ({"fma"} if self.arithmetic is _PLAIN else set())):
            count = {"pow": 2, "atan2": 2, "fmod": 2, "fma": 3}.get(op, 1)
            if op in _INTRINSICS:
                kinds = ", ".join([self.number] * count)
                lines.append(f"declare {self.number} @llvm.{_INTRINSICS[op]}.{self.suffix}({kinds})")
            else:
                lines.append(f"declare double @{op}({', '.join(['double'] * count)}) nounwind readnone")
        lines += [f"declare void @{name}(ptr) nounwind" for name in sorted(self.hosts)]
        if self.lanes > 1:
            lines.append(f"declare i1 @llvm.vector.reduce.or.v{self.lanes}i1({self.boolean})")
        lines.append("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        return lines

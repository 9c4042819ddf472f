"""LLVM's language for kernels and loops, on one system or on several in the lanes of a vector."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from genalpha.compiler.branches import Body, Branch, structured
from genalpha.compiler.graph import FUNCTIONS
from genalpha.compiler.program import (
    Call,
    Instructions,
    Kernel,
    Loop,
    Map,
    NextTime,
    Program,
    StoreRow,
    While,
)

_ARITHMETIC = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv"}
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
}
_SPECIAL = {"max", "min", "neg", *_ARITHMETIC, *_INTRINSICS}
_LIBRARY = {op for op in FUNCTIONS if op not in _SPECIAL}


class LlvmEmitter:
    """Text for vectors of ``lanes`` doubles, or for plain doubles."""

    def __init__(self, program: Program, lanes: int) -> None:
        self.program, self.lanes = program, lanes
        self.number = "double" if lanes == 1 else f"<{lanes} x double>"
        self.boolean = "i1" if lanes == 1 else f"<{lanes} x i1>"
        self.suffix = "f64" if lanes == 1 else f"v{lanes}f64"
        self.lines: list[str] = []
        self.used: set[str] = set()
        self.labels = 0

    # --- small things ---------------------------------------------------------------------------

    def constant(self, value: float | bool) -> str:
        if isinstance(value, bool):
            text, kind = ("true" if value else "false"), "i1"
        else:
            text, kind = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}", "double"
        return text if self.lanes == 1 else f"splat ({kind} {text})"

    def name(self, i: int) -> str:
        constants = self.program.constants
        return self.constant(constants[i]) if i in constants else f"%n{i}"

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
        """A function of the array of slots, and of the lanes that may be changed."""
        mask = "" if self.lanes == 1 else f", {self.boolean} %mask"
        self.lines.append(f"define internal void @{kernel.name}(ptr noalias %w{mask}) nounwind {{")
        for i, slot in kernel.loads:
            flag = self.program.nodes[i].kind == "b"
            self.say(f"%a{i} = getelementptr {self.number}, ptr %w, i64 {slot}")
            self.say(f"%{'l' if flag else 'n'}{i} = load {self.number}, ptr %a{i}")
            if flag:
                self.say(f"%n{i} = fcmp une {self.number} %l{i}, {self.constant(0.0)}")
        self.block = "0"
        self.body(structured(self.program.nodes, kernel.body, [i for _, i in kernel.stores]))
        for slot, i in kernel.stores:
            value = self.name(i)
            if self.program.nodes[i].kind == "b":
                one, zero = self.constant(1.0), self.constant(0.0)
                self.say(
                    f"%d{slot} = select {self.boolean} {value}, {self.number} {one}, {self.number} {zero}"
                )
                value = f"%d{slot}"
            self.say(f"%s{slot} = getelementptr {self.number}, ptr %w, i64 {slot}")
            if self.lanes > 1:
                self.say(f"%o{slot} = load {self.number}, ptr %s{slot}")
                self.say(
                    f"%k{slot} = select {self.boolean} %mask, {self.number} {value}, {self.number} %o{slot}"
                )
                value = f"%k{slot}"
            self.say(f"store {self.number} {value}, ptr %s{slot}")
        self.say("ret void")
        self.lines.append("}")

    def body(self, body: Body) -> None:
        for part in body:
            if isinstance(part, Branch):
                self.branch(part)
            else:
                self.node(part)

    def branch(self, branch: Branch) -> None:
        """Both sides only where some lane takes them; then the choices."""
        condition = self.name(branch.condition)
        sides = []
        for side, body in ((1, branch.yes), (2, branch.no)):
            values = [self.name(self.program.nodes[i].inputs[side]) for i in branch.results]
            if not body:
                sides.append(values)
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
        op, inputs, _ = self.program.nodes[i]
        at = [self.name(j) for j in inputs]
        number, boolean = self.number, self.boolean
        if op in _ARITHMETIC:
            self.say(f"%n{i} = {_ARITHMETIC[op]} {number} {at[0]}, {at[1]}")
        elif op == "neg":
            self.say(f"%n{i} = fneg {number} {at[0]}")
        elif op in _INTRINSICS:
            self.used.add(op)
            values = ", ".join(f"{number} {x}" for x in at)
            self.say(f"%n{i} = call {number} @llvm.{_INTRINSICS[op]}.{self.suffix}({values})")
        elif op in ("max", "min"):  # NaN wins, as in NumPy
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
            kind = self.kind(i)
            self.say(f"%n{i} = select {boolean} {self.constant(True)}, {kind} {at[0]}, {kind} {at[0]}")
        else:
            self.library(i, op, at)

    def library(self, i: int, op: str, at: list[str]) -> None:
        """A call of the C library, lane by lane."""
        self.used.add(op)
        if self.lanes == 1:
            self.say(f"%n{i} = call double @{op}({', '.join(f'double {x}' for x in at)})")
            return
        whole = "poison"
        for lane in range(self.lanes):
            for k, x in enumerate(at):
                self.say(f"%x{i}.{k}.{lane} = extractelement {self.number} {x}, i64 {lane}")
            values = ", ".join(f"double %x{i}.{k}.{lane}" for k in range(len(at)))
            self.say(f"%y{i}.{lane} = call double @{op}({values})")
            target = f"%n{i}" if lane == self.lanes - 1 else f"%z{i}.{lane}"
            self.say(f"{target} = insertelement {self.number} {whole}, double %y{i}.{lane}, i64 {lane}")
            whole = target

    def declarations(self) -> list[str]:
        lines = []
        for op in sorted(self.used):
            count = 2 if op in ("pow", "atan2", "fmod") else 1
            if op in _INTRINSICS:
                kinds = ", ".join([self.number] * count)
                lines.append(f"declare {self.number} @llvm.{_INTRINSICS[op]}.{self.suffix}({kinds})")
            else:
                lines.append(f"declare double @{op}({', '.join(['double'] * count)}) nounwind readnone")
        if self.lanes > 1:
            lines.append(f"declare i1 @llvm.vector.reduce.or.v{self.lanes}i1({self.boolean})")
        lines.append("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        return lines

    # --- loops ----------------------------------------------------------------------------------

    def flag(self, slot: int, mask: str) -> tuple[str, str]:
        """The lanes of ``mask`` in which a slot is not zero, and whether there are any."""
        k = self.label()
        self.say(f"%p{k} = getelementptr {self.number}, ptr %w, i64 {slot}")
        self.say(f"%v{k} = load {self.number}, ptr %p{k}")
        self.say(f"%f{k} = fcmp une {self.number} %v{k}, {self.constant(0.0)}")
        if self.lanes == 1:
            return f"%f{k}", f"%f{k}"
        self.say(f"%m{k} = and {self.boolean} {mask}, %f{k}")
        self.say(f"%t{k} = call i1 @llvm.vector.reduce.or.v{self.lanes}i1({self.boolean} %m{k})")
        return f"%m{k}", f"%t{k}"

    def plan(self, plan: Instructions, mask: str) -> None:
        for part in plan:
            if isinstance(part, Call):
                lanes = "" if self.lanes == 1 else f", {self.boolean} {mask}"
                for piece in self.program.pieces.get(part.kernel, [part.kernel]):
                    self.say(f"call void @{piece}(ptr %w{lanes})")
                continue
            if isinstance(part, StoreRow):
                self.keep(part, mask)
                continue
            if isinstance(part, NextTime):
                self.next(part, mask)
                continue
            head, inside, after = self.label(), self.label(), self.label()
            self.say(f"br label %{head}")
            self.mark(head)
            here, some = self.flag(part.flag, mask)
            self.say(f"br i1 {some}, label %{inside}, label %{after}")
            self.mark(inside)
            self.plan(part.body, here)
            self.say(f"br label %{head if isinstance(part, While) else after}")
            self.mark(after)

    def keep(self, keep: StoreRow, mask: str) -> None:
        """Copy a record, in lanes one lane after the other: each has a place of its own."""
        width, start, number = len(keep.row), keep.row.start, self.number
        k = self.label()
        self.say(f"%p{k} = getelementptr {number}, ptr %w, i64 {keep.place}")
        self.say(f"%v{k} = load {number}, ptr %p{k}")
        if self.lanes == 1:
            self.say(f"%i{k} = fptosi double %v{k} to i64")
            self.say(f"%a{k} = mul i64 %i{k}, {width}")
            self.say(f"%t{k} = getelementptr double, ptr %rows, i64 %a{k}")
            self.say(f"%f{k} = getelementptr double, ptr %w, i64 {start}")
            self.say(f"call void @llvm.memcpy.p0.p0.i64(ptr %t{k}, ptr %f{k}, i64 {8 * width}, i1 false)")
            return
        for lane in range(self.lanes):
            n, here, copy, after = f"{k}.{lane}", self.label(), self.label(), self.label()
            self.say(f"%m{n} = extractelement {self.boolean} {mask}, i64 {lane}")
            self.say(f"%v{n} = extractelement {number} %v{k}, i64 {lane}")
            self.say(f"br i1 %m{n}, label %{here}, label %{after}")
            self.mark(here)
            self.say(f"%i{n} = fptosi double %v{n} to i64")
            self.say(f"%a{n} = mul i64 %i{n}, {width * self.lanes}")
            self.say(f"br label %{copy}")
            self.mark(copy)
            self.say(f"%j{n} = phi i64 [ 0, %{here} ], [ %k{n}, %{copy} ]")
            self.say(f"%o{n} = mul i64 %j{n}, {self.lanes}")
            self.say(f"%l{n} = add i64 %o{n}, {lane}")
            self.say(f"%b{n} = add i64 %a{n}, %l{n}")
            self.say(f"%s{n} = add i64 %l{n}, {start * self.lanes}")
            self.say(f"%t{n} = getelementptr double, ptr %rows, i64 %b{n}")
            self.say(f"%f{n} = getelementptr double, ptr %w, i64 %s{n}")
            self.say(f"%x{n} = load double, ptr %f{n}")
            self.say(f"store double %x{n}, ptr %t{n}")
            self.say(f"%k{n} = add i64 %j{n}, 1")
            self.say(f"%c{n} = icmp slt i64 %k{n}, {width}")
            self.say(f"br i1 %c{n}, label %{copy}, label %{after}")
            self.mark(after)

    def next(self, next_: NextTime, mask: str) -> None:
        """The next entry of a list, in lanes one lane after the other."""
        for lane in range(self.lanes):
            n, here, after = self.label(), self.label(), self.label()
            if self.lanes > 1:
                self.say(f"%m{n} = extractelement {self.boolean} {mask}, i64 {lane}")
                self.say(f"br i1 %m{n}, label %{here}, label %{after}")
                self.mark(here)
            self.say(f"%p{n} = getelementptr double, ptr %w, i64 {next_.place * self.lanes + lane}")
            self.say(f"%v{n} = load double, ptr %p{n}")
            self.say(f"%u{n} = fadd double %v{n}, 1.0")
            self.say(f"store double %u{n}, ptr %p{n}")
            self.say(f"%i{n} = fptosi double %u{n} to i64")
            self.say(f"%e{n} = getelementptr double, ptr %times, i64 %i{n}")
            self.say(f"%x{n} = load double, ptr %e{n}")
            self.say(f"%s{n} = getelementptr double, ptr %w, i64 {next_.slot * self.lanes + lane}")
            self.say(f"store double %x{n}, ptr %s{n}")
            if self.lanes > 1:
                self.say(f"br label %{after}")
                self.mark(after)

    def loop(self, name: str, loop: Loop) -> None:
        """i64 name(w, times, steps, row_of, rows, first, last): steps first to last; where it stopped."""
        self.lines.append(
            f"define i64 @{name}(ptr noalias %w, ptr %times, ptr %steps, ptr %row_of, ptr noalias %rows, "
            "i64 %first, i64 %last) nounwind {"
        )
        everyone = self.constant(True)
        self.plan([Call(loop.once)], everyone)
        self.say("br label %head")
        self.mark("head")
        self.say("%i = phi i64 [ %first, %0 ], [ %next, %tail ]")
        self.say("%more = icmp slt i64 %i, %last")
        self.say("br i1 %more, label %check, label %end")
        self.mark("check")
        mask, some = self.flag(loop.alive, everyone)
        self.say(f"br i1 {some}, label %body, label %end")
        self.mark("body")
        if loop.listed is not None:
            self.look_up(loop.listed)
        self.plan(loop.body, mask)
        if loop.listed is not None:
            self.keep_listed(loop.row)
        self.say("br label %tail")
        self.mark("tail")
        self.say("%next = add i64 %i, 1")
        self.say("br label %head")
        self.mark("end")
        self.say("ret i64 %i")
        self.lines.append("}")

    def look_up(self, slots: tuple[int, int]) -> None:
        """The start and the size of step i from their lists, for all lanes."""
        number = self.number
        for array, slot in zip(("times", "steps"), slots, strict=True):
            self.say(f"%{array}.p = getelementptr double, ptr %{array}, i64 %i")
            self.say(f"%{array}.v = load double, ptr %{array}.p")
            value = f"%{array}.v"
            if self.lanes > 1:
                self.say(f"%{array}.1 = insertelement {number} poison, double {value}, i64 0")
                zeros = f"<{self.lanes} x i32> zeroinitializer"
                self.say(f"%{array}.w = shufflevector {number} %{array}.1, {number} poison, {zeros}")
                value = f"%{array}.w"
            self.say(f"%{array}.s = getelementptr {number}, ptr %w, i64 {slot}")
            self.say(f"store {number} {value}, ptr %{array}.s")

    def keep_listed(self, row: range) -> None:
        """A record of step i for all lanes, where the list of rows has one for it."""
        self.say("%row.p = getelementptr i64, ptr %row_of, i64 %i")
        self.say("%row = load i64, ptr %row.p")
        self.say("%kept = icmp sge i64 %row, 0")
        self.say("br i1 %kept, label %keep, label %tail")
        self.mark("keep")
        width = len(row) * self.lanes
        self.say(f"%at = mul i64 %row, {width}")
        self.say("%to = getelementptr double, ptr %rows, i64 %at")
        self.say(f"%from = getelementptr {self.number}, ptr %w, i64 {row.start}")
        self.say(f"call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 {8 * width}, i1 false)")

    def map(self, name: str, map_: Map) -> None:
        """void name(w, in, out, count): rows of numbers to rows of numbers."""
        wide = 8 * self.lanes
        inputs, outputs = len(map_.inputs), len(map_.outputs)
        self.lines.append(
            f"define void @{name}(ptr noalias %w, ptr noalias %in, ptr noalias %out, i64 %count) nounwind {{"
        )
        self.say("br label %head")
        self.mark("head")
        self.say("%i = phi i64 [ 0, %0 ], [ %next, %body ]")
        self.say("%more = icmp slt i64 %i, %count")
        self.say("br i1 %more, label %body, label %end")
        self.mark("body")
        self.say(f"%from.i = mul i64 %i, {inputs * self.lanes}")
        self.say("%from = getelementptr double, ptr %in, i64 %from.i")
        self.say(f"%slots = getelementptr {self.number}, ptr %w, i64 {map_.inputs.start}")
        self.say(f"call void @llvm.memcpy.p0.p0.i64(ptr %slots, ptr %from, i64 {inputs * wide}, i1 false)")
        self.plan([Call(map_.kernel)], self.constant(True))
        self.say(f"%to.i = mul i64 %i, {outputs * self.lanes}")
        self.say("%to = getelementptr double, ptr %out, i64 %to.i")
        self.say(f"%results = getelementptr {self.number}, ptr %w, i64 {map_.outputs.start}")
        self.say(f"call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %results, i64 {outputs * wide}, i1 false)")
        self.say("%next = add i64 %i, 1")
        self.say("br label %head")
        self.mark("end")
        self.say("ret void")
        self.lines.append("}")


def emit(parts: Sequence[tuple[Program, dict[str, Loop | Map]]], lanes: int = 1) -> str:
    """A module: every kernel of the programs, and a function for every loop over them."""
    used: set[str] = set()
    lines: list[str] = []
    for program, entries in parts:
        emitter = LlvmEmitter(program, lanes)
        for kernel in program.kernels.values():
            emitter.kernel(kernel)
        for name, entry in entries.items():
            if isinstance(entry, Loop):
                emitter.loop(name, entry)
            else:
                emitter.map(name, entry)
        used |= emitter.used
        lines += emitter.lines
    emitter.used = used
    return "\n".join([*emitter.declarations(), *lines, ""])

"""Loops over kernels in LLVM's language, for one system, or for several in the lanes of a vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genalpha.compiler.emit_llvm_kernels import KernelEmitter
from genalpha.compiler.program import (
    AddTo,
    Call,
    Instructions,
    Loop,
    Map,
    NextTime,
    Program,
    StoreRow,
    Walk,
    While,
)


class LoopEmitter(KernelEmitter):
    """Text of functions that call kernels: loops of steps, and functions of rows."""

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

    parameters = ""  # of the function of a loop, beyond those that all have

    def other(self, part: Any, mask: str) -> bool:
        """Write an instruction that only some programs have. Returns whether it was one."""
        return False

    def plan(self, plan: Instructions, mask: str) -> None:
        for part in plan:
            if self.other(part, mask):
                continue
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
        """Copy a record. With several lanes, one lane after the other, since each has its own place."""
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
        """The next entry of the list of times. With several lanes, one lane after the other."""
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
        """i64 name(w, times, steps, row_of, rows, first, last): steps, and the number of the next."""
        self.lines.append(
            f"define i64 @{name}(ptr noalias %w, ptr %times, ptr %steps, ptr %row_of, ptr noalias %rows, "
            f"i64 %first, i64 %last{self.parameters}) nounwind {{"
        )
        everyone = self.constant(True)
        self.plan([Call(loop.once)] if isinstance(loop.once, str) else loop.once, everyone)
        self.say("br label %enter")
        self.mark("enter")
        self.say("br label %head")
        self.mark("head")
        self.say("%i = phi i64 [ %first, %enter ], [ %next, %tail ]")
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
        """Load the start and the size of step i from their lists, for all lanes."""
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
        """Copy a record of step i for all lanes, if the list of rows has a row for it."""
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
        """void name(w, in, out, count, width): applies a kernel to rows of numbers.

        A row has the first ``width`` inputs. All others are in their slots already.
        """
        wide = 8 * self.lanes
        outputs = len(map_.outputs)
        self.lines.append(
            f"define void @{name}(ptr noalias %w, ptr noalias %in, ptr noalias %out, "
            "i64 %count, i64 %width) nounwind {"
        )
        self.say(f"%line = mul i64 %width, {self.lanes}")
        self.say("%bytes = mul i64 %line, 8")
        self.say("br label %head")
        self.mark("head")
        self.say("%i = phi i64 [ 0, %0 ], [ %next, %body ]")
        self.say("%more = icmp slt i64 %i, %count")
        self.say("br i1 %more, label %body, label %end")
        self.mark("body")
        self.say("%from.i = mul i64 %i, %line")
        self.say("%from = getelementptr double, ptr %in, i64 %from.i")
        self.say(f"%slots = getelementptr {self.number}, ptr %w, i64 {map_.inputs.start}")
        self.say("call void @llvm.memcpy.p0.p0.i64(ptr %slots, ptr %from, i64 %bytes, i1 false)")
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

    def walk(self, name: str, walk: Walk) -> None:
        """void name(w, out, sums, count, array, bytes, ...): goes through rows of arrays.

        After each array follows the distance of its rows in bytes.
        """
        arrays = "".join(f", ptr noalias %a{k}, i64 %s{k}" for k in range(len(walk.widths)))
        self.lines.append(
            f"define void @{name}(ptr noalias %w, ptr noalias %out, ptr noalias %sums, i64 %count{arrays}) "
            "nounwind {"
        )
        self.say("br label %head")
        self.mark("head")
        self.say("%i = phi i64 [ 0, %0 ], [ %next, %tail ]")
        self.say("%more = icmp slt i64 %i, %count")
        self.say("br i1 %more, label %body, label %end")
        self.mark("body")
        for k in range(len(walk.widths)):
            self.say(f"%o{k} = mul i64 %i, %s{k}")
            self.say(f"%r{k} = getelementptr i8, ptr %a{k}, i64 %o{k}")
        for read in walk.reads:
            source = f"%from{self.label()}"
            self.say(f"{source} = getelementptr {self.number}, ptr %r{read.array}, i64 {read.column}")
            self.copied(source, read.slots, out=False)
        self.plan([Call(walk.kernel)], self.constant(True))
        for add in walk.adds:
            for lane in range(self.lanes):
                self.add(add, lane, walk.sums)
        self.say(f"%to.i = mul i64 %i, {len(walk.outputs) * self.lanes}")
        self.say("%to = getelementptr double, ptr %out, i64 %to.i")
        self.copied("%to", walk.outputs, out=True)
        self.say("br label %tail")
        self.mark("tail")
        self.say("%next = add i64 %i, 1")
        self.say("br label %head")
        self.mark("end")
        self.say("ret void")
        self.lines.append("}")

    def copied(self, memory: str, slots: range, out: bool) -> None:
        """Copy slots to memory, or memory to slots."""
        k = self.label()
        self.say(f"%c{k} = getelementptr {self.number}, ptr %w, i64 {slots.start}")
        to, source = (memory, f"%c{k}") if out else (f"%c{k}", memory)
        size = 8 * self.lanes * len(slots)
        self.say(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")

    def add(self, add: AddTo, lane: int, count: int) -> None:
        """Add a number of one lane to its sum. A place that is not a number counts as the first one."""
        n = self.label()
        for name, slot in (("v", add.value), ("u", add.place)):
            self.say(f"%p{name}{n} = getelementptr double, ptr %w, i64 {slot * self.lanes + lane}")
            self.say(f"%{name}{n} = load double, ptr %p{name}{n}")
        self.say(f"%g{n} = fcmp oge double %u{n}, 0.0")
        self.say(f"%h{n} = fcmp olt double %u{n}, {count}.0")
        self.say(f"%b{n} = and i1 %g{n}, %h{n}")
        self.say(f"%x{n} = select i1 %b{n}, double %u{n}, double 0.0")
        self.say(f"%i{n} = fptosi double %x{n} to i64")
        self.say(f"%m{n} = mul i64 %i{n}, {self.lanes}")
        self.say(f"%l{n} = add i64 %m{n}, {lane}")
        self.say(f"%t{n} = getelementptr double, ptr %sums, i64 %l{n}")
        self.say(f"%y{n} = load double, ptr %t{n}")
        self.say(f"%z{n} = fadd double %y{n}, %v{n}")
        self.say(f"store double %z{n}, ptr %t{n}")


def emit(
    parts: Sequence[tuple[Program, dict[str, Loop | Map | Walk]]], lanes: int = 1, common: Sequence[int] = ()
) -> str:
    """A module: every kernel of the programs, and a function for every loop over them.

    If there are several lanes, they share the numbers in the slots ``common``.
    """
    used: set[str] = set()
    searches: dict[str, str] = {}
    hosts: set[str] = set()
    lines: list[str] = []
    for k, (program, entries) in enumerate(parts):
        emitter = LoopEmitter(program, lanes, f"p{k}", common)
        for kernel in program.kernels.values():
            emitter.kernel(kernel)
        for name, entry in entries.items():
            if isinstance(entry, Loop):
                emitter.loop(name, entry)
            elif isinstance(entry, Walk):
                emitter.walk(name, entry)
            else:
                emitter.map(name, entry)
        used |= emitter.used
        searches |= emitter.searches
        hosts |= emitter.hosts
        lines += emitter.tables() + emitter.lines
    emitter.used, emitter.searches, emitter.hosts = used, searches, hosts
    return "\n".join([*emitter.declarations(), *lines, ""])

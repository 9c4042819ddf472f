"""Programs with many copies of a thing in LLVM's language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genalpha.compiler import frames
from genalpha.compiler.emit_llvm import LoopEmitter
from genalpha.compiler.places_text import Copying
from genalpha.compiler.program import Call, Instructions, Program
from genalpha.compiler.repeated import (
    Add,
    Clear,
    Copy,
    Each,
    Factor,
    Gather,
    Inside,
    Keep,
    Largest,
    Load,
    Pick,
    Put,
    Record,
    Solve,
    Spread,
    Total,
    Unload,
    Zero,
)
from genalpha.compiler.sparse_transposed import SOLVE_TRANSPOSED


class RepeatedEmitter(LoopEmitter):
    """Text of the loop of steps. The central program has one lane, the copies of a thing have ``width``."""

    parameters = ", ptr noalias %table, ptr noalias %lists"

    def __init__(
        self, program: Program, width: int, pieces: dict[str, list[str]], laid: dict[str, frames.Frames]
    ) -> None:
        super().__init__(program, 1, "c")
        # The functions of other modules for some loops, and the first entries of their heads.
        self.elsewhere: Mapping[Each, tuple[str, int]] = {}
        self.width, self.pieces, self.laid = width, pieces, laid
        self.frames: frames.Frames | None = None  # of the kind whose loop is being written
        self.scratch = ""
        self.vector = f"<{width} x double>"
        self.entries: dict[str, int] = {}  # the numbers of the head entries
        self.first_entry = 0  # after those of other modules
        self.more: dict[str, None] = {}  # functions that only some programs need
        self.copies: set[Copying] = set()

    # --- the head ---------------------------------------------------------------------------------

    def entry_of_head(self, name: str) -> str:
        """A register with an entry of the head."""
        number = self.first_entry + self.entries.setdefault(name, len(self.entries))
        k = self.label()
        self.say(f"%hp{k} = getelementptr i64, ptr %table, i64 {number}")
        self.say(f"%h{k} = load i64, ptr %hp{k}")
        return f"%h{k}"

    def array(self, name: str) -> str:
        """A pointer to an array of doubles."""
        at, k = self.entry_of_head(name), self.label()
        self.say(f"%ap{k} = getelementptr double, ptr %w, i64 {at}")
        return f"%ap{k}"

    def list(self, name: str) -> str:
        """A pointer to a list of integers."""
        at, k = self.entry_of_head(name), self.label()
        self.say(f"%lp{k} = getelementptr i32, ptr %lists, i64 {at}")
        return f"%lp{k}"

    def function(self, name: str, plan: Instructions) -> None:
        """void name(w, table, lists): instructions outside of the loop of steps."""
        self.lines.append(f"define void @{name}(ptr noalias %w{self.parameters}) nounwind {{")
        self.plan(plan, self.constant(True))
        self.say("ret void")
        self.lines.append("}")

    # --- instructions -----------------------------------------------------------------------------

    def other(self, part: Any, mask: str) -> bool:
        if isinstance(part, Each) and part in self.elsewhere:
            (function, first), k = self.elsewhere[part], self.label()
            self.say(f"%head{k} = getelementptr i64, ptr %table, i64 {first}")
            self.say(f"call void @{function}(ptr %w, ptr %head{k}, ptr %lists)")
        elif isinstance(part, Each):
            self.each(part)
        elif isinstance(part, Clear):
            length, pointer = self.entry_of_head(f"length:{part.array}"), self.array(part.array)
            k = self.label()
            self.say(f"%bytes{k} = mul i64 {length}, 8")
            self.say(f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 0, i64 %bytes{k}, i1 false)")
        elif isinstance(part, Zero):
            for slot in range(part.slot, part.slot + part.number):
                k = self.label()
                self.say(f"%zp{k} = getelementptr double, ptr %w, i64 {slot}")
                self.say(f"store double 0.0, ptr %zp{k}")
        elif isinstance(part, Copy):
            k, pointer = self.label(), self.array(part.array)
            self.say(f"%cp{k} = getelementptr double, ptr %w, i64 {part.slots.start}")
            self.copy(pointer, f"%cp{k}", str(8 * len(part.slots)))
        elif isinstance(part, Pick):
            self.pick(part)
        elif isinstance(part, Record):
            k = self.label()
            self.say(f"%rp{k} = getelementptr double, ptr %w, i64 {part.place}")
            self.say(f"%rv{k} = load double, ptr %rp{k}")
            self.say(f"%ri{k} = fptosi double %rv{k} to i64")
            self.record(f"%ri{k}")
        elif isinstance(part, Factor):
            self.factor(part)
        elif isinstance(part, Solve):
            self.solve(part)
        else:
            return False
        return True

    def pick(self, part: Pick) -> None:
        places, k, before, body, after = self.list(part.places), *(self.label() for _ in range(4))
        self.say(f"br label %{before}")
        self.mark(before)
        self.say(f"br label %{body}")
        self.mark(body)
        self.say(f"%j{k} = phi i64 [ 0, %{before} ], [ %jn{k}, %{body} ]")
        self.say(f"%ip{k} = getelementptr i32, ptr {places}, i64 %j{k}")
        self.say(f"%i{k} = load i32, ptr %ip{k}")
        self.say(f"%z{k} = zext i32 %i{k} to i64")
        self.say(f"%q{k} = getelementptr double, ptr %w, i64 %z{k}")
        self.say(f"%v{k} = load double, ptr %q{k}")
        self.say(f"%slot{k} = add i64 %j{k}, {part.slot}")
        self.say(f"%p{k} = getelementptr double, ptr %w, i64 %slot{k}")
        self.say(f"store double %v{k}, ptr %p{k}")
        self.say(f"%jn{k} = add i64 %j{k}, 1")
        self.say(f"%more{k} = icmp slt i64 %jn{k}, {part.number}")
        self.say(f"br i1 %more{k}, label %{body}, label %{after}")
        self.mark(after)

    def factor(self, part: Factor) -> None:
        of, names = part.matrix, ("ap", "ai", "lp", "li", "up", "ui")
        n = self.entry_of_head(f"{of}:n")
        a, lower, upper, inv, x = (self.array(f"{of}:{name}") for name in ("a", "l", "u", "inv", "x"))
        ap, ai, lp, li, up, ui = (self.list(f"{of}:{name}") for name in names)
        k = self.label()
        self.say(f"%out{k} = getelementptr double, ptr %w, i64 {part.report}")
        pointers = (a, ap, ai, lower, lp, li, upper, up, ui, inv, x, f"%out{k}")
        self.say(f"call void @lu_factor(i64 {n}, {', '.join(f'ptr {p}' for p in pointers)})")

    def solve(self, part: Solve) -> None:
        of, names = part.matrix, ("lp", "li", "up", "ui", "row", "column")
        n = self.entry_of_head(f"{of}:n")
        lower, upper, inv, x = (self.array(f"{of}:{name}") for name in ("l", "u", "inv", "x"))
        lp, li, up, ui, row, column = (self.list(f"{of}:{name}") for name in names)
        b, d = self.array(part.rhs), self.array(part.result)
        pointers = (lower, lp, li, upper, up, ui, inv, row, column, b, d, x)
        name = "lu_solve_transposed" if part.transposed else "lu_solve"
        self.more |= {SOLVE_TRANSPOSED: None} if part.transposed else {}
        self.say(f"call void @{name}(i64 {n}, {', '.join(f'ptr {p}' for p in pointers)})")
        # L and U leave numbers in the work array, which must be zero for the next factors.
        k = self.label()
        self.say(f"%bytes{k} = mul i64 {n}, 8")
        self.say(f"call void @llvm.memset.p0.i64(ptr {x}, i8 0, i64 %bytes{k}, i1 false)")

    def each(self, part: Each) -> None:
        """A loop over the groups of a kind."""
        count, first = self.entry_of_head(f"groups:{part.kind}"), self.array(f"frames:{part.kind}")
        self.frames = self.laid[part.kind] if part.stride else None
        self.scratch = self.array("scratch") if self.frames else ""
        ready = [self.before(inside) for inside in part.body]
        k, before, head, body, after = (self.label() for _ in range(5))
        self.say(f"br label %{before}")
        self.mark(before)
        self.say(f"br label %{head}")
        self.mark(head)
        tail = self.label()
        self.say(f"%g{k} = phi i64 [ 0, %{before} ], [ %gn{k}, %{tail} ]")
        self.say(f"%gm{k} = icmp slt i64 %g{k}, {count}")
        self.say(f"br i1 %gm{k}, label %{body}, label %{after}")
        self.mark(body)
        self.say(f"%fo{k} = mul i64 %g{k}, {self.frames.kept * self.width if self.frames else 0}")
        self.say(f"%f{k} = getelementptr double, ptr {first}, i64 %fo{k}")
        for inside, known in zip(part.body, ready, strict=True):
            self.inside(inside, known, f"%f{k}", f"%g{k}")
        self.say(f"br label %{tail}")
        self.mark(tail)
        self.say(f"%gn{k} = add i64 %g{k}, 1")
        self.say(f"br label %{head}")
        self.mark(after)

    def runs(self, part: Gather | Put | Add | Keep) -> Sequence[frames.Run]:
        """The places of the slots of an instruction."""
        if self.frames is None:
            return [frames.Run(0, part.slot, part.number)]
        return self.frames.runs(part.slot, part.number)

    def at(self, slot: int) -> int:
        """The place of a slot."""
        return slot if self.frames is None else int(self.frames.places[slot])

    def array_of(self, frame: str, place: int) -> tuple[str, int]:
        """The array in which a place of a group is, and its number there."""
        if self.frames is None or place < self.frames.kept:
            return frame, place
        return self.scratch, place - self.frames.kept

    def point(self, pointer: str, frame: str, place: int) -> None:
        """Point to a place of a group."""
        array, number = self.array_of(frame, place)
        self.say(f"{pointer} = getelementptr {self.vector}, ptr {array}, i64 {number}")

    def before(self, part: Inside) -> str:
        """What an instruction needs before the loop over groups."""
        if isinstance(part, Spread):
            k = self.label()
            self.say(f"%sp{k} = getelementptr double, ptr %w, i64 {part.source}")
            self.say(f"%sv{k} = load double, ptr %sp{k}")
            self.say(f"%si{k} = insertelement {self.vector} poison, double %sv{k}, i64 0")
            zeros = f"<{self.width} x i32> zeroinitializer"
            self.say(f"%sw{k} = shufflevector {self.vector} %si{k}, {self.vector} poison, {zeros}")
            return f"%sw{k}"
        if isinstance(part, Load | Unload | Keep):
            return self.array(part.array)
        if isinstance(part, Gather | Put | Add):
            return self.list(part.places)
        return ""

    def inside(self, part: Inside, known: str, frame: str, group: str) -> None:
        k = self.label()
        if isinstance(part, Call):
            scratch = f", ptr {self.scratch}" if self.frames else ""
            for piece in self.pieces.get(part.kernel, [part.kernel]):
                self.say(f"call void @{piece}(ptr {frame}{scratch})")
        elif isinstance(part, Spread):
            self.point(f"%p{k}", frame, self.at(part.slot))
            self.say(f"store {self.vector} {known}, ptr %p{k}")
        elif isinstance(part, Load | Unload):
            self.point(f"%p{k}", frame, self.at(part.slot))
            self.say(f"%q{k} = getelementptr {self.vector}, ptr {known}, i64 {group}")
            source, target = (f"%q{k}", f"%p{k}") if isinstance(part, Load) else (f"%p{k}", f"%q{k}")
            self.say(f"%v{k} = load {self.vector}, ptr {source}")
            self.say(f"store {self.vector} %v{k}, ptr {target}")
        elif isinstance(part, Keep):
            self.say(f"%base{k} = mul i64 {group}, {part.number}")
            for offset, place, number in self.runs(part):
                n = f"{k}.{offset}"
                self.point(f"%p{n}", frame, place)
                self.say(f"%o{n} = add i64 %base{k}, {offset}")
                self.say(f"%q{n} = getelementptr {self.vector}, ptr {known}, i64 %o{n}")
                self.copy(f"%q{n}", f"%p{n}", str(8 * self.width * number))
        elif isinstance(part, Largest):
            self.largest(part, frame)
        elif isinstance(part, Total):
            self.total(part, frame)
        else:
            for run in self.runs(part):
                self.places(part, run, known, frame, group)

    def largest(self, part: Largest, frame: str) -> None:
        for slot in range(part.slot, part.slot + part.number):
            k, vector = self.label(), self.vector
            infinite = "splat (double 0x7FF0000000000000)"
            self.point(f"%p{k}", frame, self.at(slot))
            self.say(f"%v{k} = load {vector}, ptr %p{k}")
            self.say(f"%u{k} = fcmp uno {vector} %v{k}, %v{k}")
            self.say(f"%w{k} = select <{self.width} x i1> %u{k}, {vector} {infinite}, {vector} %v{k}")
            self.say(f"%m{k} = call nnan double @llvm.vector.reduce.fmax.v{self.width}f64({vector} %w{k})")
            self.say(f"%t{k} = getelementptr double, ptr %w, i64 {part.target}")
            self.say(f"%o{k} = load double, ptr %t{k}")
            self.say(f"%c{k} = fcmp ogt double %m{k}, %o{k}")
            self.say(f"%n{k} = select i1 %c{k}, double %m{k}, double %o{k}")
            self.say(f"store double %n{k}, ptr %t{k}")

    def total(self, part: Total, frame: str) -> None:
        k, vector = self.label(), self.vector
        self.point(f"%p{k}", frame, self.at(part.slot))
        self.say(f"%v{k} = load {vector}, ptr %p{k}")
        self.say(f"%t{k} = getelementptr double, ptr %w, i64 {part.target}")
        self.say(f"%o{k} = load double, ptr %t{k}")
        self.say(
            f"%n{k} = call double @llvm.vector.reduce.fadd.v{self.width}f64(double %o{k}, {vector} %v{k})"
        )
        self.say(f"store double %n{k}, ptr %t{k}")

    def places(self, part: Gather | Put | Add, run: frames.Run, known: str, frame: str, group: str) -> None:
        """Copy some slots from or to places in memory."""
        k = self.label()
        copying = Copying({Gather: "gather", Put: "put", Add: "add"}[type(part)], self.width)
        self.copies.add(copying)
        self.say(f"%first{k} = mul i64 {group}, {part.number}")
        self.say(f"%base{k} = add i64 %first{k}, {run.offset}")
        self.say(f"%ip{k} = getelementptr <{self.width} x i32>, ptr {known}, i64 %base{k}")
        self.point(f"%p{k}", frame, run.place)
        self.say(f"call void @{copying.name}(ptr %p{k}, ptr %ip{k}, ptr %w, i64 {run.number})")

    def keep_listed(self, row: range) -> None:
        """Copy a record of step i, if the list of rows has a row for it."""
        self.say("%row.p = getelementptr i64, ptr %row_of, i64 %i")
        self.say("%row = load i64, ptr %row.p")
        self.say("%kept = icmp sge i64 %row, 0")
        self.say("br i1 %kept, label %keep, label %tail")
        self.mark("keep")
        self.record("%row")

    def record(self, row: str) -> None:
        """Copy the array of the record to a row of the records."""
        k, source, length = self.label(), self.array("record"), self.entry_of_head("length:record")
        self.say(f"%at{k} = mul i64 {row}, {length}")
        self.say(f"%to{k} = getelementptr double, ptr %rows, i64 %at{k}")
        self.say(f"%bytes{k} = mul i64 {length}, 8")
        self.copy(f"%to{k}", source, f"%bytes{k}")

    def copy(self, target: str, source: str, size: str) -> None:
        self.say(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")

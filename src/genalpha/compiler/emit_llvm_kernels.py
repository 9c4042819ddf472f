"""Kernels in LLVM's language, for one system, or for several in the lanes of a vector."""

from __future__ import annotations

import struct

from genalpha.compiler.arithmetic import FUNCTIONS
from genalpha.compiler.branches import Body, Branch, structured
from genalpha.compiler.program import Kernel, Program

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


class KernelEmitter:
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
        """A function of the array of slots, and of a mask: the lanes that it may change."""
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
        """Each side runs only if some lane takes it. The choices follow."""
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

"""Modules of programs with many copies of a thing in LLVM's language: all in one, or one for each kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from genalpha.compiler import frames, sparse_text
from genalpha.compiler.emit_llvm_kernels import KernelEmitter
from genalpha.compiler.emit_repeated import RepeatedEmitter
from genalpha.compiler.places_text import Copying
from genalpha.compiler.program import Instructions, Loop, Program
from genalpha.compiler.repeated import Each

_DECLARED = """\
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare double @llvm.vector.reduce.fmax.v{w}f64(<{w} x double>)
declare double @llvm.vector.reduce.fadd.v{w}f64(double, <{w} x double>)
declare double @llvm.fabs.f64(double)"""


class KindModule(NamedTuple):
    """The module of a kind: its text, the frames of its copies, and the functions that it calls.

    ``entries`` are the names of the entries of the head that it reads, in a head of its own. In its text and
    in these names the kind is called ``NAME``.
    """

    text: str
    entries: tuple[str, ...]
    frames: frames.Frames
    copies: frozenset[Copying]


# What a kind is called in a module that several programs may use. Each program gives it a name of its own.
NAME = "nameofkind"


def of_kind(lanes: int, program: Program, loops: Sequence[Each], held: np.ndarray) -> KindModule:
    """The module of a kind, whose copies are computed in ``lanes``: its kernels, and all its ``loops``."""
    laid = frames.lay_out({NAME: program}, [loops], {NAME: held})
    kernels = _Kernels(lanes)
    kernels.add(NAME, program, laid[NAME])
    main = RepeatedEmitter(replace(program, tables={}), lanes, kernels.pieces, laid)
    for k, each in enumerate(loops):
        main.function(f"{NAME}_loop{k}", [each])
    kernels.declared |= dict.fromkeys(one.declaration for one in sorted(main.copies))
    return KindModule(kernels.module(main, []), tuple(main.entries), laid[NAME], frozenset(main.copies))


class LoopElsewhere(NamedTuple):
    """The function of another module that goes over all groups of a kind, and the first entry of its head."""

    function: str
    first: int


class Apart:
    """Kinds that have modules of their own, so that they can be compiled before others are known.

    ``entries`` are the names of the entries of their heads, one after the other. ``frames`` are those of
    kinds, and ``loops`` the functions that go over all groups of a kind.
    """

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.frames: dict[str, frames.Frames] = {}
        self.loops: dict[Each, LoopElsewhere] = {}
        self.copies: set[Copying] = set()  # functions that they call

    def text(self, kind: str, module: KindModule, loops: Sequence[Each]) -> str:
        """The text of the module of a kind. ``loops`` are those it was made with, for this kind."""
        functions = [LoopElsewhere(f"{kind}_loop{k}", len(self.entries)) for k in range(len(loops))]
        self.loops |= dict(zip(loops, functions, strict=True))
        self.entries += [entry.replace(NAME, kind) for entry in module.entries]
        self.frames[kind] = module.frames
        self.copies |= module.copies
        return module.text.replace(NAME, kind)


class _Kernels:
    """The text of the kernels of kinds."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.pieces: dict[str, list[str]] = {}
        self.declared: dict[str, None] = {}
        self.lines: list[str] = []

    def add(self, kind: str, program: Program, laid: frames.Frames | None) -> None:
        program = program if laid is None else frames.placed(program, laid)
        emitter = KernelEmitter(program, self.width, kind, masked=False)
        for kernel in program.kernels.values():
            emitter.kernel(kernel)
        self.pieces |= program.pieces
        self.declared |= dict.fromkeys(emitter.declarations())
        self.lines += emitter.tables() + emitter.lines

    def module(self, main: RepeatedEmitter, texts: Iterable[str]) -> str:
        """All kernels, what ``main`` has written, and other functions."""
        declared = self.declared | dict.fromkeys(main.declarations())
        declared |= dict.fromkeys(_DECLARED.format(w=self.width).splitlines())
        return "\n".join([*declared, *self.lines, *main.tables(), *main.lines, *texts, ""])


class Emitted(NamedTuple):
    """The text of a module, the names of the entries of the head, and the frames of kinds."""

    text: str
    entries: list[str]
    frames: dict[str, frames.Frames]


def emit(
    central: Program,
    loop: Loop | None,
    kinds: Mapping[str, Program],
    name: str,
    width: int,
    plans: dict[str, Instructions],
    held: Mapping[str, np.ndarray],
    apart: Apart | None = None,
) -> Emitted:
    """A module with the loop and other instructions, and all kinds that are not ``apart``.

    For ``held`` see `frames.lay_out`.
    """
    apart, kernels = apart or Apart(), _Kernels(width)
    steps = [] if loop is None else [() if isinstance(loop.once, str) else loop.once, loop.body]
    loops = [each for plan in (*steps, *plans.values()) for each in frames.every_loop(plan)]
    laid = frames.lay_out(kinds, [[each for each in loops if each not in apart.loops]], held)
    for kind, program in kinds.items():
        kernels.add(kind, program, laid.get(kind))
    main = RepeatedEmitter(central, width, kernels.pieces, laid)
    main.elsewhere, main.first_entry = apart.loops, len(apart.entries)
    for kernel in central.kernels.values():
        main.kernel(kernel)
    if loop is not None:
        main.loop(name, loop)
    for other, plan in plans.items():
        main.function(other, plan)
    declared = (f"declare void @{other.function}(ptr, ptr, ptr)" for other in apart.loops.values())
    kernels.declared |= dict.fromkeys(declared)
    solvers = [one.format(linkage="internal") for one in (sparse_text.FACTOR, sparse_text.SOLVE, *main.more)]
    copies = sorted(main.copies | apart.copies)
    text = kernels.module(main, [*solvers, *(one.text() for one in copies)])
    return Emitted(text, [*apart.entries, *main.entries], laid | apart.frames)

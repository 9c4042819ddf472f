"""Modules of programs with many copies of a thing in LLVM's language: all in one, or one for each kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


class Apart:
    """Kinds that have modules of their own, so that they can be compiled before others are known.

    ``entries`` are the numbers of the entries of the head by name, ``frames`` those of kinds, and ``loops``
    the names of the functions that go over all groups of a kind.
    """

    def __init__(self) -> None:
        self.entries: dict[str, int] = {}
        self.frames: dict[str, frames.Frames] = {}
        self.loops: dict[Each, str] = {}
        self.copies: set[Copying] = set()  # functions that they call

    def text(self, kind: str, lanes: int, program: Program, loops: Iterable[Each], held: np.ndarray) -> str:
        """The module of a kind, whose copies are computed in ``lanes``: its kernels, and all its loops."""
        mine = list(dict.fromkeys(loops))
        self.frames |= frames.lay_out({kind: program}, [mine], {kind: held})
        kernels, names = _Kernels(lanes), [f"{kind}_loop{k}" for k in range(len(mine))]
        kernels.add(kind, program, self.frames[kind])
        main = RepeatedEmitter(replace(program, tables={}), lanes, kernels.pieces, self.frames)
        main.entries = self.entries
        for name, each in zip(names, mine, strict=True):
            main.function(name, [each])
        self.loops |= dict(zip(mine, names, strict=True))
        self.copies |= main.copies
        kernels.declared |= dict.fromkeys(one.declaration for one in sorted(main.copies))
        return kernels.module(main, [])


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
    """The text of a module, the numbers of the entries of the head by name, and the frames of kinds."""

    text: str
    entries: dict[str, int]
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
    main.entries, main.elsewhere = apart.entries, apart.loops
    for kernel in central.kernels.values():
        main.kernel(kernel)
    if loop is not None:
        main.loop(name, loop)
    for other, plan in plans.items():
        main.function(other, plan)
    kernels.declared |= {f"declare void @{other}(ptr, ptr, ptr)": None for other in apart.loops.values()}
    solvers = [one.format(linkage="internal") for one in (sparse_text.FACTOR, sparse_text.SOLVE, *main.more)]
    copies = sorted(main.copies | apart.copies)
    text = kernels.module(main, [*solvers, *(one.text() for one in copies)])
    return Emitted(text, main.entries, laid | apart.frames)

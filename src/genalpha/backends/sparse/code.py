"""The code of a run with sparse matrices: it depends on the kinds of parts, not on their number."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, cast

from genalpha.backends.sparse.central import Central, Stream
from genalpha.backends.sparse.kinds import Kind
from genalpha.backends.sparse.models import Blocks, KindModel
from genalpha.backends.sparse.points import NodePoints
from genalpha.compiler import machine, repeated_modules
from genalpha.compiler.machine import COUNT, POINTER
from genalpha.compiler.program import Call, If, Instructions, Loop, While
from genalpha.compiler.repeated import Clear, Copy, Factor, Solve, Zero
from genalpha.engine.setup import Setup
from genalpha.mechanics.spaces import Space
from genalpha.mechanics.system import Args


class SparseCode:
    """The kinds of an assembly, the central program, and the machine code of the loop of steps.

    If the stages of the method are ``coupled``, all unknowns are solved for at once. If it is ``taped``,
    records go on with all that derivatives of the run need (see `memory`).
    """

    controlled, taped = False, False
    kind: type[Kind] = Kind
    center: type[Central] = Central
    central: Central
    plan_names: tuple[str, ...] = ("probe", "entries")

    def __init__(self, setup: Setup, models: list[KindModel], args: Args, coupled: bool = False) -> None:
        self.width = machine.lanes()
        self.blocks = Blocks.of(setup, self.width, coupled)
        self.kinds: list[Kind] = []
        self.patterns: list[Any] = []  # of the matrices of the stages, from the first run
        self.kept: dict[str, Any] = {}  # about the memory, from the first run (see `memory`)
        texts = self._texts(setup, models, args)
        self.library = machine.Library(texts, ["steps", *self.plan_names], scheduled=False)

    def _texts(self, setup: Setup, models: list[KindModel], args: Args) -> Iterator[str]:
        """The modules of all kinds, each as soon as it is written, and of all the rest."""
        points: dict[Space, NodePoints] = {}
        make = lambda model: self.kind.shared(setup, model, self.blocks, self.taped, points)
        nodes = {model.name: make(model) for model in models if model.element is None}
        points |= {kind.model.space: cast(NodePoints, kind.points) for kind in nodes.values()}
        first, turns = next(iter(nodes.values())), any(len(kind.turns) for kind in nodes.values())
        self.central = self.center(setup, self.blocks, first.adjusts, turns, args)
        self.stream, apart = Stream(), repeated_modules.Apart()
        for model in models:
            kind = nodes.get(model.name) or make(model)
            self.kinds.append(kind)
            yield apart.text(kind.name, *kind.module(self._loops))
        once: Instructions = [*(kind.once() for kind in self.kinds), Call("once")]
        loop = Loop(once, self._body(), self.central.flags["alive"], range(0), self._listed())
        streams = {self.stream.name: self.stream.program}
        text, self.entries_of_head, self.frames = repeated_modules.emit(
            self.central.program, loop, streams, "steps", self.width, self._plans(once), {}, apart
        )
        yield text

    def _loops(self, kind: Any) -> Instructions:
        """All loops over the groups of a kind."""
        central = self.central
        rows = [each for stage in range(self.blocks.stages) for each in kind.residual(stage)]
        prepare = kind.prepare(central.times, central.sizes)
        reach = [each for name in kind.points.slots for each in kind.reach(name)]
        return [kind.once(), prepare, *reach, *kind.matrix(), *kind.alone(), *rows, *self._ends(kind)]

    def _ends(self, kind: Any) -> Instructions:
        """The loops over the groups of a kind at the end of a step."""
        return [kind.finish(self.central.turns)]

    # The library is compiled by other threads until one of these functions is asked for.

    @functools.cached_property
    def steps(self) -> Callable[..., int]:
        return self.library.function("steps", *[POINTER] * 5, *[COUNT] * 2, *[POINTER] * 2, result=COUNT)

    @functools.cached_property
    def plans(self) -> dict[str, Callable[..., None]]:
        return {name: self.library.function(name, *[POINTER] * 3) for name in self.plan_names}

    def _plans(self, once: Instructions) -> dict[str, Instructions]:
        """Instructions outside of the loop of steps, by name."""
        return {"probe": [*once, *self.prepare(), *self._entries()], "entries": self._entries()}

    def _listed(self) -> tuple[int, int] | None:
        return self.central.listed

    def prepare(self) -> Instructions:
        central = self.central
        nodes = [kind for kind in self.kinds if kind.model.element is None]
        parts = [kind for kind in self.kinds if kind.model.element is not None]
        each = [kind.prepare(central.times, central.sizes) for kind in (*nodes, *parts)]
        return [Zero(int(central.sizes[0]), 3), *each, self.stream.predict(central)]

    def _entries(self) -> Instructions:
        """Compute the entries of all parts of the matrix, without adding them up."""
        each = [each for kind in self.kinds for each in kind.alone()]
        return [*self.reach("matrix"), *each]

    def reach(self, *kernels: str) -> Instructions:
        """Let nodes compute all that these kernels of parts read."""
        read = dict.fromkeys(name for kind in self.kinds for kernel in kernels for name in kind.needs(kernel))
        return [each for name in read for kind in self.kinds for each in kind.reach(name)]

    def matrix(self) -> Instructions:
        """Compute the matrices of all stages."""
        clear = [Clear(f"lu{k}:a") for k in range(self.blocks.stages)]
        each = [each for kind in self.kinds for each in kind.matrix()]
        return [*self.reach("matrix"), *clear, *each]

    def factor(self) -> Instructions:
        return [Factor(f"lu{k}", int(report[0])) for k, report in enumerate(self.central.report)]

    def residual(self, stage: int) -> Instructions:
        each = [each for kind in self.kinds for each in kind.residual(stage)]
        return [*self.reach(f"residual{stage}"), Clear(f"r:{stage}"), *each]

    def solve(self, stage: int) -> Solve:
        return Solve(f"lu{stage}", "r", "d")

    def finish(self) -> Instructions:
        """Write what the next step needs."""
        each = [each for kind in self.kinds for each in self._ends(kind)]
        return [Zero(self.central.turns, 1), *self.reach("finish"), *each, self.stream.move(self.central)]

    def _solved(self) -> Instructions:
        """Prepare a step, and solve its equations by Newton's two loops."""
        central, stream, flags = self.central, self.stream, self.central.flags
        correct: list[Any] = [Zero(int(central.largest[0]), len(central.largest) + 1)]
        for k in range(self.blocks.stages):
            correct += [*self.residual(k), self.solve(k), *stream.correct(central, k)]
        correct.append(Call("correct"))
        attempt = (
            If(flags["slow"], (*self.matrix(), *self.factor(), Call("renew"))),
            While(flags["running"], correct),
            Call("judge"),
            If(flags["astray"], (stream.restart(),)),
        )
        return (*self.prepare(), Call("prepare"), While(flags["unfinished"], attempt))

    def _body(self) -> Instructions:
        """One step: `advance`."""
        end = (*self.finish(), Call("finish"), *self._counts(), *self.central.watched.instructions())
        return (*self._solved(), If(self.central.flags["converged"], end))

    def _counts(self) -> Instructions:
        """Write what central slots hold of a record."""
        named = [("counts", self.central.counts), *([("past", self.central.times[2:])] if self.taped else [])]
        return [Copy(range(int(slots[0]), int(slots[-1]) + 1), name) for name, slots in named]


class TapedCode(SparseCode):
    """The same with records that serve derivatives."""

    taped = True

"""Members of a batch on a GPU, one thread each: their steps, and right after them derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from genalpha.backends.batch import cuda
from genalpha.backends.batch.cuda import CudaBatch, CudaCode, DeviceStart
from genalpha.backends.batch.plan import GivenPlan, Members
from genalpha.backends.native.code import MAKING, OPTIMIZED, small
from genalpha.backends.native.kernels import Kernels
from genalpha.backends.native.tape import Adjoint, Derivative, TapeSteps
from genalpha.backends.transforms.members import MemberGroup, Passed, RunMembers
from genalpha.backends.transforms.operation import Arrays, Asked, Shape
from genalpha.backends.transforms.rows import RowDerivative
from genalpha.backends.transforms.runs import GivenRun
from genalpha.compiler import emit_cuda
from genalpha.compiler.emit_cuda import Columns
from genalpha.compiler.graph import CallsHost, Unsupported
from genalpha.engine.steps import Given
from genalpha.numerics import codes
from genalpha.numerics.data import Times


class _Entry:
    """One compiled entry."""

    def __init__(self, program: Any, name: str, entry: Any, columns: Columns) -> None:
        if not small(program, OPTIMIZED):
            raise Unsupported(f"derivatives of a step have more than {OPTIMIZED} scalar operations")
        text = emit_cuda.emit([(program, name, entry, columns)], cuda.BLOCK)
        self._function = cuda.library().RawModule(code=text, options=("--std=c++17",)).get_function(name)

    def __call__(self, count: int, *arguments: Any) -> None:
        self._function((-(-count // cuda.BLOCK),), (cuda.BLOCK,), (*arguments, np.int64(count)))


class _Chunk(MemberGroup):
    """Members that run at the same time, with their tapes (K, W, n) on the GPU."""

    def __init__(self, members: CudaMembers, those: np.ndarray, batch: CudaBatch) -> None:
        self.choose(those)
        self.members, self.count, cupy = members, members.count, batch.cupy
        step, plan = members.op.step, batch.plan
        pick = lambda x: x[self.here]
        self.begun = batch.begin(Members(pick(members.q), pick(members.v), list(map(pick, members.doubles))))
        self.table = cupy.full((plan.records, batch.code.width, len(those)), np.nan)
        if plan.has_start:
            places = {slot: k for k, slot in enumerate(batch.code.inputs)}
            known = [(k, places[slot]) for k, slot in enumerate(step.row) if slot in places]
            into, source = (cupy.asarray(np.array(x)) for x in zip(*known, strict=True))
            self.table[0] = 0.0
            self.table[0, into] = self.begun.inputs[0][source]
        found = batch.steps(self.begun, self.table)
        self.status, self.taken = found.status.astype(int), found.taken.astype(int)

    @property
    def steps(self) -> TapeSteps:
        return TapeSteps.of(self._host(self.table[:, :, 0]), self.members.times, self.members.sizes)

    @staticmethod
    def _host(x: Any) -> np.ndarray:
        return cuda.library().ascontiguousarray(x).get()

    def rows(self, columns: slice, count: int) -> np.ndarray:
        return self._host(self.table[len(self.table) - count :, columns].transpose(2, 0, 1))

    def through(self, code: Derivative, more: Arrays, changes: np.ndarray, state: np.ndarray) -> Passed:
        cupy, members, count, size = cuda.library(), self.members, self.count, len(self.those)
        table, first = cupy.zeros((count, len(code.more), size)), 0
        for x in more:
            last = first + x.shape[2]
            table[count - x.shape[1] :, first:last] = cupy.asarray(np.ascontiguousarray(x)).transpose(1, 2, 0)
            first = last
        fixed = [members.scale[self.here], members.args[self.here], changes, state[:, code.kept]]
        inputs = cupy.asarray(np.ascontiguousarray(np.concatenate(fixed, axis=1).T))
        out, sums = cupy.empty((len(code.state), size)), cupy.zeros((max(1, code.walk.sums), size))
        results = cupy.empty((count, len(code.results), size))
        times = cupy.asarray(np.stack([members.times, members.sizes], axis=1))
        arrays = (self.table[:-1], self.table[1:], times, table)
        order = (np.int64(count), np.int64(isinstance(code, Adjoint)))
        members.walk(code)(size, inputs, cupy.zeros(1), out, sums, results, *arrays, *order)
        after, carry = state.copy(), len(members.op.tape.carry)
        after[:, code.kept] = out.get().T
        after[:, carry:] += sums.get().T[:, : after.shape[1] - carry]
        good = (results[:, -1] != 0).all(axis=0).get()
        rows = lambda kept: self._host(results[count - kept :, :-1].transpose(2, 0, 1))
        return Passed(good, after, rows)


class CudaMembers(RunMembers):
    """Members that run on a GPU, as many at a time as fit into its memory."""

    op: CudaRun

    def __init__(
        self, operation: GivenRun, made: Kernels, size: int, inputs: Arrays, own: Sequence[bool]
    ) -> None:
        super().__init__(operation, made, size, inputs, own)
        dims, rows = operation.setup.dims, operation.layout.plain
        self.status, self.alone = np.zeros(size, int), np.zeros(size, bool)
        self.row, self.t_alpha = np.full((size, rows), np.nan), np.full(size, np.nan)
        self.scale = np.full((size, dims.n + dims.m + dims.p), np.nan)

    def each(self, work: Callable[[_Chunk], None], rows: int) -> None:
        steps = Given(np.append(self.times, self.t1), Times(self.times, self.sizes))
        plan = GivenPlan(steps, np.arange(self.count + 1)[-rows:], self.op.strict)
        code = self.op.compiled("steps", lambda: CudaCode(self.made, None, plan, []))
        batch = CudaBatch(self.made, code, None, plan)
        # A derivative has numbers for every step, at most twice as many as are seen of a record.
        more = 2 * self.count * (self.op.tape.width + 2) if rows > self.count else 0
        chunk = cuda.fitting(batch.numbers + more + 2 * self.args.shape[1])
        for first in range(0, self.size, chunk):
            group = _Chunk(self, np.arange(first, min(first + chunk, self.size)), batch)
            self._note(group.here, group.begun)
            work(group)

    def _note(self, here: Any, begun: DeviceStart) -> None:
        """Keep what is known of some starts."""
        where, numpy = begun.where, begun.numpy
        self.status[here] = self.statuses(numpy(where.status), numpy(where.consistent), self.q[here])
        self.alone[here] = ~begun.trusted | (self.status[here] != codes.SUCCESS)
        self.row[here], self.t_alpha[here] = numpy(where.row), numpy(where.t_alpha)
        self.scale[here] = np.concatenate([numpy(x) for x in where.begin.scale], axis=1)

    def walk(self, code: Derivative) -> _Entry:
        """The entry that goes through tapes."""
        columns = Columns([*code.shared.tolist(), *code.state.tolist()], (), code.state.tolist())
        return self.op.compiled(code, lambda: _Entry(code.program, code.name, code.walk, columns))

    def start_change(self, more: np.ndarray, reverse: bool) -> np.ndarray:
        return self.op.start_change(self.taken, self.starts(), more, reverse, self._mapped)

    def _mapped(self, code: RowDerivative, table: np.ndarray, more: np.ndarray) -> Any:
        """A function of rows, on the GPU: results, and which are good."""
        cupy, columns, map_ = cuda.library(), Columns(code.map.inputs), code.map
        module = self.op.compiled(code, lambda: _Entry(code.program, "change", map_, columns))
        inputs = cupy.asarray(np.ascontiguousarray(np.concatenate([table, more], axis=1).T))
        out = cupy.empty((len(map_.outputs), len(table)))
        module(len(table), inputs, cupy.zeros(1), out)
        found = out.get().T
        return found[:, :-1], found[:, -1] != 0


class CudaRun(GivenRun):
    """A run on a GPU. By itself it is a batch of one member. Members whose pivots are bad run on the CPU."""

    runs_members = CudaMembers

    def __init__(self, *arguments: Any) -> None:
        cuda.library()
        super().__init__(*arguments)
        for call in self.step.graph.hosts.values():
            raise CallsHost(call)
        if self.iterates:
            raise Unsupported("a reaction, whose start is found by iteration")

    def compiled(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was compiled for the GPU."""
        with MAKING:
            if ("cuda", key) not in self._derivatives:
                self._derivatives["cuda", key] = make()
            return self._derivatives["cuda", key]

    def tape_shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        return []

    def members(self, asked: Asked, size: int, inputs: Arrays, more: Arrays) -> list[np.ndarray]:
        if any(asked.own(len(inputs))[i] for i in (0, 1, 4, 5)):
            raise ValueError('backend="cuda" cannot run members with different steps. Use backend="native"')
        return super().members(asked, size, inputs, more)

    def member(self, asked: Asked, i: int, inputs: Arrays, more: Arrays) -> list[np.ndarray]:
        """One member on the CPU."""
        one = [x[i] if yes else x for x, yes in zip(inputs, asked.own(len(inputs)), strict=True)]
        if asked.kind == "value":
            return asked.chosen(super().value(one))
        return asked.chosen(getattr(super(), asked.kind)(one, [], [x[i] for x in more]))

    def value(self, inputs: Arrays) -> list[np.ndarray]:
        return self._alone("value", inputs, [], len(self.smooth))

    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        return self._alone("tangent", inputs, changes, sum(self.smooth))

    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        return self._alone("cotangent", inputs, weights, len(inputs))

    def _alone(self, kind: str, inputs: Arrays, more: Arrays, results: int) -> list[np.ndarray]:
        """A batch of one member, whose q is its own."""
        own = tuple(i == 2 for i in range(len(inputs)))
        given, wanted = (True,) * len(more), (True,) * results
        asked = Asked(kind, self, (*own, *given), 0, given, wanted)
        wide = [x[None] if yes else x for x, yes in zip(inputs, own, strict=True)]
        return [x[0] for x in self.members(asked, 1, wide, [np.asarray(x)[None] for x in more])]

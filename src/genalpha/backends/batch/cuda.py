"""Batches on a GPU through `cupy`, one thread per system. The data stay on the GPU during the run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from genalpha.backends import sampling
from genalpha.backends.batch.plan import BatchPlan, HostRecords, Members, Results, Summary, begun_status
from genalpha.backends.native.code import OPTIMIZED, small
from genalpha.backends.native.kernels import Kernels
from genalpha.backends.native.writer import PIVOT
from genalpha.compiler import emit_cuda
from genalpha.compiler.emit_cuda import Columns
from genalpha.compiler.graph import Unsupported
from genalpha.compiler.program import sharable
from genalpha.compiler.rows import RowFunction
from genalpha.engine import row
from genalpha.engine.start import RunStart
from genalpha.numerics import codes

# Threads in a block, and the fraction of the free memory that one chunk may take.
BLOCK, SHARE = 128, 0.8


def library() -> Any:
    """The module `cupy`. Raises if it is missing or finds no GPU."""
    advice = 'install the one for your CUDA, such as pip install "genalpha[cuda12]", or use backend="native"'
    try:
        import cupy
    except ImportError as error:
        raise ImportError(f'backend="cuda" needs the package cupy: {advice}') from error
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f'backend="cuda" found no usable GPU ({error}): {advice}') from error
    if not devices:
        raise RuntimeError(f'backend="cuda" found no GPU: {advice}')
    return cupy


class DeviceRecords:
    """Records (K, width, B) on the GPU. Columns are copied to the host on access."""

    derived: ClassVar[dict[str, np.ndarray]] = {}  # they are computed from the columns

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def column(self, at: slice) -> np.ndarray:
        """Some columns (B, K, ...) of all records."""
        return library().ascontiguousarray(self._rows[:, at].transpose(2, 0, 1)).get()

    def replace(self, which: np.ndarray, by: Any) -> None:
        """Replace the records of some members by all of others."""
        if isinstance(by, DeviceRecords):
            rows = by._rows
        else:
            rows = library().asarray(by.column(slice(None)).transpose(1, 2, 0))
        self._rows[:, :, library().asarray(which)] = rows


class CudaCode:
    """The kernels of a setup on the GPU. ``sample`` interpolates between the ends of a step, if wanted.

    The numbers in the slots ``common`` are in memory once, for all systems. ``common_at_start`` are the slots
    of the start that hold such numbers.
    """

    def __init__(
        self, kernels: Kernels, sample: RowFunction | None, plan: BatchPlan, common: list[int]
    ) -> None:
        cupy = library()
        step = kernels.step
        self.program, loop = kernels.program(kernels.order)
        if not small(self.program, OPTIMIZED):
            raise Unsupported(f"a step has more than {OPTIMIZED} scalar operations, the most on a GPU")
        places = (step.start_places, step.args, step.output[:2])
        planned = [place for place, _ in plan.inputs(step)]
        leaves = jax.tree.leaves((places, planned))
        self.inputs = [int(s) for place in leaves for s in np.ravel(place)]
        # Memory, counters and the slope of the parabola start at zero. The flag "alive" starts at one.
        zero = [*step.parabola[1], *step.parabola[2], *step.memory, *step.totals, step.status, step.taken]
        self.inputs += [*map(int, [*zero, *step.counters]), step.flags["alive"]]
        self.outputs = [step.status, step.taken, *map(int, step.totals), *step.ends]
        self.common, apart = common, set(common)
        parts: list[Any] = [
            (self.program, "steps", loop, Columns(self.inputs, self.common, self.outputs)),
        ]
        self.inputs = [slot for slot in self.inputs if slot not in apart]
        start, self.common_at_start = None if kernels.start is None else kernels.start.rows, {}
        if start is not None:
            arguments = [int(slot) for place in step.args for slot in place.flat]
            last = start.map.inputs[start.inputs - len(arguments) :]
            slot_of = dict(zip(last, arguments, strict=True))
            common = sharable(start.program, [s for s in last if slot_of[s] in apart])
            self.common_at_start = {slot: slot_of[slot] for slot in common}
            parts.append((start.program, start.name, start.map, Columns(start.map.inputs, common)))
        if sample is not None:
            parts.append((sample.program, sample.name, sample.map, Columns(sample.map.inputs)))
        self.module = cupy.RawModule(code=emit_cuda.emit(parts, BLOCK), options=("--std=c++17",))
        self.width = len(loop.row)

    def launch(self, name: str, count: int, *arguments: Any) -> None:
        self.module.get_function(name)((-(-count // BLOCK),), (BLOCK,), (*arguments, np.int64(count)))

    def steps(self, inputs: tuple[Any, Any], summary: Any, plan: BatchPlan, rows: Any, count: int) -> None:
        """All steps of ``count`` systems; ``inputs`` are their own, and those that they share."""
        cupy = library()
        arrays = [cupy.asarray(x) for x in plan.lists]
        self.launch("steps", count, *inputs, summary, *arrays, rows, np.int64(0), np.int64(plan.last))

    def map(self, rows: RowFunction, columns: Any, common: Any) -> Any:
        """The function ``rows`` of columns (inputs, count) and of shared numbers: results (width, count)."""
        cupy = library()
        results = cupy.empty((rows.width, columns.shape[1]))
        self.launch(rows.name, columns.shape[1], cupy.ascontiguousarray(columns), common, results)
        return results


def run(
    kernels: Kernels,
    members: Members,
    plan: BatchPlan,
    begun: Callable[[Members], RunStart],
    done: Callable[[int], None],
) -> Results:
    """Run all members, as many at a time as fit into memory.

    If all fit at once, their records stay on the GPU until they are accessed.
    """
    sample = _sampler(kernels, plan)
    common = sharable(kernels.program(kernels.order)[0], kernels.step.slots_of(members.shared))
    key = (kernels.order, ("cuda", sample is not None, *common))
    if key not in kernels.codes:
        kernels.codes[key] = CudaCode(kernels, sample, plan, common)
    batch = CudaBatch(kernels, kernels.codes[key], sample, plan, begun)
    chunk, parts, tables = fitting(batch.numbers), [], []
    for first in range(0, len(members), chunk):
        found = batch.chunk(members[first : first + chunk])
        parts.append(found)
        if chunk < len(members):
            tables.append(found.records.column(slice(None)))
            parts[-1] = found._replace(records=None)
        done(len(found.t_alpha))
    return Results.joined(HostRecords(np.concatenate(tables)) if tables else parts[0].records, parts)


def fitting(numbers: int) -> int:
    """How many systems fit into the memory of the GPU, if each needs so many doubles."""
    cupy = library()
    free, _ = cupy.cuda.runtime.memGetInfo()
    free += cupy.get_default_memory_pool().free_bytes()
    count = int(SHARE * free / (8 * numbers))
    if count < 1:
        raise MemoryError(
            f"one system needs {8 * numbers} bytes on the GPU, but only {free} are free: keep fewer "
            "rows (save= or t_eval=)"
        )
    return count


def _sampler(kernels: Kernels, plan: BatchPlan) -> RowFunction | None:
    if plan.t_eval is None:
        return None
    dims = kernels.step.setup.dims
    shapes = ((), (dims.size,), (dims.n,), (dims.m,), (dims.p,))
    found = sampling.compiled(kernels.step.setup.system.space, shapes).rows
    if found is None:
        raise Unsupported("a space whose maps have no scalar form")
    return found


class DeviceStart(NamedTuple):
    """Members on the GPU before their first step.

    ``table`` (numbers, B) is their start, ``where`` has the places of its parts, ``trusted`` says which
    have good pivots. ``inputs`` are those of the steps: their own (numbers, B), and those that they share.
    """

    table: Any
    where: RunStart
    trusted: np.ndarray
    status: np.ndarray
    inputs: tuple[Any, Any]

    def pick(self, tree: Any) -> list[Any]:
        """Numbers of the start, by their places, as rows (B,) on the GPU."""
        return [self.table[int(i)] for x in jax.tree.leaves(tree) for i in np.ravel(x)]

    def numpy(self, place: Any) -> np.ndarray:
        """Numbers (B, ...) of the start, by their places."""
        flat = self.table[library().asarray(np.ravel(place))].get().T
        return flat.reshape(self.table.shape[1], *np.shape(place))


class CudaBatch:
    """A batch on the GPU, run in chunks."""

    def __init__(
        self,
        kernels: Kernels,
        code: CudaCode,
        sample: RowFunction | None,
        plan: BatchPlan,
        begun: Callable[[Members], RunStart] | None = None,
    ) -> None:
        self.kernels, self.code, self.sample, self.plan, self.begun = kernels, code, sample, plan, begun
        self.cupy, self.layout = library(), row.layout(kernels.step.setup)

    @property
    def numbers(self) -> int:
        """The most doubles that a system needs at a time."""
        size = lambda rows: 0 if rows is None else rows.width + len(rows.map.inputs)
        start = size(None if self.kernels.start is None else self.kernels.start.rows)
        start -= len(self.code.common_at_start)
        kept = len(self.plan.times)
        records = self.plan.records + (0 if self.sample is None else 2 * kept)
        return start + 2 * len(self.code.inputs) + records * self.code.width + 2 * kept * size(self.sample)

    def begin(self, members: Members) -> DeviceStart:
        """The start of some members."""
        cupy, plan, step, count = self.cupy, self.plan, self.kernels.step, len(members)
        table, where, trusted = self._started(members)
        inputs, common = cupy.zeros((len(self.code.inputs), count)), self._common(members, self.code.common)
        begun = DeviceStart(table, where, trusted.get(), np.zeros(0), (inputs, common))
        doubles = [cupy.asarray(x) for x in self._own(members, self.code.common)]
        values = [*begun.pick(step.start_values(where)), *(line for x in doubles for line in x)]
        values += begun.pick(where.begin.state[-2:])  # λ, ψ
        shared = [np.ravel(value) for _, value in plan.inputs(step)]
        values += [cupy.full(count, x) for x in np.concatenate([*shared, np.zeros(0)])]
        inputs[: len(values)] = cupy.stack(values)
        status = begun_status(plan, begun.numpy(where.status), begun.numpy(where.consistent))
        inputs[-1] = cupy.asarray(status == codes.SUCCESS)
        return begun._replace(status=status)

    def steps(self, begun: DeviceStart, rows: Any) -> Summary:
        """Take all steps. The records go to ``rows`` (K, width, B)."""
        count = rows.shape[2]
        summary = self.cupy.empty((len(self.code.outputs), count))
        self.code.steps(begun.inputs, summary, self.plan, rows, count)
        ended = dict(zip(self.code.outputs, summary.get(), strict=True))
        return self.plan.summary(self.kernels.step, ended.__getitem__)

    def chunk(self, members: Members) -> Results:
        """Run some members, from their start to their records."""
        cupy, plan, count = self.cupy, self.plan, len(members)
        begun = self.begin(members)
        where, first_status = begun.where, begun.status
        rows = cupy.full((plan.records, self.code.width, count), np.nan)
        if plan.has_start:
            rows[0] = cupy.stack(begun.pick(plan.start(self.layout, where.row[None])))
        found = self.steps(begun, rows)
        lost = np.broadcast_to(plan.unreached(found), (count, plan.records)).T
        if lost.any():
            rows = cupy.where(cupy.asarray(lost)[:, None, :], np.nan, rows)
        if self.sample is not None:
            rows = self._sampled(rows, cupy.stack(begun.pick(where.begin.state.v)).T[None])
        status = np.where(first_status != codes.SUCCESS, first_status, found.status)
        good = begun.trusted & (found.status != PIVOT)
        scale, t_alpha = jax.tree.map(begun.numpy, (where.begin.scale, where.t_alpha))
        return Results(DeviceRecords(rows), found._replace(status=status), t_alpha, good, scale)

    def _own(self, members: Members, common: Iterable[int]) -> Iterator[np.ndarray]:
        """The arguments as arrays (numbers, B), without those in the slots ``common``."""
        apart = set(common)
        for place, x in zip(self.kernels.step.args, members.doubles, strict=True):
            kept = np.array([slot not in apart for slot in place.flat], dtype=bool)
            flat = x.reshape(len(x), -1).T
            yield np.broadcast_to(flat if kept.all() else flat[kept], (kept.sum(), len(members)))

    def _common(self, members: Members, slots: Iterable[int]) -> Any:
        """The numbers of slots that all members share."""
        numbers = np.zeros(self.code.program.slots)
        for place, x, same in zip(self.kernels.step.args, members.doubles, members.shared, strict=True):
            if same:
                numbers[place.reshape(-1)] = x.reshape(-1)
        return self.cupy.asarray(np.append(numbers[list(slots)], 0.0))  # an array must not be empty

    def _started(self, members: Members) -> tuple[Any, RunStart, Any]:
        """The start of members as a table (numbers, B), the places of its parts, and which are good."""
        cupy, start, count = self.cupy, self.kernels.start, len(members)
        if start is None:
            assert self.begun is not None
            begin = self.begun(members)
            leaves, structure = jax.tree.flatten(begin)
            table = cupy.asarray(np.concatenate(_beside(begin, count)))
            shapes = [x.shape[1:] for x in leaves]
            ends = itertools.pairwise(np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)]))
            places = [np.arange(a, b).reshape(shape) for (a, b), shape in zip(ends, shapes, strict=True)]
            return table, jax.tree.unflatten(structure, places), cupy.ones(count, dtype=bool)
        assert start.rows is not None
        constant = lambda x: np.repeat(np.reshape(np.asarray(x, dtype=float), (-1, 1)), count, axis=1)
        columns = [
            constant(self.plan.t0),
            *_beside((members.q, members.v), count),
            *map(constant, jax.tree.leaves(self.plan.steps.first)),
            *self._own(members, self.code.common_at_start.values()),
        ]
        common = self._common(members, self.code.common_at_start.values())
        table = self.code.map(start.rows, cupy.asarray(np.concatenate(columns)), common)
        where, _ = start.rows.unpack(np.arange(start.rows.width))
        return table, where, table[-1] != 0

    def _sampled(self, rows: Any, v0: Any) -> Any:
        """Records (K, width, B) with the motion at the times of the plan."""
        cupy, plan, kept, count = self.cupy, self.plan, len(self.plan.times), rows.shape[2]
        column = lambda x: cupy.broadcast_to(cupy.asarray(x), (kept, count)).reshape(1, kept * count)
        flat = lambda x: x.transpose(2, 0, 1).reshape(x.shape[2], kept * count)
        spread = lambda node: [column(node.t), *map(flat, node[1:])]
        before, after, records = plan.around(self.layout, rows.transpose(0, 2, 1), v0, axis=0)
        columns = [*spread(before), *spread(after), column(plan.times[:, None])]
        assert self.sample is not None
        table = self.code.map(self.sample, cupy.concatenate(columns), cupy.zeros(1)).reshape(-1, kept, count)
        records = records.copy()
        self.layout.put(records, self.sample.unpack(table.transpose(1, 2, 0))[0])
        return records.transpose(0, 2, 1)


def _beside(tree: Any, count: int) -> list[np.ndarray]:
    """Arrays (B, ...) with the batch axis last."""
    return [np.asarray(x, float).reshape(count, -1).T for x in jax.tree.leaves(tree)]

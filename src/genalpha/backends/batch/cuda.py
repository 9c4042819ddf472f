"""Batches on a GPU through `cupy`: one thread a system, everything between start and result stays there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from genalpha.backends.batch.plan import BatchPlan, Members, Results, begun_status, paced_inputs, paced_status
from genalpha.backends.native import kernels as native
from genalpha.backends.native.controlled_step import ControlledKernels, SampledKernels
from genalpha.backends.native.step import PIVOT
from genalpha.backends.xla import given as xla
from genalpha.compiler import emit_cuda
from genalpha.compiler.rows import RowFunction
from genalpha.engine.step import Setup
from genalpha.mechanics import start_errors
from genalpha.numerics import codes

# Threads in a block, and the part of the free memory that one chunk may take.
BLOCK, SHARE = 128, 0.8
_ENDLESS = 2**62  # steps tried; members end by themselves


def library() -> Any:
    """`cupy`, with a GPU it can use."""
    advice = 'install the one for your CUDA, such as pip install "genalpha[cuda12]", or use backend="native"'
    try:
        import cupy
    except ImportError as error:
        raise ImportError(f'backend="cuda" needs the package cupy: {advice}') from error
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f'backend="cuda" found no GPU it can use ({error}): {advice}') from error
    if not devices:
        raise RuntimeError(f'backend="cuda" found no GPU: {advice}')
    return cupy


class CudaCode:
    """The kernels of a setup on the GPU."""

    def __init__(self, kernels: native.Kernels, evaluate: RowFunction, block: int = BLOCK) -> None:
        cupy = library()
        step = kernels.step
        self.program, loop = kernels.program(kernels.order)
        places = (step.carry, step.scale, step.args, step.parabola[0], step.output[:2])
        self.inputs = [int(s) for place in jax.tree.leaves(places) for s in place.reshape(-1)]
        # Memory and counters start at zero, the parabola without slope; a system starts alive.
        zero = [*step.parabola[1], *step.parabola[2], *step.memory, *step.totals, step.status, step.taken]
        self.outputs = [step.status, step.taken, *map(int, step.totals)]
        self.paced: list[int] = []
        if isinstance(step, ControlledKernels):
            zero += [step.kept, step.place, step.keep, step.flags["lost"]]
            control = jax.tree.leaves((step.tolerances, step.limits, step.until, step.room, step.every))
            self.paced = [*step.pace, *(int(s) for place in control for s in np.ravel(place))]
            self.paced += [step.due, step.sample] if isinstance(step, SampledKernels) else []
            self.outputs += [step.pace.t, step.pace.rejected, step.pace.status]
        self.inputs += [*self.paced, *map(int, zero), step.flags["alive"]]
        parts: list[Any] = [(self.program, {"steps": (loop, self.inputs, self.outputs)})]
        parts += [(r.program, {r.name: r.map}) for r in (kernels.start, evaluate) if r is not None]
        self.block = block
        self.module = cupy.RawModule(code=emit_cuda.emit(parts, block), options=("--std=c++17",))
        self.width = len(loop.row)

    def launch(self, name: str, count: int, *arguments: Any) -> None:
        self.module.get_function(name)(
            (-(-count // self.block),), (self.block,), (*arguments, np.int64(count))
        )

    def steps(self, inputs: Any, summary: Any, plan: BatchPlan, rows: Any, count: int) -> None:
        """All steps of ``count`` systems."""
        cupy = library()
        arrays = [cupy.asarray(x) for x in (plan.listed, plan.steps.h, plan.row_of)]
        first, last = np.int64(0), np.int64(len(plan.steps.h) if plan.aim is None else _ENDLESS)
        self.launch("steps", count, inputs, summary, *arrays, rows, first, last)

    def map(self, rows: RowFunction, columns: Any) -> Any:
        """``rows`` of columns (inputs, count): results (width, count)."""
        cupy = library()
        results = cupy.empty((rows.width, columns.shape[1]))
        self.launch(rows.name, columns.shape[1], cupy.ascontiguousarray(columns), results)
        return results


def code(kernels: native.Kernels, evaluate: RowFunction) -> CudaCode:
    key = (kernels.order, f"cuda {evaluate.name}")
    if key not in kernels.codes:
        kernels.codes[key] = CudaCode(kernels, evaluate)  # type: ignore[index,assignment]
    return kernels.codes[key]  # type: ignore[index,return-value]


def run(
    setup: Setup, kernels: native.Kernels, members: Members, plan: BatchPlan, begun: Callable[[Members], Any]
) -> Iterator[Results]:
    """All members, as many at a time as fit the memory."""
    cupy = library()
    evaluate = kernels.evaluation(plan.t_eval is not None)
    assert evaluate is not None
    compiled = code(kernels, evaluate)
    numbers = _numbers(kernels, compiled, evaluate, plan)
    free, _ = cupy.cuda.runtime.memGetInfo()
    free += cupy.get_default_memory_pool().free_bytes()
    chunk = int(SHARE * free / (8 * numbers))
    if chunk < 1:
        raise MemoryError(
            f"one system needs {8 * numbers} bytes on the GPU, and {free} are free: keep fewer rows (save=)"
        )
    for first in range(0, len(members), chunk):
        yield _chunk(kernels, compiled, evaluate, members[first : first + chunk], plan, begun)


def _numbers(kernels: native.Kernels, compiled: CudaCode, evaluate: RowFunction, plan: BatchPlan) -> int:
    """Doubles that a system needs at most at a time."""
    start = 0 if kernels.start is None else kernels.start.width + len(kernels.start.map.inputs)
    derived = evaluate.width + len(evaluate.map.inputs)
    records = plan.rows + (2 * len(plan.times) if plan.t_eval is not None else 0)
    return start + 2 * len(compiled.inputs) + records * compiled.width + 2 * len(plan.times) * derived


def _chunk(
    kernels: native.Kernels,
    compiled: CudaCode,
    evaluate: RowFunction,
    members: Members,
    plan: BatchPlan,
    begun: Callable[[Members], Any],
) -> Results:
    cupy = library()
    count, steps, setup = len(members), plan.steps, kernels.step.setup
    beside = lambda tree: [np.asarray(x, float).reshape(count, -1).T for x in jax.tree.leaves(tree)]
    if kernels.start is None:
        begin = begun(members)
        leaves, structure = jax.tree.flatten(begin)
        table = cupy.asarray(np.concatenate(beside(begin)))
        shapes = [x.shape[1:] for x in leaves]
        ends = itertools.pairwise(np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)]))
        places = [np.arange(a, b).reshape(shape) for (a, b), shape in zip(ends, shapes, strict=True)]
        where = jax.tree.unflatten(structure, places)
        trusted = cupy.ones(count, dtype=bool)
    else:
        constant = lambda x: np.repeat(np.reshape(np.asarray(x, dtype=float), (-1, 1)), count, axis=1)
        columns = [
            constant(steps.t[0]),
            *beside((members.q, members.v)),
            *map(constant, jax.tree.leaves(plan.first)),
            *beside(members.doubles),
        ]
        table = compiled.map(kernels.start, cupy.asarray(np.concatenate(columns)))
        where, _ = kernels.start.unpack(np.arange(kernels.start.width))
        trusted = table[-1] != 0
    pick = lambda tree: [table[int(i)] for x in jax.tree.leaves(tree) for i in np.ravel(x)]
    doubles = [cupy.asarray(x) for x in beside(members.doubles)]
    scale = pick(where.begin.scale)
    values = [*pick(where.carry), *scale, *(row for x in doubles for row in x), *pick(where.x)]
    values += pick(where.begin.state[-2:])  # λ, ψ
    step = kernels.step
    if isinstance(step, ControlledKernels):
        shared = np.concatenate([np.ravel(value) for _, value in paced_inputs(step, plan)])
        values += [*pick(where.pace), *(cupy.full(count, x) for x in shared)]
    inputs = cupy.zeros((len(compiled.inputs), count))
    inputs[: len(values)] = cupy.stack(values)
    alike = np.array(True)
    if kernels.massless and not kernels.step.setup.system.constant_mass:
        masses = cupy.stack(pick(where.begin.M)).get().T.reshape(count, *where.begin.M.shape)
        alike = np.array([start_errors.is_singular(M) for M in masses])
    status, consistent = (table[int(i)].get() for i in (where.status, where.consistent))
    first_status = begun_status(plan, status, consistent)
    inputs[-1] = cupy.asarray(first_status == codes.SUCCESS)
    rows = cupy.full((plan.rows, compiled.width, count), np.nan)
    if plan.has_start:
        rows[0] = cupy.stack(pick(plan.start(setup, where.row[None])))
    summary = cupy.empty((len(compiled.outputs), count))
    compiled.steps(inputs, summary, plan, rows, count)
    status, taken, totals = summary[0].get(), summary[1].get(), summary[2:5].get().T
    rejected, t_end = np.zeros(count), np.zeros(count)
    if plan.aim is None:
        t_end = plan.ends[taken.astype(int)]
    if isinstance(step, ControlledKernels):
        t_end, rejected, ended = summary[5:].get()
        at = {step.pace.t: t_end, step.pace.status: ended, step.status: status}
        status = paced_status(step, plan, at)
        if plan.t_eval is None:
            rows[:, :, cupy.asarray(status != codes.SUCCESS)] = np.nan
    v0 = cupy.stack(pick(where.begin.state.v)).T[None]
    rows, derived, good = _derive(setup, compiled, evaluate, plan, rows, v0, scale, doubles)
    fine = (good | cupy.isnan(rows[:, 0])).all(axis=0) & trusted
    return Results(
        table=rows.transpose(2, 0, 1).get(),
        derived=derived,
        t_alpha=table[int(where.t_alpha)].get(),
        status=np.where(first_status != codes.SUCCESS, first_status, status),
        t_end=t_end,
        trusted=fine.get() & alike & (status != PIVOT),
        taken=taken,
        totals=totals,
        rejected=rejected,
    )


def _derive(
    setup: Setup,
    compiled: CudaCode,
    evaluate: RowFunction,
    plan: BatchPlan,
    rows: Any,
    v0: Any,
    scale: list[Any],
    doubles: list[Any],
) -> tuple[Any, xla.Derived, Any]:
    """The rows of the solution (K, width, B), what follows from them with the batch axis first, and where it
    is good (K, B)."""
    cupy = library()
    kept, count = len(plan.times), rows.shape[2]
    column = lambda x: cupy.broadcast_to(cupy.asarray(x), (kept, count)).reshape(1, kept * count)
    flat = lambda x: x.transpose(2, 0, 1).reshape(x.shape[2], kept * count)
    spread = lambda node: [column(node.t), *map(flat, node[1:])]
    records, times = rows.transpose(0, 2, 1), [column(plan.times[:, None])]
    if plan.t_eval is None:
        at = xla.columns(setup, records, None)
        columns = [*times, *map(flat, (at.q, at.v, at.lam, at.psi))]
    else:
        before, after, records = plan.around(setup, records, v0, axis=0)
        columns = [*spread(before), *spread(after), *times]
    columns += [cupy.tile(x, kept)[None] for x in scale] + [cupy.tile(x, (1, kept)) for x in doubles]
    table = compiled.map(evaluate, cupy.concatenate(columns)).reshape(-1, kept, count).transpose(1, 2, 0)
    good = table[..., -1] != 0
    if plan.t_eval is not None:
        records, (at, _) = records.copy(), evaluate.unpack(table)[0]
        xla.put(setup, records, at)
    found, _ = evaluate.unpack(table.transpose(1, 0, 2).get())
    return records.transpose(0, 2, 1), found if plan.t_eval is None else found[1], good

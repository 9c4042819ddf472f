"""Runs under a JAX transform by machine code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.cache import program
from genalpha.backends.native.kernels import UNROLLED
from genalpha.backends.sparse import front as sparse
from genalpha.backends.transforms.base_run import RunOperation
from genalpha.backends.transforms.controlled_runs import ControlledRun, sampling
from genalpha.backends.transforms.device import CudaRun
from genalpha.backends.transforms.projections import Projection
from genalpha.backends.transforms.records import Found
from genalpha.backends.transforms.rows import RowOperation
from genalpha.backends.transforms.runs import GivenRun
from genalpha.backends.transforms.sparse_rows import SparseDerived, SparseSampling
from genalpha.backends.transforms.sparse_runs import SparseControlledRun, SparseGivenRun
from genalpha.compiler.graph import Unsupported
from genalpha.engine import interpolate, row
from genalpha.engine import start as starts
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived, Errors, Rows
from genalpha.engine.setup import Setup
from genalpha.engine.steps import MOST_STEPS, MOST_TRACED, Controlled, Given
from genalpha.mechanics.initial_values import Held
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import Scale
from genalpha.numerics.derivatives import blanked
from genalpha.results import assemble
from genalpha.results.assemble import Ending, Work
from genalpha.results.deferred import Deferred, value
from genalpha.results.phases import Phase, Phases
from genalpha.results.solution import Solution
from genalpha.run.closures import opened
from genalpha.run.request import Request


class TracedConstant(Unsupported):
    """An argument that must be known is traced."""


def separated(args: Args) -> tuple[list[Any], Callable[[list[Any]], Args], tuple[Any, ...]]:
    """The leaves of ``args`` that hold doubles, which may be traced, a function that replaces them, the rest.

    Raises :class:`TracedConstant` if another leaf is traced.
    """
    named, structure = jax.tree_util.tree_flatten_with_path(args)
    leaves = [x for _, x in named]
    double = [jnp.result_type(x) == jnp.float64 for x in leaves]
    rest = [x for x, yes in zip(leaves, double, strict=True) if not yes]
    for (path, x), yes in zip(named, double, strict=True):
        if isinstance(x, jax.core.Tracer) and not yes:
            raise TracedConstant(
                f"args{jax.tree_util.keystr(path)} is traced and of type {x.dtype.name}, but only doubles "
                "are inputs of machine code. Convert it, or pass a known number"
            )
    fixed = [np.asarray(x) for x in rest]

    def rebuild(doubles: list[Any]) -> Args:
        some, others = iter(doubles), iter(fixed)
        return jax.tree.unflatten(structure, [next(some if yes else others) for yes in double])

    about = (structure, tuple(double), tuple((x.shape, x.dtype.str, x.tobytes()) for x in fixed))
    return [x for x, yes in zip(leaves, double, strict=True) if yes], rebuild, about


def refusal(asked: Request) -> str:
    """Why machine code cannot take a run under a transform; empty if it can, as far as is known."""
    setup, steps = asked.setup, asked.steps
    if asked.backend == "xla":
        return "backend='xla'"
    if isinstance(steps, Controlled) and (asked.output.every > 1 or asked.output.dense):
        return "some steps of a run under error control, or dense output, under a JAX transform"
    if isinstance(steps, Controlled) and asked.backend == "cuda":
        return "error control under a JAX transform"
    if isinstance(steps, Given) and steps.steps.project is not None:
        return "projections of the velocity under a JAX transform"
    if setup.system.reaction is not None and asked.start.guess is not None:
        return "a guess of multipliers under a JAX transform"
    size = sum(setup.method.sizes(setup.dims).values())
    if size > UNROLLED and (asked.backend == "cuda" or not sparse.wanted(setup, steps)):
        return f"{size} unknowns under a JAX transform"
    return ""


def run(asked: Request) -> Solution:
    """The solution. Raises :class:`Unsupported` if only XLA can compute it."""
    reason = refusal(asked)
    if reason:
        raise Unsupported(reason)
    if asked.start.closes_over_traced:
        asked = opened(asked)
    setup, start, steps = asked.setup, asked.start, asked.steps
    doubles, rebuild, about = separated(asked.args)
    shapes = tuple(jnp.shape(x) for x in doubles)
    strict, (at, code) = start.mode == "check", placed(asked)
    keep = _keep(asked)
    key = ("native, traced", *setup[1:], strict, about, shapes, keep)
    if isinstance(steps, Controlled):
        most = steps.rows(MOST_TRACED if keep[0] == "all" else MOST_STEPS)
        bounded = dataclasses.replace(jax.lax.stop_gradient(steps), most=most)
        kind: Any = SparseControlledRun if sparse.wanted(setup, steps) else ControlledRun
        make = lambda: kind(setup, strict, doubles, rebuild, bounded, keep[0])
        made = operation(setup, (*key, most), make)
        times = [] if asked.output.t_eval is None else [asked.output.t_eval]
        found = made.run(*times, asked.span[0], *at, *jax.tree.leaves(bounded), *doubles)
        return _OfControlled(asked, found, doubles, rebuild, key).solution(code)
    final = "final" in keep
    kind = CudaRun if asked.backend == "cuda" else SparseGivenRun if sparse.wanted(setup, steps) else GivenRun
    made = operation(setup, (*key, kind), lambda: kind(setup, strict, doubles, rebuild, final))
    found = made.run(*asked.span, *at, steps.steps.t, steps.steps.h, *doubles)
    return FromRecords(asked, found, doubles, rebuild, key).solution(code)


def placed(asked: Request) -> tuple[tuple[Any, Any], Any]:
    """q and v at the start, on the constraints if wanted, and a status or None."""
    setup, start = asked.setup, asked.start
    if start.mode != "project":
        return (start.q, start.v), None
    t, by_xla = jnp.asarray(asked.span[0], float), _projected(start.held)
    doubles, rebuild, about = separated(asked.args)
    key = ("project, native", start.held, about, tuple(jnp.shape(x) for x in doubles))
    make = lambda: Projection(setup, start.held, by_xla, doubles, rebuild)
    try:
        q, v, code = operation(setup, key, make)(t, start.q, start.v, *doubles)
        return (q, v), code.astype(int)
    except Unsupported:
        project = program(setup, ("project, traced", start.held), by_xla, outermost=False)
        q, v, code = project(t, start.q, start.v, asked.args)
        return (q, v), code


def _projected(held: Held) -> Callable[..., Any]:
    """The nearest start on the constraints, and a status. Without one, it is NaN."""

    def project(setup: Setup, t: Any, q: Any, v: Any, args: Args) -> Any:
        q, v, code = starts.project(setup, t, setup.system.space.normalize(q), v, args, held)
        bad = code != codes.SUCCESS
        return blanked(bad, q), blanked(bad, v), code

    return project


def _keep(asked: Request) -> tuple[str, ...]:
    """Which rows a run returns. With given steps they are all, or the last one."""
    if not isinstance(asked.steps, Controlled):
        return ("final",) if asked.output.every == 0 and not asked.output.dense else ()
    return ("times",) if asked.output.t_eval is not None else ("final" if asked.output.every == 0 else "all",)


def operation(setup: Setup, key: Any, make: Callable[[], Any]) -> Any:
    """An operation, made once. Raises :class:`Unsupported` if it cannot be made."""
    found = setup.system._programs.made(key, lambda: _made(make))
    if isinstance(found, str):
        raise Unsupported(found)
    return found


def _made(make: Callable[[], RunOperation]) -> RunOperation | str:
    try:
        return make()
    except Unsupported as reason:
        return str(reason)


class FromRecords:
    """Makes a solution of the records of a run. Other quantities are computed when they are asked for.

    ``happened`` are the events, by quantity. ``changed`` are the doubles of each row if resets change them.
    """

    happened: dict[str, list[Any]] | None = None
    changed: list[Any] | None = None

    def __init__(
        self, asked: Request, found: Found, doubles: list[Any], rebuild: Callable[[list[Any]], Args], key: Any
    ) -> None:
        self.asked, self.found, self.doubles, self.rebuild, self.key = asked, found, doubles, rebuild, key
        self.setup: Setup = asked.setup

    def _operation(self, name: str, make: Callable[[], Any]) -> Any:
        return self.setup.system._programs.made((name, *self.key), make)

    def derive(self, ends: StepEnd, own: list[Any] | None = None) -> Derived:
        """The quantities derived from rows (K, ...), each with its own doubles (K, ...) if they are given."""
        setup, dims, rebuild, scale = self.setup, self.setup.dims, self.rebuild, self.found.scale
        if own is None and sparse.wanted(setup, self.asked.steps):
            whole = self._operation("derive", lambda: SparseDerived(setup, self.doubles, rebuild))
            return whole.apply(ends, scale, self.doubles)
        zeros = lambda *shape: np.zeros(shape)

        def one(at: StepEnd, scale: Any, x: Any) -> Derived:
            cut = np.cumsum([dims.n, dims.m])
            return row.derive_row(setup, at, Scale(*jnp.split(scale, cut)), rebuild(x), quick=True)

        def make() -> RowOperation:
            at = StepEnd(zeros(), zeros(dims.size), zeros(dims.n), zeros(dims.m), zeros(dims.p))
            example = (at, zeros(dims.n + dims.m + dims.p), [zeros(*jnp.shape(x)) for x in self.doubles])
            shared = [False] * 5 + [own is None] * (1 + len(self.doubles))
            return RowOperation("derive", one, example, shared)

        if own is None:
            return self._operation("derive", make).apply(ends, scale, self.doubles)
        wide = jnp.broadcast_to(scale, (len(ends.t), *scale.shape))
        return self._operation("derive, own doubles", make).apply(ends, wide, own)

    def sample(self, ends: StepEnd, times: Any) -> StepEnd:
        """The motion at some times (K,), between the ends of steps (N+1, ...)."""
        kind: Any = SparseSampling if sparse.wanted(self.setup, self.asked.steps) else sampling
        steps, make = interpolate.steps_of(ends.t, times), lambda: kind(self.setup)
        pick = lambda i: StepEnd(*(jnp.asarray(x)[i] for x in ends))
        before, after = pick(jnp.maximum(steps - 1, 0)), pick(steps)
        return StepEnd(times, *self._operation("sample", make).apply(before, after, jnp.asarray(times)))

    def kept(self) -> tuple[StepEnd, Callable[[Any], Any], StepEnd | None]:
        """The rows of the solution, a function that picks rows, and the ends of all steps if kept apart."""
        found, keep = self.found, self.asked.output
        t = self.asked.steps.times  # type: ignore[union-attr]
        ends = found.ends(t)
        apart = ends if keep.dense and not keep.complete else None
        if keep.t_eval is not None:
            times = jnp.asarray(keep.t_eval)
            steps = interpolate.steps_of(t, times)
            return self.sample(ends, times), lambda x: x[steps], apart
        if keep.every == 1:
            return ends, lambda x: x, apart
        if len(found.rows.q) == 1:  # only the last row has left the run
            return StepEnd(t[-1:], *ends[1:]), lambda x: x[-1:], None
        chosen = keep.rows(len(t) - 1)
        return StepEnd(*(x[chosen] for x in ends)), lambda x: x[chosen], apart

    def errors(self) -> Errors | None:
        return None

    def solution(self, before: Any = None) -> Solution:
        """The solution; ``before`` is a status of what came before the run, if anything did."""
        asked, found, keep = self.asked, self.found, self.asked.output
        kept, whole, apart = self.kept()
        report = Deferred(lambda: assemble.history(whole(found.rows.report)))
        if keep.t_eval is None and keep.every == 1:
            report = report.then(assemble.without_start)
        rows = Rows(kept.q, kept.v, whole(found.rows.a_alpha), kept.lam, kept.psi, {}, None)
        quantities = assemble.recorded(rows, self.errors()) | {"newton": report}
        quantities["extra"] = {name: whole(x) for name, x in found.rows.extra.items()}
        quantities |= assemble.derived(Deferred(lambda: self.derive(kept, self.changed)))
        if keep.names is not None:
            named = {name: keep.chosen(name, value(quantities[name])) for name in keep.names}
            quantities = dict.fromkeys(quantities) | named
        number = {name: x.astype(int) for name, x in found.numbers.items() if not name.startswith("t_")}
        status, taken, rejected, *totals = number.values()
        status = status if before is None else codes.first(before, status)
        backend = "cuda" if asked.backend == "cuda" else "native"
        ending = Ending(status, found.numbers["t_end"], Work(taken, rejected, *totals), backend)
        t_alpha = Deferred(self.t_alpha).then(whole)
        sol = assemble.solution(
            self.setup, quantities, kept.t, t_alpha, ending, keep.complete, apart, self.happened
        )
        if self.changed is not None:  # what holds between the rows is not known
            return sol
        sizes, equations = (self.setup.dims.m, self.setup.dims.p), self.derive
        phase = Phase(self.setup.system, asked.args, *asked.span, slice(0, len(kept.t)), equations, sizes)
        return sol.connected(None, Phases([phase]))

    def t_alpha(self) -> Any:
        steps = self.asked.steps
        t, h = jnp.asarray(steps.times), jnp.append(0.0, steps.steps.h)  # type: ignore[union-attr]
        return (t + self.setup.method.alpha * h).at[0].set(self.found.numbers["t_alpha"])


class _OfControlled(FromRecords):
    """The same for error control, where the operation has picked the rows."""

    def kept(self) -> tuple[StepEnd, Callable[[Any], Any], StepEnd | None]:
        found, times = self.found, self.asked.output.t_eval
        return found.ends(found.timing[0] if times is None else jnp.asarray(times)), lambda x: x, None

    def errors(self) -> Errors | None:
        return row.layout(self.setup).split_errors(self.found.timing[2])

    def t_alpha(self) -> Any:
        t, h, _ = self.found.timing
        found = t + self.setup.method.alpha * h
        first = self.found.numbers["t_alpha"]
        return jnp.where(t == jnp.asarray(self.asked.span[0]), first, found)

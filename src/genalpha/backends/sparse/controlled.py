"""Steps of large assemblies under error control, as far as they differ from given steps."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.writer import ITERATION, PIVOT, RUN, STEP, ids
from genalpha.backends.sparse.central import Central
from genalpha.backends.sparse.code import SparseCode
from genalpha.backends.sparse.kinds import Kind
from genalpha.backends.sparse.points import DEFECTS, NodePoints
from genalpha.compiler.differentiate import along
from genalpha.compiler.graph import ZERO
from genalpha.compiler.program import Call, If, Instructions
from genalpha.compiler.reader import Symbols, inline
from genalpha.compiler.repeated import Add, Clear, Copy, Each, Gather, Put, Record, Solve, Total, Zero
from genalpha.compiler.substitute import substitution
from genalpha.engine import controller
from genalpha.engine.controller import Limits, Pace, Tolerances
from genalpha.engine.error_estimate import Linearized, linearized
from genalpha.engine.step import close_step
from genalpha.numerics import codes, newton
from genalpha.numerics.data import Carry, StepOutput


class ControlledKind(Kind):
    """Kernels that try a step, estimate its error, and make it the last step if it is accepted.

    ``d`` are the slots of the response of the unknowns to the defect of a step. For nodes, ``tolerances`` are
    the slots of tolerances, ``weight`` is 1 in lanes that hold a node, ``errors`` and ``squares`` are the
    slots of errors and of the sum of their squares. ``tried`` are the slots of the method's own variables.
    """

    def _new_own(self) -> dict[str, np.ndarray]:
        self.tried = jax.tree.map(lambda s: self.builder.slot(s.size).reshape(s.shape), self.own)
        return self.tried

    def _read_back(self, step: Any) -> Any:
        """The same with the coasting motion in slots of its own, so that rows have derivatives along it."""
        if self.model.element is None:
            return step
        coast = np.concatenate([step.coast_q.ids, step.coast_v.ids])
        slots = self.builder.slot(len(coast))
        self._coast, self._coasting = self.builder.inputs(slots, ITERATION), coast
        self._coast_slots = slots
        q, v = (Symbols(ids, "f") for ids in np.split(self._coast, 2))
        return step._replace(coast_q=q, coast_v=v)

    def _prepare(self, sizes: Any) -> None:
        """The same, with the coasting motion as far as it is read."""
        if not self.is_node:
            stored = [i for _, _, stores in self.builder.wanted for i in stores.values()]
            read = np.isin(self._coast, self.graph.reachable(stored))
            self.prepared.append((self._coast_slots[read], self._coasting[read]))
        super()._prepare(sizes)

    def _rare(self) -> list[str]:
        return [*super()._rare(), *(self.kernel(f"disturb{stage}") for stage in range(len(self.disturbed)))]

    def stand_ins(self) -> dict[int, int]:
        if self.is_node:
            return {}
        coast = dict(zip(self._coast.tolist(), self._coasting.tolist(), strict=True))
        reached = super().stand_ins()  # expressions of the coasting motion, among others
        found = substitution(self.graph, coast)(np.array([*reached.values()], dtype=np.int64))
        return dict(zip(reached, found.tolist(), strict=True)) | coast

    def _more(self, carry: Any, step: Any, x: Symbols, scale: Any, doubles: Any, after: Any) -> None:
        real = self._real(self.blocks.unknowns)
        self.d = self.builder.slot(len(self.x))
        d = np.full(real.size, ZERO, dtype=np.int64)
        d[real] = self.builder.inputs(self.d, ITERATION)
        if isinstance(self.points, NodePoints):
            bracket, method = self.model.space.bracket, self.setup.method
            defect = lambda a1, carry, step: jnp.concatenate(method.defect(bracket, carry, step, a1))
            a1 = Symbols(after.a, "f")
            self.points.store(DEFECTS, inline(self.graph, defect, a1, carry, step), self.kernel)
            self._errors((a1, carry, step, x, scale, doubles), Symbols(d, "f"), after)
        else:
            assert self.setup.method.exact_matrix
            both = [np.split(np.array(row), 2) for row in self.points.read(DEFECTS)]
            caused = np.concatenate([defect[k] for k in (0, 1) for defect in both])
            for stage in range(self.blocks.stages):
                self._disturb(stage, caused, d[real])
        pairs = [(self.own[name], self.builder.inputs(s, ITERATION)) for name, s in self.tried.items()]
        self.builder.kernel(self.kernel("accept"), ITERATION, *pairs)

    def _around(self, a1: Any, carry: Carry, step: Any, x: Any, scale: Any, data: Any) -> Linearized:
        system = self.model.system(
            jax.tree.unflatten(jax.tree.structure(self.model.data), data), self.setup.dims
        )
        setup = self.setup._replace(system=system, dims=self.dims)
        return linearized(setup, scale, carry, step, x, a1, ())

    def _disturb(self, stage: int, caused: np.ndarray, d: np.ndarray) -> None:
        """Write the kernel for what the defect does to the rows of a stage, less what earlier stages do."""
        here = np.flatnonzero(self._stages(self.blocks.rows) == stage)
        before = self._stages(self.blocks.unknowns) < stage
        variables = np.concatenate([self._coast, self.variables[before]])
        response = np.array([self.graph.neg(i) for i in d[before].tolist()], dtype=np.int64)
        value = along(self.graph, self.value[here], variables, np.concatenate([caused, response]))
        used = np.flatnonzero(value != ZERO)
        self.disturbed.append(here[used])
        slots = self.builder.slot(len(used))
        self.disturbed_slots = [*getattr(self, "disturbed_slots", []), slots]
        self.builder.kernel(self.kernel(f"disturb{stage}"), ITERATION, (slots, value[used]))

    def _errors(self, parts: Any, d: Symbols, after: Any) -> None:
        """Write the kernel for the errors of nodes, and for the sum of their squares."""
        n = self.dims.n
        counted = n + int(self.model.space.moved(n).sum())
        self.tolerances, self.weight = (
            Tolerances(*(self.builder.slot(n) for _ in range(4))),
            self.builder.slot(1),
        )
        tolerances = self._inputs(self.tolerances, RUN)
        weight = Symbols(self.builder.inputs(self.weight, RUN), "f")
        self.errors, self.squares = self.builder.slot(2 * n), self.builder.slot(1)

        def errors(d: Any, tolerances: Any, weight: Any, q: Any, v: Any, *parts: Any) -> Any:
            found = self._around(*parts).errors(d)
            carry = parts[1]
            reached = carry._replace(q=q, v=v)
            norm = controller.norm(self.model.space, tolerances, carry, reached, found)
            return found, weight[0] * counted * norm**2

        q, v = Symbols(after.q, "f"), Symbols(after.v, "f")
        found, squares = inline(self.graph, errors, d, tolerances, weight, q, v, *parts)
        stores = ((self.errors, found), (self.squares, squares.reshape(1)))
        self.builder.kernel(self.kernel("errors"), ITERATION, *stores)

    # --- instructions -----------------------------------------------------------------------------

    def attempt(self, turns: int) -> Each:
        """Compute what a step leads to, without writing it anywhere but in the frame."""
        return self.each(*self._at_end("finish"), *self._turned(turns))

    def disturb(self, stage: int) -> list[Each]:
        if self.model.element is None or not len(self.disturbed[stage]):
            return []
        slots = self.disturbed_slots[stage]
        add = Add(int(slots[0]), len(slots), f"{self.name}:disturbed{stage}")
        reads = [self._response(), *self._of_nodes(f"disturb{stage}")]
        return [self.each(*reads, Call(self.kernel(f"disturb{stage}")), add)]

    def _response(self) -> Gather:
        return Gather(int(self.d[0]), len(self.d), f"{self.name}:d")

    def estimate(self, squares: int) -> list[Each]:
        if self.model.element is not None:
            return []
        put = Put(int(self.errors[0]), len(self.errors), f"{self.name}:errors")
        total = Total(int(self.squares[0]), squares)
        return [self.each(self._response(), Call(self.kernel("errors")), put, total)]

    def accept(self) -> Each:
        own = [Call(self.kernel("accept"))] if self.own else []
        return self.each(*self._put(), *own, *self._put_own())


class ControlledCentral(Central):
    """The central program under error control: it accepts or rejects steps, and chooses their sizes.

    ``times`` begin with t and h of ``pace``. ``next`` is the pace after the step. ``timing`` are the slots of
    the end and the size of a step and of the norm of its error, as in a record.
    """

    def _extend(self) -> None:
        slot = self.builder.slot
        one = lambda: int(slot(1)[0])
        t, h = map(int, self.times[:2])
        self.pace = Pace(t, h, *(one() for _ in Pace._fields[2:]))
        self.next = Pace(*(one() for _ in Pace._fields))
        self.limits = Limits(*(one() for _ in Limits._fields))
        self.timing, self.squares = slot(3), one()
        self.end_time = int(self.timing[0])
        self.flags |= {name: one() for name in ("lost", "accepted", "keep")}
        self.until, self.room, self.every, self.kept, self.place = (one() for _ in range(5))

    def _ends(self, n: newton.Numbers, unfinished: Any, converged: Any, astray: Any) -> list[Any]:
        pivot = n.status == PIVOT
        return [converged, ~pivot, astray, ~(unfinished | converged | pivot)]

    end_flags = ("converged", "alive", "astray", "lost")

    def _finish(self, numbers: newton.Numbers) -> None:
        setup = self.setup
        scalars = lambda tree, level: jax.tree.map(lambda s: self._inputs(s, level), tree)
        at = scalars((self.pace, self.taken, self.kept), STEP)
        totals = self._inputs(self.totals, STEP)
        noise = self._inputs(self.memory[1], STEP)
        given = scalars((self.limits, self.until, self.room, self.every), RUN)

        def onward(n: Any, course: Any, totals: Any, accepted: Any, after: Pace) -> Any:
            (_, taken, kept), (limits, *asked) = course
            counts = jnp.stack(newton.counted(n))
            now = controller.counted(limits, asked, taken, kept, accepted, after)
            flags = jnp.stack([now.alive, accepted, now.keep]).astype(float)
            return jnp.stack(after), counts, totals + counts, *now[:3], flags

        def close(n: Any, course: Any, totals: Any, squares: Any, turns: Any, noise: Any) -> Any:
            (pace, *_), (limits, *_) = course
            none = jnp.zeros(0)
            output = StepOutput(none, none, none, turns[None] if self.has_turns else none)
            status = close_step(jnp.array(codes.SUCCESS), output).astype(float)
            counted = setup.dims.n + int(setup.system.space.moved(setup.dims.n).sum())
            size = jnp.sqrt(squares / counted)
            accepted, after = controller.judged(limits, pace, size, status, n.near_singular > 0)
            fit, new_noise = newton.remembered(setup.newton, n, large=True)
            fit = jnp.where(status == codes.SUCCESS, fit, 0.0)
            memory = jnp.stack([fit, jnp.where(accepted, new_noise, noise)])
            timing = jnp.stack([after.t, pace.h, size])
            return memory, timing, *onward(n, course, totals, accepted, after)

        squares, turns = self._inputs(self.squares, ITERATION), self._inputs(self.turns, ITERATION)
        closed = ids(self._inline(close, numbers, (at, given), totals, squares, turns, noise))
        places = [self.memory, self.timing, *self._onward()]
        self.builder.kernel("finish", ITERATION, *zip(places, closed, strict=True))

        def retreat(n: Any, course: Any, totals: Any) -> Any:
            (pace, *_), (limits, *_) = course
            nan = jnp.array(jnp.nan)
            accepted, after = controller.judged(
                limits, pace, nan, newton.final_status(n), n.near_singular > 0
            )
            return jnp.zeros(()), *onward(n, course, totals, accepted, after)

        found = ids(self._inline(retreat, numbers, (at, given), totals))
        self.builder.kernel(
            "retreat", ITERATION, *zip([self.memory[:1], *self._onward()], found, strict=True)
        )
        self._go()

    def _onward(self) -> list[Any]:
        flags = [self.flags[name] for name in ("alive", "accepted", "keep")]
        single = (self.taken, self.kept, self.place)
        return [np.array(self.next), self.counts, self.totals, *map(np.array, single), np.array(flags)]

    def _go(self) -> None:
        """Write the kernel that goes on to the next step, or to a shorter one."""
        method, none = self.setup.method, cast(Any, np.zeros(0))
        times, after = self._inputs(self.times, STEP), self._inputs(np.array(self.next), ITERATION)
        accepted = self._inputs(self.flags["accepted"], ITERATION)

        def go(times: Any, after: Any, accepted: Any) -> Any:
            new = [jnp.where(accepted > 0, times[1], times[2])[None]]
            if self.adjusts:
                lag: Any = method.lag(Carry(none, none, none, times[2], none, times[3:]), times[1])
                new.append(jnp.where(accepted > 0, lag, times[3:]))
            return after, jnp.concatenate(new)

        found = ids(self._inline(go, times, after, accepted))
        self.builder.kernel("go", ITERATION, *zip([np.array(self.pace), self.times[2:]], found, strict=True))


class ControlledCode(SparseCode):
    """The code of steps under error control."""

    controlled, kind, center = True, ControlledKind, ControlledCentral
    kinds: list[ControlledKind]  # type: ignore[assignment]
    central: ControlledCentral

    def _listed(self) -> None:
        return None

    def _ends(self, kind: ControlledKind) -> Instructions:
        central = self.central
        disturb = [each for k in range(self.blocks.stages) for each in kind.disturb(k)]
        return [kind.attempt(central.turns), *disturb, *kind.estimate(central.squares), kind.accept()]

    def _body(self) -> Instructions:
        """One attempt: `attempt`."""
        central, stream, flags = self.central, self.stream, self.central.flags
        estimates = [f"disturb{k}" for k in range(self.blocks.stages)]
        tried: list[Any] = [Zero(central.turns, 1), *self.reach("finish", *estimates)]
        tried += [kind.attempt(central.turns) for kind in self.kinds]
        tried.append(Zero(central.squares, 1))
        for k in range(self.blocks.stages):
            rows = [each for kind in self.kinds for each in kind.disturb(k)]
            tried += [Clear(f"r:{k}"), *rows, Solve(f"lu{k}", "r", "d")]
        tried += [each for kind in self.kinds for each in kind.estimate(central.squares)]
        accept = (
            *(kind.accept() for kind in self.kinds),
            stream.move(central),
            *central.watched.instructions(),
        )
        timing = range(int(central.timing[0]), int(central.timing[-1]) + 1)
        return (
            *self._solved(),
            If(flags["converged"], (*tried, Call("finish"), If(flags["accepted"], accept), Call("go"))),
            If(flags["lost"], (Call("retreat"), Call("go"))),
            If(
                flags["keep"],
                (*self._counts(), Copy(timing, "timing"), Record(central.place), Zero(flags["keep"], 1)),
            ),
        )


class TapedControlledCode(ControlledCode):
    """The same with records that serve derivatives."""

    taped = True

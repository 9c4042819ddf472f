"""The kernels of one kind of thing: once, prepare, matrix, residual, finish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.native.writer import ITERATION, RUN, STEP
from genalpha.backends.sparse.carried import begun
from genalpha.backends.sparse.models import BlockPlace, Blocks, KindModel, counts
from genalpha.backends.sparse.points import NodePoints, PartPoints, Reached
from genalpha.backends.sparse.shared_kinds import SharedKind
from genalpha.compiler.differentiate import jacobian
from genalpha.compiler.graph import ONE, ZERO, Graph
from genalpha.compiler.program import PIECE, Builder, Call, Program, cut
from genalpha.compiler.reader import Symbols, inline
from genalpha.compiler.repeated import Add, Each, Gather, Inside, Keep, Largest, Put, Spread
from genalpha.engine.setup import Setup
from genalpha.engine.step import sizes_of_motion
from genalpha.mechanics.spaces import Space
from genalpha.methods.base import Method
from genalpha.numerics.data import Carry, Scale

# The most operations of the kernels of one kind.
LIMIT = 200_000
NOTHING = np.zeros(0, int)


class Traced(NamedTuple):
    """The expressions of a step for one copy, as nodes: what it reads, and what it leads to.

    ``carried`` are q, v, a and a_old of its nodes, ``own`` the method's own variables, ``times`` the start
    and the size of the step, the size of the last one, and lags. ``x`` are its unknowns, ``value`` the rows
    of its residual. ``found`` are the motion or the forces after the step (see `Kind`), and then the method's
    own variables.
    """

    carried: np.ndarray
    own: np.ndarray
    scale: np.ndarray
    data: np.ndarray
    times: np.ndarray
    x: np.ndarray
    value: np.ndarray
    found: np.ndarray


class Kind(SharedKind):
    """The expressions of a step for one copy, the slots of its frame, and what its kernels read and write.

    ``carried`` are the slots of q, v, a and a_old of its nodes, ``own`` those of the method's own variables,
    which every copy keeps for itself. ``x`` are the slots of its unknowns. ``entries`` are the slots of the
    entries of its matrices, those of one stage after the other; ``patterns[k]`` (E, 2) are their rows and
    columns in stage k. ``rows[k]`` are the slots of its residual in stage k, in the rows ``used[k]``.
    ``value`` are the expressions of all rows of the residual, ``variables`` those of the unknowns.
    ``motion`` are the slots of q, v, a and a_old after a step, ``forces`` those of λ, ψ and other variables.
    If it is ``taped``, the method's own variables are part of records. ``traced`` are the expressions.
    """

    traced: Traced

    def __init__(
        self, setup: Setup, model: KindModel, blocks: Blocks, taped: bool, nodes: Mapping[Space, NodePoints]
    ) -> None:
        super().__init__(setup, model, blocks)
        self.taped, self.nodes, self.dims = taped, nodes, model.full(setup.dims)
        self.begun, self.graph = begun(setup, model), Graph(LIMIT)
        self.builder = Builder(self.graph)
        self._lay_out()
        self._trace()
        self._build()

    def _build(self) -> None:
        found = self.builder.build({RUN: self.kernel("once"), STEP: self.kernel("prepare")})
        whole = cut(found, PIECE)
        rare = frozenset(piece for name in self._rare() for piece in whole.pieces[name])
        self.program: Program = replace(whole, rare=rare)
        self.stride = self.program.slots
        slots = lambda pieces: {slot for piece in pieces for _, slot in whole.kernels[piece].loads}
        self._loaded = {name: slots(pieces) for name, pieces in whole.pieces.items()}

    def _rare(self) -> list[str]:
        """The names of kernels that run rarely, and need not be fast."""
        return [self.kernel("once")]

    @property
    def is_node(self) -> bool:
        return self.model.element is None

    def kernel(self, name: str) -> str:
        return f"{self.code_name}_{name}"

    # --- slots ------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        slot, (size, n, m, p) = self.builder.slot, self.model.dims
        carry = self.begun
        self.adjusts = carry.lag is not None
        self.carried = slot(size + (3 if carry.a_old is not None else 2) * n)
        parts = np.split(self.carried, [size, size + n, size + 2 * n])
        self._carry = dict(zip(("q", "v", "a", "a_old"), parts, strict=True))
        shaped = lambda tree: jax.tree.map(lambda x: slot(int(np.prod(x.shape))).reshape(x.shape), tree)
        self.own: dict[str, np.ndarray] = shaped(carry.own)
        self.disturbed: list[np.ndarray] = []
        self.prepared: list[tuple[np.ndarray, np.ndarray]] = []
        self.scale = (slot(n), slot(m), slot(p))
        self.data: list[np.ndarray] = [
            slot(int(np.prod(np.shape(x)[1:]))).reshape(np.shape(x)[1:])
            for x in jax.tree.leaves(self.model.data)
        ]
        self.times = slot(5 if self.adjusts else 3)  # t, h, the last h, and the two lags
        self.x = slot(sum(self._size(b) for b in self.blocks.unknowns))

    def _size(self, block: BlockPlace) -> int:
        """How many entries a copy has in a block."""
        return counts(self.model.dims)[block.kind]

    def _full(self, block: BlockPlace) -> int:
        """The same, with those of constraints that are always satisfied."""
        return counts(self.dims)[block.kind]

    def _real(self, blocks: tuple[BlockPlace, ...]) -> np.ndarray:
        """Which entries of the blocks of a copy are part of the whole system."""
        return np.concatenate([np.full(self._full(b), bool(self._size(b))) for b in blocks])

    def _inputs(self, slots: Any, level: int) -> Any:
        return jax.tree.map(lambda s: Symbols(self.builder.inputs(s, level), "f"), slots)

    # --- expressions ------------------------------------------------------------------------------

    def _trace(self) -> None:
        method, dims, whole, model = self.setup.method, self.dims, self.setup.dims, self.model
        structure = jax.tree.structure(model.data)
        scale = self._scale()
        doubles = self._inputs(self.data, RUN)
        known = {k: Symbols(self.builder.inputs(s, STEP), "f") for k, s in self._carry.items()}
        own = self._inputs(self.own, STEP)
        times = self.builder.inputs(self.times, STEP)
        t, h, h_old = (Symbols(np.array(i), "f") for i in times[:3])
        lags = Symbols(times[3:], "f") if self.adjusts else None
        a_old = known["a_old"] if known["a_old"].ids.size else None
        carry = Carry(known["q"], known["v"], known["a"], h_old, a_old, lags, own)  # type: ignore[arg-type]
        real = self._real(self.blocks.unknowns)
        ids = np.full(real.size, ZERO, dtype=np.int64)
        ids[real] = variables = self.builder.inputs(self.x, ITERATION)
        x = Symbols(ids, "f")
        one = lambda data: model.system(jax.tree.unflatten(structure, data), whole)

        def prepare(carry: Carry, t: Any, h: Any, scale: Scale, data: Any) -> Any:
            step = method.prepare(one(data), carry, t, h, dims, scale, ())
            return step, sizes_of_motion(model.space, scale, carry.q, carry.v)

        step, sizes = self._symbolic(prepare, carry, t, h, scale, doubles)
        step = self._read_back(step)
        residual = lambda x, step, scale, data: method.equations(one(data), step, dims, scale, x, ())
        self._share(known["q"].ids, x, step, scale)
        value = inline(self.graph, residual, x, step, scale, doubles)[self._real(self.blocks.rows)]
        finish = lambda x, step, scale, data: method.finish(one(data), step, dims, scale, x, ())
        after, output = inline(self.graph, finish, x, step, scale, doubles)
        self.value, self.variables = value, variables
        self._matrix(value, variables)
        found = self._finish(after, output)
        everything = lambda parts: np.concatenate([np.zeros(0, int), *(np.ravel(x) for x in parts)])
        nodes = lambda tree: [x.ids for x in jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, Symbols))]
        self.traced = Traced(
            everything([known[name].ids for name in self._carry]),
            everything([own[name].ids for name in self.own]),
            everything(self._scale_nodes),
            everything(nodes(doubles)),
            times,
            variables,
            value,
            everything([found, *(after.own[name] for name in self.own)]),
        )
        self._more(carry, step, x, scale, doubles, after)
        self._prepare(sizes)
        self.graph.take_back()

    def _share(self, q0: np.ndarray, x: Symbols, step: Any, scale: Any) -> None:
        """Let nodes compute the end of a step for all parts, and parts read it."""
        method, space, dims, element = self.setup.method, self.model.space, self.dims, self.model.element

        def end(x: Any, step: Any, scale: Any) -> Any:
            d, v1 = method.reached(step, method.split(dims, scale, x))
            return space.retract(step.q0, d), v1

        told = "a" in method.sizes(dims) or type(method).reached is not Method.reached
        self.points: NodePoints | PartPoints
        if element is None:
            self.points = node = NodePoints(self.builder)
            if told:
                node.write(Reached.by(self.graph, end, (x, step, scale), q0, lambda place: None), self.kernel)
        else:
            sizes = list(zip(element.sizes, element.dims, strict=True))
            self.points = part = PartPoints(self.builder, [self.nodes[s] for s in element.spaces], sizes)
            if told:
                part.lend(end, (x, step, scale), q0)

    def _read_back(self, step: Any) -> Any:
        """The constants of a step, as the other kernels read them."""
        return step

    def stand_ins(self) -> dict[int, int]:
        """Nodes that stand for others, which are computed elsewhere, and these."""
        return {} if isinstance(self.points, NodePoints) else self.points.stand_ins()

    def _more(self, carry: Any, step: Any, x: Symbols, scale: Any, doubles: Any, after: Any) -> None:
        """Write kernels that only some runs need."""

    def _scale(self) -> Scale:
        """The scale, with ones for constraints that are always satisfied."""
        parts = [self._inputs(s, RUN) for s in self.scale]
        self._scale_nodes = [part.ids for part in parts]
        sizes = (self.dims.n, self.dims.m, self.dims.p)
        filled = [
            p if p.ids.size == n else Symbols(np.full(n, ONE), "f") for p, n in zip(parts, sizes, strict=True)
        ]
        return Scale(*filled)  # type: ignore[arg-type]

    def _symbolic(self, function: Any, *arguments: Any) -> Any:
        found = inline(self.graph, function, *arguments)
        return jax.tree.map(lambda ids: Symbols(ids, "f"), found)

    # --- kernels ----------------------------------------------------------------------------------

    def _prepare(self, sizes: Any) -> None:
        self.builder.kernel(self.kernel("once"), RUN)
        self.sizes = self.builder.slot(3 if self.model.element is None else 0)
        stores = [(self.sizes, np.array([s.ids for s in sizes]))] if self.sizes.size else []
        self.builder.kernel(self.kernel("prepare"), STEP, *stores, *self.prepared)

    def _matrix(self, value: np.ndarray, variables: np.ndarray) -> None:
        """Write the kernels for the entries of the matrices of all stages, and for the residual of each."""
        rows, columns = (self._stages(blocks) for blocks in (self.blocks.rows, self.blocks.unknowns))
        patterns, nodes = [], []
        self.used, self.rows = [], []
        for stage in range(self.blocks.stages):
            row, column = np.flatnonzero(rows == stage), np.flatnonzero(columns == stage)
            matrix = jacobian(self.graph, value[row], variables[column])
            at = np.argwhere(matrix != ZERO)
            patterns.append(np.stack([row[at[:, 0]], column[at[:, 1]]], axis=1))
            nodes.append(matrix[tuple(at.T)])
            used = row[value[row] != ZERO]
            self.used.append(used)
            self.rows.append(self.builder.slot(len(used)))
            self.builder.kernel(self.kernel(f"residual{stage}"), ITERATION, (self.rows[-1], value[used]))
        self.patterns = patterns
        self.entries = self.builder.slot(sum(map(len, patterns)))
        self.builder.kernel(self.kernel("matrix"), ITERATION, (self.entries, np.concatenate(nodes)))

    def _stages(self, blocks: tuple[BlockPlace, ...]) -> np.ndarray:
        """The stage of every entry of a copy."""
        return np.concatenate([np.full(self._size(b), b.stage) for b in blocks])

    def _finish(self, after: Any, output: Any) -> np.ndarray:
        """Write the kernel that ends a step. Returns the motion of nodes after it, or the forces of parts."""
        m, p = self.model.dims[2:]
        extra, at = {}, 0
        for block in self.blocks.extras:
            extra[block.name] = (block, output.extra[at : at + self._full(block)])
            at += self._full(block)
        stores = []
        self.motion = self.forces = self.turns = self.builder.slot(0)
        new = self._new_own()
        if self.model.element is None:
            kept = [after.q, after.v, after.a, *([after.a_old] if after.a_old is not None else [])]
            kept += [part for block, part in extra.values() if block.kind == "v"]
            self.motion, self.turns = (
                self.builder.slot(sum(map(len, kept))),
                self.builder.slot(len(output.turns)),
            )
            found = np.concatenate(kept)
            stores += [(self.motion, found), (self.turns, output.turns)]
        else:
            kept = [output.lam[:m] if m else output.lam[:0], output.psi[:p] if p else output.psi[:0]]
            kept += [part for block, part in extra.values() if block.kind != "v" and self._size(block)]
            found = np.concatenate(kept)
            self.forces = self.builder.slot(len(found))
            stores += [(self.forces, found)]
        stores += [(new[name], part) for name, part in after.own.items()]
        self.builder.kernel(self.kernel("finish"), ITERATION, *stores)
        return found

    def _new_own(self) -> dict[str, np.ndarray]:
        """The slots of the method's own variables after a step."""
        return self.own

    @property
    def held(self) -> np.ndarray:
        """The slots that are read or written outside of machine code."""
        parts = [*self.own.values(), *self.scale, *self.data]
        return np.concatenate([np.reshape(part, -1) for part in parts]).astype(int)

    # --- instructions -----------------------------------------------------------------------------

    def each(self, *body: Inside) -> Each:
        return Each(self.name, self.stride, body)

    def once(self) -> Each:
        return self.each(Call(self.kernel("once")))

    def prepare(self, central: np.ndarray, sizes: np.ndarray) -> Each:
        """Read the carry, and prepare the step; ``central`` are the central slots of ``times``."""
        spread = [Spread(int(a), int(b)) for a, b in zip(self.times, central, strict=False)]
        gather = Gather(int(self.carried[0]), len(self.carried), f"{self.name}:carry")
        largest = [Largest(int(a), 1, int(b)) for a, b in zip(self.sizes, sizes, strict=False)]
        return self.each(*spread, gather, Call(self.kernel("prepare")), *largest)

    def _unknowns(self) -> Gather:
        return Gather(int(self.x[0]), len(self.x), f"{self.name}:x")

    def needs(self, kernel: str) -> list[str]:
        """The arrays of nodes that a kernel of a part reads."""
        loaded = set() if self.is_node else self._loaded.get(self.kernel(kernel), set())
        return [name for name, slots in self.points.slots.items() if not loaded.isdisjoint(slots.tolist())]

    def _of_nodes(self, kernel: str) -> list[Inside]:
        """Read what nodes have computed for a kernel."""
        each = [(name, self.points.slots[name]) for name in self.needs(kernel)]
        return [Gather(int(slots[0]), len(slots), f"{self.name}:{name}") for name, slots in each]

    def _at_end(self, kernel: str) -> list[Inside]:
        """Apply a kernel to the unknowns, and to what nodes have computed of them."""
        return [self._unknowns(), *self._of_nodes(kernel), Call(self.kernel(kernel))]

    def reach(self, name: str) -> list[Each]:
        """Compute an array for parts, if this is a node."""
        slots = self.points.slots.get(name, NOTHING)
        if not self.is_node or not len(slots):
            return []
        put = Put(int(slots[0]), len(slots), f"{self.name}:{name}")
        return [self.each(self._unknowns(), Call(self.kernel(name)), put)]

    def matrix(self) -> list[Each]:
        if not len(self.entries):
            return []
        add = Add(int(self.entries[0]), len(self.entries), f"{self.name}:entries")
        return [self.each(*self._at_end("matrix"), add)]

    def alone(self) -> list[Each]:
        """The entries of the matrix, kept for every copy."""
        if not len(self.entries):
            return []
        keep = Keep(int(self.entries[0]), len(self.entries), f"entries:{self.name}")
        return [each._replace(body=(*each.body[:-1], keep)) for each in self.matrix()]

    def residual(self, stage: int) -> list[Each]:
        rows = self.rows[stage]
        if not len(rows):
            return []
        add = Add(int(rows[0]), len(rows), f"{self.name}:rows{stage}")
        return [self.each(*self._at_end(f"residual{stage}"), add)]

    def _put(self) -> list[Inside]:
        """Write the motion and the forces after a step."""
        named = (("motion", self.motion), ("forces", self.forces))
        return [Put(int(s[0]), len(s), f"{self.name}:{name}") for name, s in named if len(s)]

    def _turned(self, turns: int) -> list[Inside]:
        return [Largest(int(self.turns[0]), len(self.turns), turns)] if len(self.turns) else []

    @property
    def own_slots(self) -> np.ndarray:
        """The slots of the method's own variables, one after the other."""
        return np.concatenate([np.zeros(0, int), *(np.reshape(s, -1) for s in self.own.values())])

    def _put_own(self) -> list[Inside]:
        """Write the method's own variables after a step, if they are part of records."""
        slots = self.own_slots
        return [Put(int(slots[0]), len(slots), f"{self.name}:own")] if self.taped and len(slots) else []

    def finish(self, turns: int) -> Each:
        after = (*self._put(), *self._put_own(), *self._turned(turns))
        return self.each(*self._at_end("finish"), *after)

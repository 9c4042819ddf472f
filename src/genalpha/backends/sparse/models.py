"""The kinds of things that an assembly is made of: its parts, and its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.compiler import machine
from genalpha.compiler.graph import Unsupported
from genalpha.engine.setup import Setup
from genalpha.mechanics.assembly import Assembly, element_system
from genalpha.mechanics.parts import Element, Places
from genalpha.mechanics.spaces import Space
from genalpha.mechanics.system import Args, Dims, System
from genalpha.numerics.tracing import zeros

# Sizes that tell which blocks of a method belong to velocities, holonomic and nonholonomic constraints.
_TOLD_APART = {"v": 5003, "g": 3001, "k": 2003}


class _Copy(System):
    """A system of functions that return arrays of doubles. They are traced where they are called.

    The functions of parts know their traces, whoever calls them. To wrap them would copy the traces.
    """

    def _as_array_function(self, name: str, function: Any) -> Any:
        return function


class KindModel(NamedTuple):
    """A part or the nodes with one space: sizes of one copy, and where all copies are.

    ``data`` are its args, and its masses if they differ from copy to copy: arrays with one row for each copy,
    or single numbers. For nodes ``element`` is None.
    """

    name: str
    label: str
    space: Space
    dims: Dims
    places: Places
    data: Any
    element: Element | None = None

    @property
    def copies(self) -> int:
        return len(self.places.q)

    @property
    def lanes(self) -> int:
        """How many copies are computed at a time."""
        return machine.lanes_for(self.copies)

    @property
    def groups(self) -> int:
        """In how many groups of lanes."""
        return -(-self.copies // self.lanes)

    @property
    def own_reaction(self) -> bool:
        """Whether its reactions are a function of the user's own."""
        return self.element is not None and self.element.has("reaction")

    def system(self, data: Any, whole: Dims) -> System:
        """One copy as a system of its own; ``data`` are the numbers of this copy, and may be traced.

        If the whole has constraints and this copy has none, it gets one that is always satisfied. So methods
        have the same unknowns for all parts. Those of this constraint appear in no equation.
        """
        if self.element is None:
            found = System(np.zeros((self.dims.n,) * 2), lambda t, q, v: zeros(self.dims.n), space=self.space)
        else:
            found = element_system(self.element, *data)
        nothing: Any = lambda *inputs: zeros(1)
        m, p = self.dims[2:]
        given: Any = found.reaction
        own = lambda t, q, v, lam, psi: given(t, q, v, lam[:m], psi[:p])
        return _Copy(
            found.mass,
            found.force,
            nothing if whole.m and not self.dims.m else found.holonomic,
            nothing if whole.p and not self.dims.p else found.nonholonomic,
            own if given is not None else None,
            self.space,
        )

    def full(self, whole: Dims) -> Dims:
        """The sizes with the constraints that are always satisfied."""
        return self.dims._replace(m=self.dims.m or min(whole.m, 1), p=self.dims.p or min(whole.p, 1))


def rows_of(model: KindModel, dims: Dims) -> np.ndarray:
    """The places (K, ...) of the copies of a part in vectors (n + m + p,) of motion and constraints."""
    at, (n, m) = model.places, dims[1:3]
    return np.concatenate([at.v, n + at.g, n + m + at.k], axis=1)


def numbers_of(models: Sequence[KindModel]) -> np.ndarray:
    """The numbers of all copies of some kinds, one leaf of their data after the other."""
    return np.concatenate([np.zeros(0), *map(np.ravel, jax.tree.leaves([model.data for model in models]))])


def bare(setup: Setup) -> Setup:
    """A setup without its system, for what outlives the system."""
    return setup._replace(system=None, crossings=())  # type: ignore[arg-type]


class Kinds(NamedTuple):
    """The kinds of nodes and of parts, and a text that tells the shapes of their args."""

    nodes: list[KindModel]
    parts: list[KindModel]
    shapes: str


def of_assembly(assembly: Assembly, args: Args) -> Kinds:
    """All kinds. Those with the own args of the parts are made once."""

    def make() -> Kinds:
        parts = of_parts(assembly, args)
        about = [
            (jax.tree.structure(x.data), [np.shape(y)[1:] for y in jax.tree.leaves(x.data)]) for x in parts
        ]
        return Kinds(of_nodes(assembly), parts, str(about))

    return make() if args else assembly._programs.made(("kinds",), make)


def of_parts(assembly: Assembly, args: Args) -> list[KindModel]:
    found, owned = [], assembly.own_args(args)
    for i, (element, places) in enumerate(zip(assembly.elements, assembly.places, strict=True)):
        mass = element.part.mass
        own = jax.tree.map(np.asarray, owned[i])
        data = (own, mass if isinstance(mass, np.ndarray) and mass.ndim == 3 else None)
        dims = Dims(element.size, element.n, element.m, element.p)
        found.append(KindModel(f"p{i}", element.label, element.space, dims, places, data, element))
    return found


def of_nodes(assembly: Assembly) -> list[KindModel]:
    spaces, found = assembly.node_spaces, []
    widths = {
        space: (space.size(int(space.dim or 0)), int(space.dim or 0)) for space in dict.fromkeys(spaces)
    }
    starts = np.cumsum([(0, 0), *(widths[space] for space in spaces)], axis=0)
    for i, (space, (size, n)) in enumerate(widths.items()):
        here = np.array([k for k, one in enumerate(spaces) if one is space or one == space])
        q, v = (starts[here, kind, None] + np.arange(width) for kind, width in enumerate((size, n)))
        none = np.zeros((len(here), 0), int)
        places = Places(q, v, none, none)
        found.append(KindModel(f"n{i}", "nodes", space, Dims(size, n, 0, 0), places, ()))
    return found


class BlockPlace(NamedTuple):
    """A block of unknowns or rows: "v" has an entry for each velocity, "g" and "k" for each constraint.

    ``first`` is its place in the vector of all blocks, ``length`` its number of entries there, with padding.
    ``stage`` is the number of the stage in which it is solved for.
    """

    name: str
    kind: str
    first: int
    length: int
    stage: int = 0


class Blocks(NamedTuple):
    """The blocks of the unknowns and of the rows of a step, and of the method's own variables."""

    unknowns: tuple[BlockPlace, ...]
    rows: tuple[BlockPlace, ...]
    extras: tuple[BlockPlace, ...]

    @classmethod
    def of(cls, setup: Setup, width: int, coupled: bool = False) -> Blocks:
        """The blocks of a method. If they are ``coupled``, all are solved for in one stage."""
        method, dims = setup.method, setup.dims
        apart = {"v": _TOLD_APART["v"], "g": dims.m and _TOLD_APART["g"], "k": dims.p and _TOLD_APART["k"]}
        example = Dims(apart["v"], apart["v"], apart["g"], apart["k"])
        kinds, sizes = {n: kind for kind, n in apart.items()}, counts(dims)
        stages = () if coupled else method.stages(example)

        def blocks(found: dict[str, int], pad: int, stage: dict[str, int]) -> tuple[BlockPlace, ...]:
            first, listed = 0, []
            for name, size in found.items():
                if not size:
                    continue
                if size not in kinds:
                    what = f"{method.name} has a block {name!r}, which belongs to no node and no constraint"
                    raise Unsupported(what)
                length = -(-sizes[kinds[size]] // pad) * pad
                listed.append(BlockPlace(name, kinds[size], first, length, stage.get(name, 0)))
                first += length
            return tuple(listed)

        of_unknowns = {name: k for k, stage in enumerate(stages) for name in stage.unknowns}
        of_rows = {name: k for k, stage in enumerate(stages) for name in stage.rows}
        unknowns = blocks(method.sizes(example), width, of_unknowns)
        rows = blocks(method.row_blocks(example), width, of_rows)
        return cls(unknowns, rows, blocks(method.extras(example), 1, {}))

    @property
    def outline(self) -> tuple[Any, ...]:
        """The blocks without their places: what a single copy knows of them."""
        return tuple(tuple((b.name, b.kind, b.stage) for b in blocks) for blocks in self)

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return 1 + max(block.stage for block in self.rows)


def counts(dims: Dims) -> dict[str, int]:
    """The numbers of entries of each kind of block."""
    return {"v": dims.n, "g": dims.m, "k": dims.p}


def of_stage(blocks: tuple[BlockPlace, ...], stage: int) -> tuple[BlockPlace, ...]:
    return tuple(block for block in blocks if block.stage == stage)


def length(blocks: tuple[BlockPlace, ...]) -> int:
    return blocks[-1].first + blocks[-1].length if blocks else 0


def places_of(blocks: tuple[BlockPlace, ...], at: Places) -> np.ndarray:
    """Where the entries of all copies are in the vector of all blocks (K, entries of a copy)."""
    parts = [b.first + getattr(at, b.kind) for b in blocks]
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(at.q), 0), int)

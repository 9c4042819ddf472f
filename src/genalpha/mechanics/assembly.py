"""Large systems made of parts: nets, chains, lattices, trusses, finite elements."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from genalpha.mechanics.html import of_system
from genalpha.mechanics.labels import Listed
from genalpha.mechanics.parts import FUNCTIONS, Element, Part, Places
from genalpha.mechanics.spaces import Product, Space
from genalpha.mechanics.system import Args, System
from genalpha.numerics.data import Signals
from genalpha.numerics.tracing import zeros

_MOST_NAMED = 6  # in messages


class Assembly(System):
    """A system made of parts that share nodes. It can be used wherever a :class:`System` can.

    The mass matrix, the forces and the constraints of the system are those of all copies of all parts. λ and
    ψ have the order of ``parts``, and within a part that of its copies. q and v hold the nodes one after the
    other.

    Small assemblies run as a :class:`System` of the same functions. Large ones are solved with sparse
    matrices, and are compiled once for each part, whatever the number of its copies.

    Parameters
    ----------
    parts : the :class:`Part` s. Every node must be in a part that has a mass.
    space : the configuration space of every node, or a list with the space of each. A space must know its
        dimension: write ``ga.Euclidean(3)``.
    count : the number of nodes; not needed if ``space`` is a list.
    names, units : as those of a :class:`System`.

    The arrays in the ``args`` of the parts are the defaults. To change them from run to run, to vary them in
    a batch or to differentiate with respect to them, pass ``args=net.args`` or args of the same form to
    ``ga.solve``: a tuple with the args of every part.

    Example
    -------
    A chain of two rods, fixed to the origin by a third part:

    >>> import jax.numpy as jnp, numpy as np, genalpha as ga
    >>> gravity = lambda t, q, v, m: m * jnp.array([0.0, -9.81])
    >>> points = ga.Part(mass=lambda t, q, m: m * jnp.eye(2), force=gravity, nodes=[0, 1], args=([1.0, 2.0],))
    >>> distance = lambda d, length: jnp.array([d @ d - length**2])
    >>> hook = ga.Part(holonomic=lambda t, q: distance(q, 1.0), nodes=[0])
    >>> link = lambda t, q, length: distance(q[1] - q[0], length)
    >>> rod = ga.Part(holonomic=link, nodes=[[0, 1]], args=([0.5],))
    >>> chain = ga.Assembly([points, hook, rod], space=ga.Euclidean(2), count=2)
    >>> sol = ga.solve(chain, (0.0, 1.0), [1.0, 0.0, 1.5, 0.0], np.zeros(4), h=0.01)
    >>> chain.by_node(sol.q).shape
    (101, 2, 2)
    >>> float(sol.residuals.position.max()) < 1e-12
    True
    """

    parts: tuple[Part, ...]
    node_spaces: tuple[Space, ...]
    args: tuple[Any, ...]
    elements: tuple[Element, ...]
    places: tuple[Places, ...]

    def __init__(
        self,
        parts: Sequence[Part],
        space: Space | Sequence[Space],
        count: int | None = None,
        names: Listed | None = None,
        units: Mapping[str, Sequence[str] | str] | None = None,
    ) -> None:
        parts, spaces = _parts(parts), _spaces(space, count)
        put = lambda name, value: object.__setattr__(self, name, value)
        put("parts", parts)
        put("node_spaces", spaces)
        elements = tuple(_element(part, spaces, i) for i, part in enumerate(parts))
        put("elements", elements)
        _every_node_has_mass(elements, len(spaces))
        put("places", _places(elements, spaces))
        put("args", tuple(part.args for part in parts))
        holonomic, nonholonomic = any(e.m for e in elements), any(e.p for e in elements)
        super().__init__(
            self._mass,
            self._force,
            self._holonomic if holonomic else None,
            self._nonholonomic if nonholonomic else None,
            self._reaction if any(e.has("reaction") for e in elements) else None,
            Product(*spaces),
            names,
            units,
        )
        self.forget_if_changed()  # functions have been traced

    def __reduce__(self) -> tuple[Any, ...]:
        return Assembly, (self.parts, list(self.node_spaces), None, self.names, self.units)

    def __repr__(self) -> str:
        names = ", ".join(f"{len(e.part.nodes)} copies of {e.label}" for e in self.elements)
        return f"Assembly of {len(self.node_spaces)} nodes: {names}"

    def _repr_html_(self) -> str:
        return of_system(self, repr(self))

    def user_functions(self) -> list[Any]:
        found = [getattr(part, name) for part in self.parts for name in FUNCTIONS]
        return [function for function in found if callable(function)]

    def forget_if_changed(self, others: tuple[Any, ...] = ()) -> None:
        known = self._reads.get(0)
        super().forget_if_changed(others)
        if known is not None and self._reads[0] is not known:
            for element in self.elements:
                element.forget()

    @property
    def constant_mass(self) -> bool:
        return all(element.constant_mass for element in self.elements)

    def by_node(self, x: ArrayLike) -> Any:
        """Coordinates or velocities (..., N·width) as (..., N, width), if all nodes have the same space."""
        if len(set(self.node_spaces)) > 1:
            raise ValueError("the nodes have different spaces: use space.split and space.split_velocity")
        x = x if isinstance(x, jax.Array) else np.asarray(x)
        count = len(self.node_spaces)
        if x.shape[-1] % count:
            raise ValueError(f"{x.shape[-1]} numbers cannot be divided among {count} nodes")
        return x.reshape(*x.shape[:-1], count, x.shape[-1] // count)

    def entries(self, kind: str, count: int) -> tuple[str, int, Callable[[int], range]]:
        if kind not in ("q", "v"):
            return super().entries(kind, count)
        widths = [(s.size(int(s.dim or 0)), int(s.dim or 0))[kind == "v"] for s in self.node_spaces]
        ends = np.cumsum(widths)
        return "node", len(widths), lambda i: range(int(ends[i]) - widths[i], int(ends[i]))

    # --- functions of the whole system ------------------------------------------------------------

    def own_args(self, args: Args) -> Sequence[Any]:
        """The args of every part."""
        if not args:
            return [part.args for part in self.parts]
        if isinstance(args[-1], Signals):  # a controller has put its output into the others
            args = args[:-1]
        if len(args) != len(self.parts):
            raise ValueError(
                f"args has {len(args)} entries, but there are {len(self.parts)} parts: pass net.args, or a "
                "tuple of the same form with the args of every part"
            )
        found = []
        for part, own in zip(self.parts, args, strict=True):
            checked = part.checked(own)
            form: Any = jax.tree.structure(checked)
            if form != jax.tree.structure(part.args):
                raise ValueError(
                    f"args of {part.label} have another form than those it was made with: {len(checked)} "
                    f"instead of {len(part.args)} entries, or other structures in them"
                )
            found.append(checked)
        return found

    def shapes(self, args: Args) -> dict[str, tuple[int, ...]]:
        """The shapes of what the functions return; empty if only a trace of them can tell.

        The parts were traced when the assembly was made. So these are known, unless the args have other
        shapes, or the functions were forgotten since.
        """
        alike = all(
            np.shape(x) == np.shape(y)
            for part, own in zip(self.parts, self.own_args(args), strict=True)
            for x, y in zip(jax.tree.leaves(own), jax.tree.leaves(part.args), strict=True)
        )
        if not alike or not all(element.traced for element in self.elements):
            return {}
        n = int(self.space.dim or 0)
        m, p = (sum(getattr(at, kind).size for at in self.places) for kind in ("g", "k"))
        return {"mass": (n, n), "force": (n,), "holonomic": (m,), "nonholonomic": (p,), "reaction": (n,)}

    def _each(
        self, name: str, args: Args, one: Callable[..., Array], *inputs: tuple[str, Any]
    ) -> Iterator[tuple[Places, Array]]:
        """``one(element, own, number, *inputs)`` of all copies (K, ...) of the parts with this function.

        Inputs are vectors of the whole system; their names say which entries belong to a copy.
        """
        for element, at, own in zip(self.elements, self.places, self.own_args(args), strict=True):
            if element.has(name):
                axes = jax.tree.map(lambda x: 0 if np.ndim(x) else None, own)
                given = [x[getattr(at, kind)] for kind, x in inputs]
                function = functools.partial(one, element)
                mapped = jax.vmap(function, in_axes=(axes, 0, *[0] * len(inputs)))
                yield at, mapped(own, np.arange(element.count), *given)

    def _mass(self, t: Any, q: Any, *args: Any) -> Array:
        total = jnp.zeros((self.space.dim, self.space.dim))
        one = lambda element, own, i, q: element.mass(t, q, own, i)
        for at, found in self._each("mass", args, one, ("q", q)):
            total = total.at[at.v[:, :, None], at.v[:, None, :]].add(found)
        return total

    def _force(self, t: Any, q: Any, v: Any, *args: Any) -> Array:
        total = jnp.zeros(self.space.dim)
        one = lambda element, own, i, q, v: element.call("force", t, q, v, own=own)
        for at, found in self._each("force", args, one, ("q", q), ("v", v)):
            total = total.at[at.v].add(found)
        return total

    def _holonomic(self, t: Any, q: Any, *args: Any) -> Array:
        one = lambda element, own, i, q: element.call("holonomic", t, q, own=own)
        rows = self._each("holonomic", args, one, ("q", q))
        return jnp.concatenate([found.reshape(-1) for _, found in rows])

    def _nonholonomic(self, t: Any, q: Any, v: Any, *args: Any) -> Array:
        one = lambda element, own, i, q, v: element.call("nonholonomic", t, q, v, own=own)
        rows = self._each("nonholonomic", args, one, ("q", q), ("v", v))
        return jnp.concatenate([found.reshape(-1) for _, found in rows])

    def _reaction(self, t: Any, q: Any, v: Any, lam: Any, psi: Any, *args: Any) -> Array:
        total = jnp.zeros(self.space.dim)

        def one(element: Element, own: Any, i: Any, q: Any, v: Any, lam: Any, psi: Any) -> Array:
            massless = np.zeros((element.n, element.n))
            return element_system(element, own, massless).reactions(t, q, v, lam, psi)

        inputs = (("q", q), ("v", v), ("g", lam), ("k", psi))
        for at, found in self._each("constraints", args, one, *inputs):
            total = total.at[at.v].add(found)
        return total


def element_system(element: Element, own: Any, mass: Any = None) -> System:
    """One copy of a part as a system of its own.

    ``own`` are its args, ``mass`` its mass matrix if the copies have different ones. Both may be traced.
    """

    def call(name: str) -> Any:
        return (lambda *inputs: element.call(name, *inputs, own=own)) if element.has(name) else None

    if mass is None and element.constant_mass:
        mass = element.mass(0.0, zeros(element.size), own)
    return System(
        (lambda t, q: element.mass(t, q, own)) if mass is None else mass,
        call("force") or (lambda t, q, v: zeros(element.n)),
        call("holonomic"),
        call("nonholonomic"),
        call("reaction"),
        element.space,
    )


def _parts(parts: Any) -> tuple[Part, ...]:
    if isinstance(parts, Part) or not isinstance(parts, Sequence):
        raise TypeError(f"parts must be a list of ga.Part, got {type(parts).__name__}")
    for part in parts:
        if not isinstance(part, Part):
            raise TypeError(f"parts must be a list of ga.Part, but one is {part!r}")
    if not parts:
        raise ValueError("parts is empty: an assembly needs at least one part")
    return tuple(parts)


def _spaces(space: Any, count: Any) -> tuple[Space, ...]:
    if isinstance(space, Space):
        if not isinstance(count, int | np.integer) or count < 1:
            raise ValueError(f"count must be the number of nodes, at least 1, got {count!r}")
        spaces: tuple[Any, ...] = (space,) * int(count)
    elif isinstance(space, Sequence) and len(space):
        spaces = tuple(space)
        if count not in (None, len(spaces)):
            raise ValueError(f"count is {count}, but space lists {len(spaces)} nodes")
    else:
        raise TypeError(f"space must be a space such as ga.R3xSO3(), or a list of them, got {space!r}")
    for one in set(spaces):
        if not isinstance(one, Space):
            raise TypeError(f"space must hold spaces such as ga.R3xSO3(), got {one!r}")
        if one.dim is None:
            raise ValueError(f"a node needs the dimension of its space, such as ga.Euclidean(3); got {one!r}")
    return spaces


def _element(part: Part, spaces: tuple[Space, ...], number: int) -> Element:
    label = f"the part {part.name!r}" if part.name else f"part {number}"
    wrong = np.argwhere((part.nodes < 0) | (part.nodes >= len(spaces)))
    if wrong.size:
        at = tuple(wrong[0])
        raise ValueError(
            f"nodes of {label}: copy {at[0]} has the node {part.nodes[at]}, but there are {len(spaces)} "
            f"nodes: 0 to {len(spaces) - 1}"
        )
    nodes = part.nodes.reshape(len(part.nodes), -1)
    if len(set(spaces)) == 1:
        return Element(part, (spaces[0],) * nodes.shape[1], label)
    first = [spaces[i] for i in nodes[0]]
    for copy, row in enumerate(nodes.tolist()):
        if any(spaces[i] != one for i, one in zip(row, first, strict=True)):
            raise ValueError(
                f"copy {copy} of {label} has nodes with other spaces than copy 0: make it a part of its own"
            )
    return Element(part, tuple(first), label)


def _every_node_has_mass(elements: Sequence[Element], count: int) -> None:
    heavy = np.zeros(count, bool)
    for element in elements:
        if element.has("mass"):
            heavy[element.part.nodes] = True
    light = np.flatnonzero(~heavy)
    if light.size:
        named = ", ".join(map(str, light[:_MOST_NAMED]))
        rest = f" and {light.size - _MOST_NAMED} more" if light.size > _MOST_NAMED else ""
        raise ValueError(
            f"no part gives a mass to node{'s' if light.size > 1 else ''} {named}{rest}: every node needs one"
        )


def _places(elements: Sequence[Element], spaces: tuple[Space, ...]) -> tuple[Places, ...]:
    """Where the copies of all parts are in q, v, λ and ψ."""
    known = {space: (space.size(int(space.dim or 0)), int(space.dim or 0)) for space in set(spaces)}
    widths = np.array([known[space] for space in spaces])
    starts = np.concatenate([np.zeros((1, 2), int), np.cumsum(widths, axis=0)])
    found, m, p = [], 0, 0
    for element in elements:
        nodes = element.part.nodes.reshape(element.count, -1)
        one = lambda kind, sizes, nodes=nodes: np.concatenate(
            [starts[nodes[:, i], kind, None] + np.arange(width) for i, width in enumerate(sizes)], axis=1
        )
        rows = lambda first, width, count=element.count: (
            first + np.arange(count * width).reshape(count, width)
        )
        found.append(
            Places(one(0, element.sizes), one(1, element.dims), rows(m, element.m), rows(p, element.p))
        )
        m, p = m + element.count * element.m, p + element.count * element.p
    return tuple(found)

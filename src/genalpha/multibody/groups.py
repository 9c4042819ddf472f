"""Joints and forces of one kind: together they are a part of an assembly."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.mechanics.parts import Part
from genalpha.mechanics.reads import FOLLOWED, Reads
from genalpha.multibody import reactions
from genalpha.multibody.connectors import Connector
from genalpha.multibody.frames import FrameState


class Group(NamedTuple):
    """All connectors of one kind."""

    members: list[Connector]

    def part(self, numbers: dict[str, int]) -> Part:
        """The part of an assembly; ``numbers`` are those of the nodes of bodies by name."""
        one = self.members[0]
        nodes = np.array([[numbers[body.name] for body in m.moving] for m in self.members])
        ends = tuple(
            {
                "r": np.stack([m.markers[k].r for m in self.members]),
                "Q": np.stack([m.markers[k].Q for m in self.members]),
            }
            for k in range(len(one.markers))
        )
        own = {key: np.stack([m.numbers[key] for m in self.members]) for key in one.numbers}
        single = nodes.shape[1] == 1
        # A copy, since rows of the joint itself may be left out later.
        functions, made = of_kind(_functions, Same(copy.copy(one)))
        label = f"{type(one).__name__} {one.name!r}" + ("" if len(self.members) == 1 else " and others")
        left_out = ", ".join(one.row_names[i] for i in sorted(one.dropped))
        label += f" without {left_out}" if left_out else ""
        nodes = nodes[:, 0] if single else nodes
        return Part(nodes=nodes, args=(ends, own), name=label, **functions).sharing(made, one.identity)


class Same(NamedTuple):
    """A connector that stands for all of its kind."""

    one: Connector

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.one.kind == other.one.kind

    def __hash__(self) -> int:
        return hash(self.one.kind)


def of_kind(cached: Any, same: Same, *more: Any) -> Any:
    """What a cached function makes of a kind. It is not shared if functions of the user read other values.

    Those may have changed since.
    """
    shared = not Reads(same.one.own_functions).found
    return (cached if shared else cached.__wrapped__)(same, *more)


@functools.lru_cache(maxsize=128)
def _functions(same: Same) -> tuple[dict[str, Any], dict[Any, Any]]:
    """The functions of the part of a kind, and what is made of them, once for all models."""
    one = same.one
    kinds, which, count = [marker.body.kind for marker in one.markers], one.which, len(one.moving)
    single = count == 1
    listed = lambda x: [x] if single else x

    def frames(q: Any, v: Any, ends: Any) -> list[FrameState]:
        q, v = listed(q), None if v is None else listed(v)
        at: Any = lambda x, i: None if x is None or i is None else x[i]
        placed = zip(kinds, which, ends, strict=True)
        return [kind.state(at(q, i), at(v, i), end["r"], end["Q"]) for kind, i, end in placed]

    def loads(q: Any, ends: Any, wrenches: Any) -> Any:
        found: list[Any] = [0.0] * count
        for kind, i, end, wrench in zip(kinds, which, ends, wrenches, strict=True):
            if i is not None:
                found[i] = found[i] + kind.load(listed(q)[i], end["r"], wrench)
        return found[0] if single else tuple(found)

    def reaction(t: Any, q: Any, v: Any, lam: Any, psi: Any, ends: Any, own: Any) -> Any:
        return loads(q, ends, reactions.both(one.bound(own), t, lam, psi, *frames(q, v, ends)))

    def part_of(name: str) -> Any:
        """A function of the part, from that of frames."""
        act = lambda t, q, v, ends, own: one.bound(own)[name](t, *frames(q, v, ends))
        if name == "holonomic":
            return lambda t, q, ends, own: act(t, q, None, ends, own)
        if name == "nonholonomic":
            return act
        return lambda t, q, v, ends, own: loads(q, ends, act(t, q, v, ends, own))

    names = one.bound()
    found = {name: part_of(name) for name in names if name not in ("kinetic", "friction")}
    found |= {"reaction": reaction} if "friction" in names else {}
    for function in found.values():
        setattr(function, FOLLOWED, one.own_functions)
    return found | (_kinetic(one, frames) if "kinetic" in names else {}), {}


def _kinetic(one: Connector, frames: Callable[..., list[FrameState]]) -> dict[str, Any]:
    """The mass JᵀJ and the force −Jᵀ(dJ/dt)v of speeds s = J v."""
    kinds = [body.kind for body in one.moving]
    cuts, single = np.cumsum([kind.sizes[1] for kind in kinds]), len(kinds) == 1
    split = lambda v: v if single else jnp.split(v, cuts[:-1])

    def speeds(t: Any, q: Any, v: Any, ends: Any, own: Any) -> Any:
        return one.bound(own)["kinetic"](t, *frames(q, v, ends))

    def slopes(t: Any, q: Any, ends: Any, own: Any) -> Any:
        return jax.jacfwd(lambda v: speeds(t, q, split(v), ends, own))(jnp.zeros(cuts[-1]))

    def mass(t: Any, q: Any, ends: Any, own: Any) -> Any:
        J = slopes(t, q, ends, own)
        return J.T @ J

    def force(t: Any, q: Any, v: Any, ends: Any, own: Any) -> Any:
        space: Any = [kind.space for kind in kinds]
        rates = space[0].rate(q, v) if single else [s.rate(*x) for s, *x in zip(space, q, v, strict=True)]
        moved = jax.jvp(lambda q: speeds(t, q, v, ends, own), (q if single else list(q),), (rates,))[1]
        load = split(-(moved @ slopes(t, q, ends, own)))
        return load if single else tuple(load)

    return {"mass": mass, "force": force}


def groups(connectors: Sequence[Connector]) -> list[Group]:
    """The connectors by kind, in the order in which kinds first appear."""
    found: dict[Any, Group] = {}
    for one in connectors:
        found.setdefault(one.kind, Group([])).members.append(one)
    return list(found.values())

"""Ends of the range of a joint: springs that push back, events, and impacts on stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.rowwise import Rowwise
from genalpha.compiler import machine
from genalpha.engine.events import Event, Reset
from genalpha.multibody.bodies import AnyBody
from genalpha.multibody.closing.geometry import Geometry
from genalpha.multibody.forces import JointForce
from genalpha.multibody.frames import FrameState, finite, nonnegative, positive
from genalpha.multibody.joints import Coordinate, Joint
from genalpha.multibody.markers import Marker
from genalpha.numerics.tracing import is_traced

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

TURN = 2 * np.pi
_AT = 1e-10  # how far beyond its value a stop is, in units of the coordinate
_RESTS = 1e-6  # how far beyond its stop a joint may start, in units of the coordinate or of its range
_FREE = 1e-12  # the least mobility of a coordinate, relative to that without joints


def ends_of(lower: Any, upper: Any, turns: bool, what: str) -> dict[str, float]:
    """The ends of a range that are given, by name."""
    found = {}
    for key, value in (("lower", lower), ("upper", upper)):
        if value is not None:
            try:
                found[key] = float(value)
            except (TypeError, ValueError) as error:
                raise TypeError(f"{key} of {what} must be a number, got {value!r}") from error
            if not np.isfinite(found[key]):
                raise ValueError(f"{key} of {what} must be finite, got {value!r}; leave it out for none")
    if not found:
        raise ValueError(f"no end of a range is given for {what}: pass lower, upper or both")
    if len(found) == 2 and not found["lower"] < found["upper"]:
        raise ValueError(f"lower of {what} must be less than upper, got {lower!r} and {upper!r}")
    if len(found) == 2 and turns and found["upper"] - found["lower"] >= TURN:
        raise ValueError(f"the range of {what} must be less than one turn, got {lower!r} to {upper!r}")
    return found


class Limit(JointForce):
    """A spring that pushes a joint coordinate back into its range, ``lower`` to ``upper``; one may be None.

    Beyond an end by p, the push is stiffness·p·(1 + damping·p'), never a pull. p is smoothed over ``soft``,
    in units of the coordinate; without damping the push is the derivative of stiffness·p²/2. The range of an
    angle has both ends, and is less than one turn. An angle counts as that within half a turn of the middle
    of the range.
    """

    positive = ("stiffness", "soft")
    not_negative = ("damping",)

    def __init__(
        self,
        name: str,
        joint: Joint,
        lower: Any = None,
        upper: Any = None,
        stiffness: Any = None,
        damping: Any = 0.0,
        soft: Any = 1e-6,
        coordinate: str = "",
    ) -> None:
        turns = isinstance(joint, Joint) and joint.coordinate(coordinate).turns
        numbers = ends_of(lower, upper, turns, repr(name))
        if turns and len(numbers) < 2:
            raise ValueError(f"{name!r} has one end, but an angle comes back after a turn: pass both")
        if stiffness is None:
            raise TypeError(f"{name!r} needs a stiffness")
        numbers |= {
            "stiffness": positive(stiffness, f"stiffness of {name!r}"),
            "damping": nonnegative(damping, f"damping of {name!r}"),
            "soft": positive(soft, f"soft of {name!r}"),
        }
        super().__init__(name, joint, numbers, {}, coordinate)

    @staticmethod
    def force(t: Any, a: FrameState, b: FrameState, coordinate: Any, **of: Any) -> Any:
        ends, middle = _range(of)
        value, (_, rate) = middle + coordinate.off(a, b, middle), JointForce.moved(coordinate, a, b)
        size = jnp.zeros(())
        for end, sign in ends:
            deep, slope = _beyond(sign * (value - end), of["soft"], jnp)
            push = of["stiffness"] * deep * slope * jnp.maximum(0.0, 1 + of["damping"] * sign * rate)
            size = size - sign * push
        return JointForce.acting(coordinate, a, b, size)

    def stored(self, value: np.ndarray) -> np.ndarray:
        """The energy (K,) in its springs for values (K,) of the coordinate."""
        (ends, middle), soft = _range(self.numbers), self.numbers["soft"]
        if self.driven.turns:
            value = middle + np.remainder(value - middle + np.pi, TURN) - np.pi
        deep = [_beyond(sign * (value - end), soft, np)[0] for end, sign in ends]
        return 0.5 * self.numbers["stiffness"] * sum(p**2 for p in deep)


def _range(of: Mapping[str, Any]) -> tuple[list[tuple[Any, float]], Any]:
    """The ends of a range with the directions out of it, and its middle."""
    ends = [(of[key], sign) for key, sign in (("lower", -1.0), ("upper", 1.0)) if key in of]
    return ends, sum(end for end, _ in ends) / len(ends)


def _beyond(d: Any, soft: Any, xp: Any) -> tuple[Any, Any]:
    """The positive part of d, smoothed, and its derivative."""
    root = xp.sqrt(d**2 + soft**2)
    return 0.5 * (d + root), 0.5 * (1 + d / root)


# --- events -------------------------------------------------------------------------------------------


def chosen(model: Model, joint: Any, name: str) -> tuple[Joint, Coordinate]:
    found = model[joint] if isinstance(joint, str) else joint
    if not isinstance(found, Joint):
        raise TypeError(f"{found!r} is no joint")
    if found.name not in model or model[found.name] is not found:
        raise ValueError(f"{found!r} is not in this model")
    return found, found.coordinate(name)


class _JointEnd(NamedTuple):
    """A frame of a joint: its body, where this is in q and v, and the place and the axes of the frame."""

    body: AnyBody
    q: slice
    v: slice
    r: np.ndarray
    Q: np.ndarray


class JointFrames:
    """The frames of a joint as a function of q and v of the whole, and of the args of its system, if any."""

    def __init__(self, model: Model, joint: Joint) -> None:
        self.joint, self.programs = joint, model.system._programs
        slices, none = model.slices(), (slice(0, 0), slice(0, 0))
        places = [(m, slices.get(m.body.name, none)) for m in joint.markers[:2]]
        self._ends = [_JointEnd(m.body, q, v, m.r, m.Q) for m, (q, v) in places]
        first = len({type(body) for body in model.bodies})
        groups = [(i, group.members) for i, group in enumerate(model.groups) if joint in group.members]
        self._place = next(((first + i, members.index(joint)) for i, members in groups), None)

    def __call__(self, q: Any, v: Any, args: Any = ()) -> list[FrameState]:
        return self.at(self.positions(q), [v[by] for by in self.speeds], self.points(args))

    def check(self, model: Model) -> None:
        """Raise an error if the frames are elsewhere in a model."""
        there = model._things.get(self.joint.name)
        if not isinstance(there, Joint) or JointFrames(model, there)._layout != self._layout:
            raise ValueError(
                f"the event of {self.joint!r} belongs to another model, or was made before the model was "
                "changed: call model.event or model.stops again"
            )

    @property
    def _layout(self) -> tuple[Any, ...]:
        ends = (
            (end.body.name, end.q.start, end.v.start, end.r.tolist(), end.Q.tolist()) for end in self._ends
        )
        return self._place, str([*ends])

    def positions(self, q: Any) -> list[Any]:
        """The coordinates of both bodies."""
        return [q[end.q] for end in self._ends]

    @property
    def speeds(self) -> list[slice]:
        """Where the velocities of both bodies are."""
        return [end.v for end in self._ends]

    def points(self, args: Any) -> list[Any]:
        """The points of the frames on their bodies; those of a run with other values are in its args."""
        if not args or self._place is None:  # all of its rows were left out
            return [end.r for end in self._ends]
        part, number = self._place
        return [end["r"][number] for end in args[part][0][:2]]

    def at(self, q: list[Any], v: list[Any], points: list[Any]) -> list[FrameState]:
        """The frames for coordinates and velocities of both bodies."""
        given = zip(self._ends, q, v, points, strict=True)
        return [end.body.kind.state(own, speed, r, end.Q) for end, own, speed, r in given]

    def still(self, q: Any, args: Any) -> list[FrameState]:
        """The frames without velocities, by NumPy."""
        both = zip(self._ends, self.positions(q), self.points(args), strict=True)
        return [Marker(end.body.moved(own), r, end.Q).state for end, own, r in both]


class JointRate:
    """The rate of a joint coordinate, and its derivative (n,) with respect to v. It is linear in v."""

    def __init__(self, frames: JointFrames, by: Coordinate) -> None:
        self.frames, self.by = frames, by
        self._rates: Rowwise | None = None

    def __getstate__(self) -> dict[str, Any]:
        """All but the machine code."""
        return self.__dict__ | {"_rates": None}

    def __call__(self, q: np.ndarray, v: np.ndarray, args: Any) -> tuple[float, np.ndarray]:
        frames, by = self.frames, self.by
        own = frames.positions(q), [np.asarray(r) for r in frames.points(args)]
        places = np.concatenate([np.arange(at.start, at.stop) for at in frames.speeds])
        cut = frames.speeds[0].stop - frames.speeds[0].start
        if self._rates is None:
            one = lambda q, points, v: JointForce.moved(by, *frames.at(q, [v[:cut], v[cut:]], points))[1]
            make = lambda: Rowwise("rate", one, (*own, v[places]))
            self._rates = frames.programs.made(("rate of a joint", frames._layout, by), make)
        rows = np.vstack([v[places], np.eye(len(places))])
        found = np.asarray(self._rates((*jax.tree.map(lambda x: x[None], own), rows), machine.lanes()))
        c = np.zeros_like(v)
        c[places] = found[1:]
        return float(found[0]), c


class _Alike:
    """Objects with the same ``identity`` are equal: what was compiled for one serves the others."""

    identity: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


class _Reached(_Alike):
    """The difference of a joint coordinate, or of its rate, to a value, as a function of an event."""

    def __init__(self, frames: JointFrames, by: Coordinate, value: float, rate: bool = False) -> None:
        self.frames, self.by, self.value, self.rate = frames, by, value, rate
        self.identity = frames._layout, by, value, rate

    def __call__(self, t: Any, q: Any, v: Any, *args: Any) -> Any:
        a, b = self.frames(q, v, args)
        return JointForce.moved(self.by, a, b)[1] - self.value if self.rate else self.by.off(a, b, self.value)

    def now(self, q: np.ndarray, args: Any, about: float) -> float:
        """The same for numbers. An angle counts as that within half a turn of ``about``."""
        a, b = self.frames.still(q, args)
        return about - self.value + float(self.by.off(a, b, about, np))


def event(
    model: Model, joint: Any, value: Any, coordinate: str = "", rate: bool = False, **options: Any
) -> Event:
    """The event of a coordinate of a joint, or its rate, that reaches a value."""
    found, by = chosen(model, joint, coordinate)
    wanted = finite(value, f"the value of the event of {found.name!r}")
    reached = _Reached(JointFrames(model, found), by, wanted, rate)
    return Event(reached, period=TURN if by.turns and not rate else None, **options)


def stops(
    model: Model, joint: Any, ends: tuple[Any, Any], restitution: Any, coordinate: str = "", rest: Any = 1e-3
) -> list[Event]:
    """The impacts of a joint on stops at the ends of its range."""
    found, by = chosen(model, joint, coordinate)
    what = f"the stops of {found.name!r}"
    part, slow = nonnegative(restitution, f"restitution of {what}"), positive(rest, f"rest of {what}")
    if part > 1:
        raise ValueError(f"restitution of {what} must be at most 1, got {restitution!r}")
    values = ends_of(*ends, by.turns, what)
    if by.turns and len(values) == 1 and abs(*values.values()) > np.pi:
        raise ValueError(f"{what} have one end beyond half a turn, but an angle comes back: pass both ends")
    bounce = _Bounce(model, found, by, part, slow, values)
    ways = ((value, -1 if key == "lower" else 1) for key, value in values.items())
    # A joint that starts at its stop is not beyond it, and hits it if it moves there.
    return [_stop(bounce, value + way * _AT, way) for value, way in ways]


def _stop(bounce: _Bounce, value: float, way: int) -> Event:
    """The event of a stop at a value, out of the range in the direction ``way``."""
    reached = _Reached(bounce.frames, bounce.by, value)
    return Event(reached, period=TURN if bounce.by.turns else None, direction=way, reset=bounce)


def from_start(model: Model, events: Any, q: Any, v: Any, args: Any) -> Any:
    """Events of a run that starts at q: a stop at which a joint rests is where the joint is.

    A joint that starts further beyond its stop is refused, and so are events of other models.
    """
    listed = list(events) if isinstance(events, list | tuple) else [events]
    for one in listed:
        reached = getattr(one, "function", None)
        if isinstance(reached, _Reached):
            reached.frames.check(model)
    if is_traced(q, v, args) or not any(isinstance(getattr(e, "reset", None), _Bounce) for e in listed):
        return events
    for k, one in enumerate(listed):
        bounce = getattr(one, "reset", None)
        if not isinstance(bounce, _Bounce):
            continue
        way = int(one.direction)
        beyond = one.function.now(q, args, bounce.about(one.function.value, way))
        if way * beyond > _RESTS * bounce.size:
            raise ValueError(f"{bounce.joint!r} starts beyond its stop, by {way * beyond:.3g}")
        if way * beyond >= 0:
            listed[k] = _stop(bounce, one.function.value + beyond + way * _AT, way)
    return listed


class _Bounce(_Alike):
    """The velocities after the impact of a joint on a stop.

    With c, the derivative of the rate of the coordinate with respect to v, and B, the matrix of all
    constraints: M (v⁺ − v) = c p − Bᵀμ, B (v⁺ − v) = 0 and c (v⁺ − v) = −(1 + e) times the rate.
    """

    def __init__(
        self, model: Model, joint: Joint, by: Coordinate, part: float, rest: float, ends: dict[str, float]
    ) -> None:
        self.model, self.joint, self.by, self.part, self.rest, self.ends = model, joint, by, part, rest, ends
        self.frames = JointFrames(model, joint)
        self._rate = JointRate(self.frames, by)
        self.identity = id(model), self.frames._layout, by, part, rest, *ends.items()

    def about(self, value: float, way: int) -> float:
        """The middle of the range. With one end, an angle is at most a quarter of a turn beyond it."""
        return float(np.mean([*self.ends.values()])) if len(self.ends) == 2 else value - way * np.pi / 2

    @property
    def size(self) -> float:
        """Of the range, if it is smaller than one."""
        return min(1.0, self.ends["upper"] - self.ends["lower"]) if len(self.ends) == 2 else 1.0

    def __call__(self, t: Any, q: Any, v: Any, *args: Any) -> Reset:
        if is_traced(q, v, args):
            return self._traced(t, q, v, args)
        rate, c = self._rate(np.asarray(q), np.asarray(v), args)
        at = Geometry(self.model, args).at(np.asarray(q), np.asarray(v), float(t))
        m, p = at.dims[2:]
        try:
            w = at.saddle(at.scale).solve(c, np.zeros(m), np.zeros(p))[0]
        except RuntimeError as error:
            raise ValueError(
                f"the impact of {self.joint!r} has no solution: rows of joints depend on others; "
                "model.assemble(redundant='drop') leaves them out"
            ) from error
        if not c @ w > _FREE * (c**2 / at.M.diagonal()).sum():
            raise ValueError(f"{self.joint!r} cannot move: other joints hold it, so it cannot hit a stop")
        after = v - ((1 + self.part) * rate / (c @ w)) * w
        return Reset(v=after, stop=bool(self.part * abs(rate) < self.rest))

    def _traced(self, t: Any, q: Any, v: Any, args: Any) -> Reset:
        """The same with dense matrices, for runs under a JAX transform."""
        frames, system, n = self.frames, self.model.system, len(v)
        rate = lambda v: JointForce.moved(self.by, *frames(q, v, args))[1]
        c = jnp.stack([rate(row) for row in np.eye(n)])
        rows = jnp.concatenate([system.G(t, q, args), system.K(t, q, v, args)])
        zeros = jnp.zeros((len(rows), len(rows)))
        saddle = jnp.block([[system.M(t, q, args), rows.T], [rows, zeros]])
        w = jnp.linalg.solve(saddle, jnp.concatenate([c, zeros[0]]))[:n]
        after = v - ((1 + self.part) * rate(v) / (c @ w)) * w
        return Reset(v=after, stop=self.part * jnp.abs(rate(v)) < self.rest)

"""Forces: springs, dampers, bushings, applied loads, motors, contact and drag.

Every force on frame b has its opposite on frame a, at the same point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha import rotation
from genalpha.multibody.bodies import check_torque
from genalpha.multibody.connectors import Connector, between, frame_on, returned, wrenches
from genalpha.multibody.frames import FrameState, Wrench, finite, nonnegative, positive, vector
from genalpha.multibody.joints import Joint, gap
from genalpha.multibody.reactions import relative
from genalpha.multibody.vectors import cross

ZERO = np.zeros(3)


def pair(force: Any, torque: Any = ZERO) -> tuple[Wrench, Wrench]:
    """A force and a torque on b, and their opposites on a, where both frames are at the same point."""
    return Wrench(-force, -torque), Wrench(force, torque)


_NEARLY_HALF_A_TURN = -0.99  # the cosine of an angle


class Force(Connector):
    """A force between frames, or on one."""

    def start_warning(self, *frames: FrameState) -> str:
        """What is to be said of its frames where a run starts, if anything."""
        return ""


class SpringDamper(Force):
    """A spring and a damper between two points.

    The pull is stiffness·(length − free length) + damping·rate + ``law(length, rate)``. Without ``length``
    the spring is free where the bodies are in the model.
    """

    not_negative = ("stiffness", "damping", "length")

    def __init__(
        self,
        name: str,
        a: Any,
        b: Any,
        stiffness: Any = 0.0,
        damping: Any = 0.0,
        length: Any = None,
        law: Callable[..., Any] | None = None,
    ) -> None:
        markers = between(name, a, b)
        now = float(np.linalg.norm(markers[1].pose[0] - markers[0].pose[0]))
        numbers = {
            "stiffness": nonnegative(stiffness, f"stiffness of {name!r}"),
            "damping": nonnegative(damping, f"damping of {name!r}"),
            "length": now if length is None else nonnegative(length, f"length of {name!r}"),
        }
        if not now > 0:
            raise ValueError(f"the ends of {name!r} are at the same point: a spring needs a direction")
        super().__init__(name, markers, numbers, {} if law is None else {"law": law})

    @staticmethod
    def force(
        t: Any, a: FrameState, b: FrameState, stiffness: Any, damping: Any, length: Any, law: Any = None
    ) -> Any:
        d, speed = b.x - a.x, b.v - a.v
        now = jnp.sqrt(d @ d)
        rate = (d @ speed) / now
        pull = stiffness * (now - length) + damping * rate
        if law is not None:
            pull = pull + returned(law(now, rate), (), "law")
        return pair(-(pull / now) * d)


class JointForce(Force):
    """The base of forces along a coordinate of a joint: a torque about its axis, or a force along it."""

    def __init__(
        self,
        name: str,
        joint: Joint,
        numbers: dict[str, Any],
        functions: dict[str, Any],
        coordinate: str,
    ) -> None:
        if not isinstance(joint, Joint):
            raise TypeError(f"{name!r} needs a joint, got {type(joint).__name__}")
        by = joint.coordinate(coordinate)
        self.joint, self.driven, self.joints = joint, by, (joint,)
        chosen: dict[str, Any] = {"coordinate": by, **functions}
        super().__init__(name, joint.markers, numbers, chosen)

    @staticmethod
    def moved(coordinate: Any, a: FrameState, b: FrameState) -> tuple[Any, Any]:
        """The coordinate and its rate."""
        v, w = relative(a, b)
        if coordinate.turns:
            return coordinate.value(a, b), w @ a.seen(b.axis) if coordinate.about_b else w[2]
        along = direction(coordinate)
        return coordinate.value(a, b), v[along]

    @staticmethod
    def acting(coordinate: Any, a: FrameState, b: FrameState, size: Any) -> tuple[Wrench, Wrench]:
        """The wrenches of a force or a torque along the coordinate, on a and b."""
        if coordinate.turns:
            return pair(ZERO, size * coordinate.axis(a, b))
        force = size * a.R[:, direction(coordinate)]
        # It acts on a at the point where b is.
        return Wrench(-force, -cross(b.x - a.x, force)), Wrench(force, ZERO)


def direction(coordinate: Any) -> int:
    """The axis of a displacement: found by trying."""
    still: Any = FrameState(ZERO, np.eye(3), ZERO, ZERO)
    for k in range(3):
        moved = still._replace(x=np.eye(3)[k])
        if float(coordinate.value(still, moved)) == 1.0:
            return k
    raise ValueError(f"the coordinate {coordinate.name!r} is no displacement along an axis")


class JointSpring(JointForce):
    """A spring and a damper along a coordinate of a joint: −stiffness·(value − free) − damping·rate.

    ``law(value, rate)`` is added: the force or torque on b. An angle counts as that within half a turn of
    ``free``: where the spring is turned by half a turn, its torque jumps.
    """

    not_negative = ("stiffness", "damping")

    def __init__(
        self,
        name: str,
        joint: Joint,
        stiffness: Any = 0.0,
        damping: Any = 0.0,
        free: Any = 0.0,
        law: Callable[..., Any] | None = None,
        coordinate: str = "",
    ) -> None:
        numbers = {
            "stiffness": nonnegative(stiffness, f"stiffness of {name!r}"),
            "damping": nonnegative(damping, f"damping of {name!r}"),
            "free": finite(free, f"free of {name!r}"),
        }
        super().__init__(name, joint, numbers, {} if law is None else {"law": law}, coordinate)

    @staticmethod
    def force(
        t: Any,
        a: FrameState,
        b: FrameState,
        stiffness: Any,
        damping: Any,
        free: Any,
        coordinate: Any,
        law: Any = None,
    ) -> Any:
        turned, (_, rate) = coordinate.off(a, b, free), JointForce.moved(coordinate, a, b)
        size = -stiffness * turned - damping * rate
        more = 0.0 if law is None else returned(law(free + turned, rate), (), "law")
        return JointForce.acting(coordinate, a, b, size + more)


class Motor(JointForce):
    """A motor on a coordinate of a joint: ``effort(t)``, or a controller that follows ``target(t)``.

    The controller is kp·(target − value) + kd·(target' − rate) + effort(t), limited smoothly to ± ``limit``.
    Angles are followed over any number of turns, by the sine of the difference.
    """

    positive = ("limit",)
    not_negative = ("kp", "kd")

    def __init__(
        self,
        name: str,
        joint: Joint,
        effort: Callable[[Any], Any] | float = 0.0,
        target: Callable[[Any], Any] | None = None,
        kp: Any = 0.0,
        kd: Any = 0.0,
        limit: Any = None,
        coordinate: str = "",
    ) -> None:
        numbers = {"kp": nonnegative(kp, f"kp of {name!r}"), "kd": nonnegative(kd, f"kd of {name!r}")}
        functions: dict[str, Any] = {}
        if callable(effort):
            functions["effort"] = effort
        else:
            numbers["effort"] = finite(effort, f"effort of {name!r}")
        if target is not None:
            functions["target"] = target
        if (target is None) == any(numbers[key] > 0 for key in ("kp", "kd")):
            has, lacks = ("kp or kd", "target") if target is None else ("a target", "kp or kd")
            raise ValueError(f"the motor {name!r} has {has} and no {lacks}: its controller needs both")
        if limit is not None:
            numbers["limit"] = positive(limit, f"limit of {name!r}")
        super().__init__(name, joint, numbers, functions, coordinate)

    @staticmethod
    def force(
        t: Any,
        a: FrameState,
        b: FrameState,
        kp: Any,
        kd: Any,
        coordinate: Any,
        effort: Any,
        limit: Any = None,
        target: Any = None,
    ) -> Any:
        size = returned(effort(t), (), "effort") if callable(effort) else effort
        if target is not None:
            wanted, speed = _with_rate(target, t)
            _, rate = JointForce.moved(coordinate, a, b)
            size = size - kp * coordinate.gap(a, b, wanted) + kd * (speed - rate)
        if limit is not None:
            size = limit * jnp.tanh(size / limit)
        return JointForce.acting(coordinate, a, b, size)


class DryFriction(JointForce):
    """Dry friction of constant size along a coordinate of a joint: −size·tanh(rate/``speed``).

    ``size`` is a torque, or a force for a displacement, whatever the joint carries; :class:`Friction` depends
    on the reaction. Below ``speed`` it is like a damper: a joint under a smaller load creeps. MJCF calls it
    frictionloss.

    >>> from genalpha import multibody as mb
    >>> model = mb.Model(gravity=(0, 0, 0))
    >>> disk = model.add(mb.PlanarBody("disk", 1.0, 0.5, angular_velocity=2.0))
    >>> hinge = model.add(mb.Revolute("hinge", model.ground, disk, at=(0, 0)))
    >>> drag = model.add(mb.DryFriction("drag", hinge, 0.4))
    >>> motion = model.motion(model.solve((0.0, 1.0), h=0.01))
    >>> motion.rate("hinge")[-1].round(6).item()  # 2 − (0.4/0.5) t
    1.2
    """

    positive = ("speed",)
    not_negative = ("size",)

    def __init__(self, name: str, joint: Joint, size: Any, speed: Any = 1e-2, coordinate: str = "") -> None:
        numbers = {
            "size": nonnegative(size, f"size of {name!r}"),
            "speed": positive(speed, f"speed of {name!r}"),
        }
        super().__init__(name, joint, numbers, {}, coordinate)

    @staticmethod
    def force(t: Any, a: FrameState, b: FrameState, size: Any, speed: Any, coordinate: Any) -> Any:
        _, rate = JointForce.moved(coordinate, a, b)
        return JointForce.acting(coordinate, a, b, -size * jnp.tanh(rate / speed))


def _with_rate(function: Callable[[Any], Any], t: Any) -> tuple[Any, Any]:
    import jax

    value = lambda t: returned(function(t), (), "target")
    return jax.jvp(value, (t,), (jnp.ones_like(t),))


class Bushing(Force):
    """Six springs and dampers between two frames: along and about the axes of a.

    ``stiffness`` and ``damping`` (6,) are for displacements and for the rotation vector of b relative to a.
    ``law(d, rate)`` (6,) -> (6,) may be added: the force and torque on b in the axes of a. The rotation
    vector ends at half a turn. If the stiffnesses about the axes differ, the torque has no potential: energy
    is kept for small rotations only.
    """

    not_negative = ("stiffness", "damping")

    def __init__(
        self,
        name: str,
        a: Any,
        b: Any,
        stiffness: Any,
        damping: Any = 0.0,
        law: Callable[..., Any] | None = None,
        at: Any = None,
        axis: Any = None,
    ) -> None:
        numbers = {}
        for key, value in (("stiffness", stiffness), ("damping", damping)):
            numbers[key] = vector([value] * 6 if np.ndim(value) == 0 else value, f"{key} of {name!r}", 6)
            if (numbers[key] < 0).any():
                raise ValueError(f"{key} of {name!r} must be zero or positive, got {value!r}")
        ends = between(name, a, b, at, axis)
        if any(x[3:].any() for x in numbers.values()):
            check_torque(name, *ends)
        super().__init__(name, ends, numbers, {} if law is None else {"law": law})

    @staticmethod
    def force(t: Any, a: FrameState, b: FrameState, stiffness: Any, damping: Any, law: Any = None) -> Any:
        turned = rotation.vector_of_matrix(a.R.T @ b.R)
        d = jnp.concatenate([gap(a, b), turned])
        rate = jnp.concatenate(relative(a, b))
        load = -stiffness * d - damping * rate
        load = load if law is None else load + returned(law(d, rate), (6,), "law")
        force, torque = a.R @ load[:3], a.R @ load[3:]
        return Wrench(-force, -torque - cross(b.x - a.x, force)), Wrench(force, torque)

    def start_warning(self, *frames: FrameState) -> str:
        a, b = frames
        if np.trace(a.R.T @ b.R) > 1 + 2 * _NEARLY_HALF_A_TURN:
            return ""
        return (
            f"the frames of {self!r} are nearly half a turn apart, where its torque jumps: turn one of them"
        )


class AppliedForce(Force):
    """A force and a torque on a body, in space-fixed axes, or in those of its frame if it ``follows``.

    Each is three numbers, or a function of t.
    """

    def __init__(
        self, name: str, body: Any, force: Any = ZERO, torque: Any = ZERO, follows: bool = False
    ) -> None:
        numbers: dict[str, Any] = {"follows": float(follows)}
        functions: dict[str, Any] = {}
        for key, value in (("force", force), ("torque", torque)):
            if callable(value):
                functions[key] = value
            else:
                numbers[key] = vector(value, f"{key} of {name!r}")
        frame = frame_on(body, f"body of {name!r}")
        if "torque" in functions or numbers["torque"].any():
            check_torque(name, frame)
        super().__init__(name, (frame,), numbers, functions)

    def check_number(self, key: str, value: np.ndarray) -> None:
        super().check_number(key, value)
        if key == "follows" and not np.isin(value, (0, 1)).all():
            raise ValueError(f"{self.name}.follows must be 0 or 1, got {value.tolist()}")

    @staticmethod
    def force(t: Any, a: FrameState, follows: Any, force: Any, torque: Any) -> Any:
        turned = lambda x: jnp.where(follows > 0, a.R @ x, x)
        three = lambda what, x: turned(returned(x(t) if callable(x) else x, (3,), what))
        return (Wrench(three("force", force), three("torque", torque)),)


class Drag(Force):
    """Resistance of a medium: −(linear + quadratic·|v|) v at a frame, where v is relative to ``wind``."""

    not_negative = ("linear", "quadratic")

    def __init__(
        self, name: str, body: Any, linear: Any = 0.0, quadratic: Any = 0.0, wind: Any = ZERO
    ) -> None:
        numbers = {
            "linear": nonnegative(linear, f"linear of {name!r}"),
            "quadratic": nonnegative(quadratic, f"quadratic of {name!r}"),
            "wind": vector(wind, f"wind of {name!r}"),
        }
        super().__init__(name, (frame_on(body, f"body of {name!r}"),), numbers)

    @staticmethod
    def force(t: Any, a: FrameState, linear: Any, quadratic: Any, wind: Any) -> Any:
        v = a.v - wind
        speed = jnp.sqrt(v @ v + 1e-24)
        return (Wrench(-(linear + quadratic * speed) * v, ZERO),)


class Custom(Force):
    """A force of the user's own between two frames: ``function(t, a, b)`` -> (Wrench on a, Wrench on b).

    a and b are :class:`FrameState`. A :class:`Wrench` is a force (3,) and a torque (3,) at the origin of its
    frame. All are in space-fixed axes. A torque on a :class:`PointMass` has no effect.

    >>> import jax.numpy as jnp
    >>> from genalpha import multibody as mb
    >>> model = mb.Model(gravity=(0, 0, 0))
    >>> cart = model.add(mb.PointMass("cart", 2.0))
    >>> zero, x = jnp.zeros(3), jnp.array([1.0, 0, 0])
    >>> wind = lambda t, a, b: (mb.Wrench(zero, zero), mb.Wrench(t * x, zero))
    >>> _ = model.add(mb.Custom("wind", model.ground, cart, wind))
    >>> model.solve((0.0, 1.0), h=0.01).q[-1, 0].round(4).item()  # t³/6 over the mass
    0.0833
    """

    def __init__(self, name: str, a: Any, b: Any, function: Callable[..., Any]) -> None:
        super().__init__(name, between(name, a, b), functions={"function": function})

    @staticmethod
    def force(t: Any, a: FrameState, b: FrameState, function: Any) -> Any:
        return wrenches(function(t, a, b), 2)

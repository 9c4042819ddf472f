"""Mechanisms as models: a slider crank, a top, a disk, a gyroscope, a bicycle and a Stewart platform.

Each function returns a model whose joints are closed by ``model.assemble()``. All are files too, in
``examples/models``; ``python examples/mechanisms.py`` writes these anew, with the problems of ``iftomm.py``
and the car of ``suspension.py``.
A file holds no functions. So drives whose motion is a function of time are added to a model afterwards, as
``platform_drives`` does here.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha import multibody as mb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder above, for a run as a script

from examples import four_bar, iftomm, suspension

MODELS = Path(__file__).parent / "models"


def slider_crank() -> mb.Model:
    """The rigid slider crank of Simeon and Raha in the plane, stretched out. Its torque is a function."""
    model = mb.Model(gravity=(0, -9.81, 0))
    crank = model.add(mb.PlanarBody("crank", 0.36, 0.002727 - 0.36 * 0.075**2, at=(0.075, 0)))
    rod = model.add(mb.PlanarBody("rod", 0.151104, 0.0045339259 - 0.151104 * 0.15**2, at=(0.3, 0)))
    slider = model.add(mb.PlanarBody("slider", 0.075552, 1e-4, at=(0.45, 0)))
    model.add(mb.Revolute("bearing", model.ground, crank, at=(0, 0)))
    model.add(mb.Revolute("pin", crank, rod, at=(0.15, 0)))
    model.add(mb.Revolute("wrist", rod, slider, at=(0.45, 0)))
    model.add(mb.Prismatic("guide", model.ground, slider, at=(0.45, 0), axis=(1, 0)))
    return model


def heavy_top() -> mb.Model:
    """15 kg at 1 m from a ball joint, with a spin of 150 rad/s (Arnold, Cardona and Brüls 2015)."""
    model = mb.Model()
    spin = np.array([0.0, 150.0, -4.61538])
    inertia = mb.Inertia(15.0, [0.234375, 0.46875, 0.234375])
    speeds: dict[str, Any] = {"velocity": np.cross(spin, (0, 1, 0)), "angular_velocity": spin}
    top = model.add(mb.Body("top", inertia, at=(0, 1, 0), **speeds))
    model.add(mb.Spherical("tip", model.ground, top, at=(0, 0, 0)))
    return model


def rolling_disk() -> mb.Model:
    """The disk of Jay (2011), section 7.2: radius 1, leaning by 0.3 from the vertical, with a spin of −3."""
    model = mb.Model(gravity=(0, 0, -10))
    tilt, spin, c, s = 0.3, 1.0, np.cos, np.sin
    lean = np.array([(1, 0, 0), (0, c(tilt), s(tilt)), (0, -s(tilt), c(tilt))])
    roll = np.array([(c(spin), 0, -s(spin)), (0, 1, 0), (s(spin), 0, c(spin))])
    w = np.array([-0.02, 0, -0.02]) + 3.0 * lean[:, 1]
    up = lean[:, 2]
    body = mb.Body("disk", mb.Inertia(2.0, [2, 2, 2]), at=np.array([0.1, 0, 0]) + up, rotation=lean @ roll)
    disk = model.add(body)
    disk.angular_velocity, disk.velocity = w, np.cross(w, up)
    model.add(mb.RollingDisk("floor", model.ground, disk.frame(axis=(0, 1, 0)), radius=1.0))
    return model


def gyroscope() -> mb.Model:
    """A rotor in two gimbals. The inner one carries a weight on the spin axis, so that the spin precesses.

    The outer gimbal turns about z, the inner one about x of the outer one, the rotor about z of the inner
    one. The inner gimbal starts at an angle of 1 with the vertical.
    """
    model = mb.Model()
    c, s = np.cos(1.0), np.sin(1.0)
    R, at = np.array([(1, 0, 0), (0, c, -s), (0, s, c)]), (0.0, 0.0, 0.0)
    outer = model.add(mb.Body("outer", mb.Inertia(0.8, [0.012, 0.007, 0.008])))
    ring = mb.Inertia(0.5, [0.004, 0.003, 0.0045]).plus(0.3, (0, 0, 0.12))
    inner = model.add(mb.Body("inner", ring, rotation=R))
    rotor = model.add(mb.Body("rotor", mb.Inertia(1.2, [0.0022, 0.0022, 0.004]), rotation=R))
    model.add(mb.Revolute("stand", model.ground, outer, at=at))
    model.add(mb.Revolute("gimbal", outer.frame(axis=(1, 0, 0)), inner.frame(axis=(1, 0, 0))))
    model.add(mb.Revolute("spindle", inner.frame(), rotor.frame()))
    model["inner"].angular_velocity = np.array([0.2, 0, 0])
    model["inner"].velocity = np.cross((0.2, 0, 0), inner.x)
    rotor.angular_velocity = np.array([0.2, 0, 0]) + 90.0 * R[:, 2]
    return model


def bicycle(speed: float = 5.0) -> mb.Model:
    """The benchmark bicycle of Meijaard, Papadopoulos, Ruina and Schwab (2007), upright, straight ahead.

    Rear and front wheel, rear frame with the rider, front fork. The paper has z downwards, here it is
    upwards, which changes the sign of products of inertia. The rear wheel starts at the origin.
    """
    model = mb.Model()
    w, c, tilt = 1.02, 0.08, np.pi / 10  # wheel base, trail, and angle of the steering axis

    def part(
        name: str, mass: float, at: tuple[float, float], xx: float, yy: float, zz: float, xz: float
    ) -> Any:
        inertia = mb.Inertia(mass, [(xx, 0, -xz), (0, yy, 0), (-xz, 0, zz)])
        return model.add(mb.Body(name, inertia, at=(at[0], 0, at[1]), velocity=(speed, 0, 0)))

    rear = part("rear wheel", 2.0, (0, 0.3), 0.0603, 0.12, 0.0603, 0.0)
    frame = part("frame", 85.0, (0.3, 0.9), 9.2, 11.0, 2.8, 2.4)
    fork = part("fork", 4.0, (0.9, 0.7), 0.05892, 0.06, 0.00708, -0.00756)
    front = part("front wheel", 3.0, (w, 0.35), 0.1405, 0.28, 0.1405, 0.0)
    down = np.array([np.sin(tilt), 0, -np.cos(tilt)])  # a positive angle steers to the right, as in the paper
    model.add(mb.Revolute("rear hub", frame, rear, at=(0, 0, 0.3), axis=(0, 1, 0)))
    model.add(mb.Revolute("steering", frame, fork, at=np.array([w + c, 0, 0]) - down, axis=down))
    model.add(mb.Revolute("front hub", fork, front, at=(w, 0, 0.35), axis=(0, 1, 0)))
    for wheel, radius in ((rear, 0.3), (front, 0.35)):
        wheel.angular_velocity = np.array([0, speed / radius, 0])
        floor = wheel.frame(axis=(0, 1, 0))
        model.add(mb.RollingDisk(f"floor, {wheel.name}", model.ground, floor, radius=radius))
    return model


# --- the Stewart platform -----------------------------------------------------------------------------------

HEIGHT = 1.0  # of the platform at the start
LEG = 0.3  # from its joints to the centres of mass of a cylinder and a piston


def anchors() -> tuple[np.ndarray, np.ndarray]:
    """Points of the legs on the base and in the platform (6, 3): pairs at three corners."""
    corner = np.repeat(np.arange(3), 2) * 2 * np.pi / 3
    side = np.tile([-1.0, 1.0], 3)
    ring = lambda radius, angle: np.stack([radius * np.cos(angle), radius * np.sin(angle), 0 * angle], axis=1)
    return ring(0.8, corner + 0.2 * side), ring(0.5, corner + np.pi / 3 * side - 0.25 * side)


def stewart(uneven: float = 0.0) -> mb.Model:
    """A platform of 20 kg on six legs, each a cylinder on a cardan joint and a piston with a ball joint.

    Every leg has a motor with the constant force that holds the platform at rest, by virtual work: if it
    rises by d, a leg gets longer by d times its slope, and turns about its foot by the rest. If the forces
    are ``uneven``, they are too small and too large in turn, by such a part, and the platform moves.
    """
    model = mb.Model()
    base, top = anchors()
    top = top + np.array([0, 0, HEIGHT])
    platform = model.add(mb.Body("platform", mb.cylinder(20.0, 0.5, 0.08), at=(0, 0, HEIGHT)))
    for i, (foot, head) in enumerate(zip(base, top, strict=True), start=1):
        length = np.linalg.norm(head - foot)
        z = (head - foot) / length
        rise = LEG * (1 - z[2] ** 2) / length  # of the centre of a cylinder, for a unit of d
        push = 9.81 * (20.0 / 6 + 3.0 * rise + 1.5 * (1 - rise)) / z[2]
        x = np.cross((0, 0, 1), z) / np.linalg.norm(np.cross((0, 0, 1), z))
        y = np.cross(z, x)
        R = np.stack([x, y, z], axis=1)
        low = mb.Body(f"cylinder {i}", mb.cylinder(3.0, 0.04, 0.5), at=foot + LEG * z, rotation=R)
        high = mb.Body(f"piston {i}", mb.cylinder(1.5, 0.02, 0.6), at=head - LEG * z, rotation=R)
        cylinder, piston = model.add(low), model.add(high)
        model.add(mb.Universal(f"foot {i}", model.ground, cylinder, at=foot, axis=x, second=y))
        slide = model.add(mb.Prismatic(f"leg {i}", cylinder, piston, at=foot, axis=z))
        model.add(mb.Spherical(f"head {i}", piston, platform, at=head))
        model.add(mb.Motor(f"motor {i}", slide, effort=push * (1 + uneven * (-1) ** i)))
    return model


class LegLength(mb.Joint):
    """The length of a leg, from a point of the ground to one of the platform whose ``motion`` is given.

    ``motion(t)`` is the position (3,) and the axes (3, 3) of the platform. a and b are the frames of a
    prismatic joint; they are together when the leg has the length ``start``.
    """

    rows = ("length",)

    def __init__(
        self, name: str, leg: mb.Joint, foot: Any, head: Any, start: float, motion: Callable
    ) -> None:
        numbers = {"foot": foot, "head": head, "start": start}
        mb.Connector.__init__(self, name, leg.markers, numbers, {"motion": motion})

    @staticmethod
    def holonomic(t: Any, a: Any, b: Any, foot: Any, head: Any, start: Any, motion: Any) -> Any:
        x, R = motion(t)
        d = x + R @ head - foot
        return (a.axis @ (b.x - a.x) - (jnp.sqrt(d @ d) - start))[None]


def platform_drives(model: mb.Model, motion: Callable) -> list[mb.Joint]:
    """Add to a Stewart platform what makes it follow ``motion(t)``, and return the six constraints."""
    base, top = anchors()
    x, R = (np.asarray(part) for part in motion(0.0))
    model["platform"].x, model["platform"].R = x, R
    start = np.linalg.norm(top + np.array([0, 0, HEIGHT]) - base, axis=1)
    numbers = enumerate(zip(base, top, start, strict=True), start=1)
    return [model.add(LegLength(f"drive {i}", model[f"leg {i}"], *of, motion)) for i, of in numbers]


BUILT: dict[str, Callable[[], mb.Model]] = {
    "pendulum": iftomm.pendulum,
    "double_four_bar": lambda: iftomm.four_bars(2),
    "squeezer": iftomm.squeezer,
    "bricard": iftomm.bricard,
    "governor": iftomm.governor,
    "four_bar": four_bar.linkage,
    "slider_crank": slider_crank,
    "heavy_top": heavy_top,
    "rolling_disk": rolling_disk,
    "gyroscope": gyroscope,
    "bicycle": bicycle,
    "stewart": stewart,
    "car": suspension.car,
}


def main() -> None:
    MODELS.mkdir(exist_ok=True)
    for name, build in BUILT.items():
        model = build()
        model.save(MODELS / f"{name}.json")
        print(f"{name}: {model}")


if __name__ == "__main__":
    main()

"""A car on a four-post rig: 20 bodies, double wishbones in front, a solid axle on four rods behind.

``python examples/suspension.py`` drops the car onto its springs with the steering turned, and saves a page
that plays the motion. x points forwards, y to the left, z upwards; the ground is at z = 0.
"""

from pathlib import Path
from typing import Any

import numpy as np

from genalpha import multibody as mb

OUT = Path("out")
FRONT, REAR, TRACK = 1.3, -1.3, 0.75  # x of the axles, and y of the centres of the wheels
RADIUS = 0.3  # of a wheel
TYRE, WOBBLE = (1.5e5, 1.5e5, 2e5), (1.5e3, 1.5e3, 500.0)  # stiffness and damping of a tyre along x, y, z
RUBBER = 4e5  # stiffness of a bushing of an upper arm


def car(turned: float = 0.2) -> mb.Model:
    """The car at its design position. A spring turns the steering arm to the angle ``turned``."""
    model, forces = mb.Model(), list[mb.Force]()
    shell = mb.box(1000.0, (3.6, 1.4, 0.5))
    chassis = model.add(mb.Body("chassis", shell, at=(0.1, 0, 0.6)))
    rack = model.add(mb.Body("rack", mb.box(3.0, (0.05, 0.7, 0.05)), at=(FRONT - 0.15, 0, 0.3)))
    model.add(mb.Prismatic("rack guide", chassis, rack, at=rack.x, axis=(0, 1, 0)))
    forces += _steering(model, turned)
    for name, side in (("left", 1.0), ("right", -1.0)):
        forces += _wishbones(model, name, side) + _strut(model, name, side)
    forces += [*_rear_axle(model), mb.AppliedForce("push", chassis, force=(0, 0, -800.0))]
    for force in forces:
        model.add(force)
    return model


def _wheel(model: mb.Model, name: str, carrier: Any, x: float, y: float) -> mb.Force:
    """Add a wheel with its hub; returns its tyre, which stands on a post."""
    hub = (x, y, RADIUS)
    spin = np.array([(1, 0, 0), (0, 0, 1), (0, -1, 0)])  # z of the wheel is its axis, y of the car
    inertia = mb.cylinder(18.0, RADIUS, 0.2)
    wheel = model.add(mb.Body(f"{name} wheel", inertia, at=hub, rotation=spin))
    model.add(mb.Revolute(f"{name} hub", carrier, wheel, at=hub, axis=(0, 1, 0)))
    post = model.ground.frame(hub)
    stiffness, damping = (*TYRE, 0, 0, 0), (*WOBBLE, 0.5, 0.5, 0.5)
    return mb.Bushing(f"{name} tyre", post, wheel, stiffness, damping)


def _steering(model: mb.Model, turned: float) -> list[mb.Force]:
    """An arm on the chassis whose pin moves in a slot of the rack, on a spring."""
    at, rack = np.array([FRONT - 0.3, 0, 0.3]), model["rack"]
    arm = model.add(mb.Body("steering arm", mb.box(1.5, (0.2, 0.04, 0.04)), at=at + np.array([0.075, 0, 0])))
    hinge = model.add(mb.Revolute("steering", model["chassis"], arm, at=at, axis=(0, 0, 1)))
    model.add(mb.PointOnPlane("slot", rack, arm, at=rack.x, axis=(0, 1, 0)))
    return [mb.JointSpring("driver", hinge, stiffness=2000.0, damping=40.0, free=turned)]


def _wishbones(model: mb.Model, name: str, side: float) -> list[mb.Force]:
    """Two arms, an upright, its wheel and a tie rod. The upper arm is held by two bushings."""
    chassis = model["chassis"]
    at = lambda x, y, z: np.array([FRONT + x, side * y, z])
    low, high, arm = (
        at(0, 0.65, 0.2),
        at(-0.02, 0.6, 0.45),
        at(-0.12, 0.62, 0.3),
    )  # of the upright
    lower = model.add(mb.Body(f"{name} lower arm", mb.box(5.0, (0.3, 0.35, 0.04)), at=at(0, 0.45, 0.2)))
    upper = model.add(mb.Body(f"{name} upper arm", mb.box(3.0, (0.2, 0.25, 0.04)), at=at(-0.01, 0.48, 0.46)))
    upright = model.add(mb.Body(f"{name} upright", mb.box(8.0, (0.1, 0.1, 0.3)), at=at(0, 0.66, 0.32)))
    model.add(mb.Revolute(f"{name} lower hinge", chassis, lower, at=at(0, 0.28, 0.21), axis=(1, 0, 0)))
    rubber, loss = (RUBBER, RUBBER, RUBBER, 0, 0, 0), (600, 600, 600, 2, 2, 2)
    held = lambda end, x: mb.Bushing(
        f"{name} {end} bushing", chassis, upper, rubber, loss, at=at(x, 0.36, 0.47), axis=(1, 0, 0)
    )
    model.add(mb.Spherical(f"{name} lower ball", lower, upright, at=low))
    model.add(mb.Spherical(f"{name} upper ball", upper, upright, at=high))
    tyre = _wheel(model, f"front {name}", upright, FRONT, side * TRACK)
    inner = at(-0.15, 0.33, 0.3)
    y = (arm - inner) / np.linalg.norm(arm - inner)
    rod = model.add(mb.Body.bar(f"{name} tie rod", 1.0, inner, arm))
    across = np.cross(y, (0, 0, 1)) / np.linalg.norm(np.cross(y, (0, 0, 1)))
    second = np.cross(y, across)
    model.add(mb.Universal(f"{name} tie joint", model["rack"], rod, at=inner, axis=across, second=second))
    model.add(mb.Spherical(f"{name} tie ball", rod, upright, at=arm))
    return [held("front", 0.12), held("back", -0.14), tyre]


def _strut(model: mb.Model, name: str, side: float) -> list[mb.Force]:
    """A damper of two bodies between the lower arm and the chassis, with a coil spring around it."""
    chassis, lower = model["chassis"], model[f"{name} lower arm"]
    foot, head = np.array([FRONT, side * 0.5, 0.22]), np.array([FRONT - 0.03, side * 0.42, 0.72])
    z = (head - foot) / np.linalg.norm(head - foot)
    x = np.cross((0, 1, 0), z) / np.linalg.norm(np.cross((0, 1, 0), z))
    R = np.stack([x, np.cross(z, x), z], axis=1)
    tube = model.add(mb.Body(f"{name} tube", mb.cylinder(2.0, 0.03, 0.3), at=foot + 0.15 * z, rotation=R))
    piston = model.add(mb.Body(f"{name} piston", mb.cylinder(1.0, 0.01, 0.3), at=head - 0.15 * z, rotation=R))
    model.add(mb.Universal(f"{name} foot", lower, tube, at=foot, axis=x, second=R[:, 1]))
    slide = model.add(mb.Prismatic(f"{name} slide", tube, piston, at=foot, axis=z))
    model.add(mb.Spherical(f"{name} head", piston, chassis, at=head))
    length = float(np.linalg.norm(head - foot)) - 0.25
    ends = tube.frame((0, 0, 0.05)), piston.frame((0, 0, 0.1))
    coil = mb.SpringDamper(f"{name} spring", *ends, stiffness=5e4, length=length)
    return [mb.JointSpring(f"{name} damper", slide, damping=2500.0), coil]


def _rear_axle(model: mb.Model) -> list[mb.Force]:
    """A solid axle on three trailing rods and one across; it may heave and roll."""
    chassis, forces = model["chassis"], list[mb.Force]()
    axle = model.add(mb.Body("axle", mb.cylinder(30.0, 0.05, 1.2), at=(REAR, 0, RADIUS), rotation=SIDEWAYS))
    rod = lambda name, a, b: model.add(
        mb.Distance(name, chassis.frame(np.array(a) - chassis.x), axle.frame(SIDEWAYS.T @ (b - axle.x)))
    )
    for name, side in (("left", 1.0), ("right", -1.0)):
        rod(f"{name} trailing rod", (REAR + 0.6, side * 0.5, 0.3), np.array([REAR, side * 0.5, 0.25]))
        forces.append(_wheel(model, f"rear {name}", axle, REAR, side * TRACK))
        foot, head = SIDEWAYS.T @ np.array([0, side * 0.5, 0.05]), (REAR, side * 0.48, 0.75)
        ends = axle.frame(foot), chassis.frame(np.array(head) - chassis.x)
        given: dict[str, Any] = {"stiffness": 2.5e4, "damping": 2000.0, "length": 0.5}
        forces.append(mb.SpringDamper(f"{name} rear spring", *ends, **given))
    rod("upper rod", (REAR + 0.5, 0.1, 0.5), np.array([REAR, 0.0, 0.45]))
    rod("cross rod", (REAR - 0.1, -0.5, 0.35), np.array([REAR - 0.1, 0.5, 0.35]))
    return forces


SIDEWAYS = np.array([(1, 0, 0), (0, 0, 1), (0, -1, 0)]).T  # z of the axle along y of the car


def main() -> None:
    model = car()
    print(model, model.assemble(), sep="\n")
    sol = model.solve((0.0, 2.0), rtol=1e-4)
    print(sol.summary())
    motion = model.motion(sol)
    rise = motion.position("chassis")[[0, -1], 2]
    print(f"the chassis goes from z = {rise[0]:.4f} to {rise[1]:.4f}")
    OUT.mkdir(exist_ok=True)
    model.view(sol, title="Car on four posts").save(OUT / "suspension.html")


if __name__ == "__main__":
    main()

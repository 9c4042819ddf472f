"""Five problems of the IFToMM benchmark library as models: A01 to A05.

``python examples/iftomm.py`` runs them and prints what the library asks for, beside reference values.
Specifications: the library's own pages (A01, A02), the IVP Test Set (A03), MBS-BOS (A04, A05). Gravity is
9.81, but A03 has none. The models are also files, in ``examples/models``.
"""

import time
from typing import Any

import numpy as np

from genalpha import multibody as mb


def pendulum() -> mb.Model:
    """A01: a point of 1 kg on a massless bar of 1 m, which starts horizontal, at x = −1."""
    model = mb.Model(gravity=(0, -9.81, 0))
    bob = model.add(mb.PointMass("bob", 1.0, at=(-1, 0, 0)))
    model.add(mb.Distance("bar", model.ground, bob))
    return model


def four_bars(count: int = 40) -> mb.Model:
    """A02: N + 1 upright cranks and N couplers, all of 1 m and 1 kg; the top of each crank moves at 1 m/s."""
    model = mb.Model(gravity=(0, -9.81, 0))
    bar = lambda name, at, angle, **how: model.add(
        mb.PlanarBody(name, 1.0, 1 / 12, at=at, angle=angle, shape=mb.box(1.0, (1, 0.05, 0.05)).shape, **how)
    )
    for i in range(count + 1):
        crank = bar(f"crank {i}", (i, 0.5), np.pi / 2, velocity=(0.5, 0), angular_velocity=-1.0)
        model.add(mb.Revolute(f"foot {i}", model.ground, crank, at=(i, 0)))
    for i in range(count):
        coupler = bar(f"coupler {i}", (i + 0.5, 1), 0.0, velocity=(1, 0))
        for side, j in (("left", i), ("right", i + 1)):
            model.add(mb.Revolute(f"{side} {i}", model[f"crank {j}"], coupler, at=(j, 1)))
    return model


def squeezer() -> mb.Model:
    """A03: Andrews' squeezing mechanism: seven bodies, a torque on the first, a spring on the third."""
    model = mb.Model(gravity=(0, 0, 0))
    A, B, C = np.array([-0.06934, -0.00227]), np.array([-0.03635, 0.03273]), (0.014, 0.072)
    beta, theta, gamma, phi, delta, omega, epsilon = SQUEEZER
    along = lambda angle: np.array([np.cos(angle), np.sin(angle)])
    F = 0.007 * along(beta)  # pins: O, F, E, H, K, and A and B on the ground
    E = F - 0.028 * along(beta + theta)
    H, K = A + 0.04 * along(delta), A + 0.04 * along(epsilon - np.pi / 2)
    bodies: list[Any] = []  # the frame of each is at a pin
    for mass, moment, at, angle, center in (
        (0.04325, 2.194e-6, (0, 0), beta, (0.00092, 0)),
        (0.00365, 4.410e-7, F, beta + theta, (-0.0115, 0)),
        (0.02373, 5.255e-6, B, gamma, (0.01043, -0.01874)),
        (0.00706, 5.667e-7, H, phi + delta, (0, 0.01421 - 0.02)),
        (0.07050, 1.169e-5, A, delta, (0.02308, 0.00916)),
        (0.00706, 5.667e-7, K, omega + epsilon, (0.02 - 0.01421, 0)),
        (0.05498, 1.912e-5, A, epsilon, (-0.00449, -0.01228)),
    ):
        name = f"body {len(bodies) + 1}"
        bodies.append(model.add(mb.PlanarBody(name, mass, moment, at, angle, center=center)))
    one, two, three, four, five, six, seven = bodies
    pin = lambda name, a, b, at: model.add(mb.Revolute(name, a, b, at=at))
    crank = pin("O", model.ground, one, (0, 0))
    pin("F", one, two, F)
    for i, body in ((3, three), (4, four), (6, six)):
        pin(f"E{i}", two, body, E)
    pin("B", model.ground, three, B)
    for name, body, other, at in (("A5", five, four, H), ("A7", seven, six, K)):
        pin(name, model.ground, body, A)
        pin(f"{name[1]} and {other.name[-1]}", body, other, at)
    model.add(mb.Motor("torque", crank, effort=0.033))
    ends = model.ground.frame(C), three.frame((0.02, -0.018))
    model.add(mb.SpringDamper("spring", *ends, stiffness=4530.0, length=0.07785))
    return model


# The seven angles of A03 at the start: β, Θ, γ, Φ, δ, Ω, ε of the IVP Test Set.
SQUEEZER = (
    -0.06171389001427645,
    0.0,
    0.45527981916307037,
    0.22266839016588588,
    0.48736497954384256,
    -0.22266839016588588,
    1.2305474445498212,
)


def bricard() -> mb.Model:
    """A04: five rods of 1 m and 1 kg with a square section of 0.1 m, and six hinges. One row is redundant."""
    model = mb.Model(gravity=(0, -9.81, 0))
    points = np.array([(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1)], dtype=float)
    axes = np.eye(3)[[1, 2, 0, 1, 2, 0]]
    rods = []
    for i in range(5):
        x, z = points[i + 1] - points[i], axes[i]
        R = np.stack([x, np.cross(z, x), z], axis=1)
        rod = mb.Body(f"rod {i + 1}", mb.box(1.0, (1, 0.1, 0.1)), (points[i] + points[i + 1]) / 2, R)
        rods.append(model.add(rod))
    chain = [model.ground, *rods, model.ground]
    for i in range(6):
        model.add(mb.Revolute(f"hinge {i + 1}", chain[i], chain[i + 1], at=points[i], axis=axes[i]))
    return model


def governor() -> mb.Model:
    """A05: a shaft that turns freely, a slider on it, and two loaded rods on stiff springs."""
    model = mb.Model()
    spin: dict[str, Any] = {"angular_velocity": (0, 0, 2 * np.pi)}
    shaft = model.add(mb.Body("shaft", mb.box(0.3, (0.01, 0.01, 1.0)), at=(0, 0, 0.5), **spin))
    slider = model.add(mb.Body("slider", mb.box(3.0, (0.1, 0.1, 0.1)), at=(0, 0, 0.5), **spin))
    model.add(mb.Revolute("bearing", model.ground, shaft, at=(0, 0, 0)))
    model.add(mb.Prismatic("guide", shaft, slider, at=(0, 0, 0.5)))
    c, s = np.cos(np.pi / 6), np.sin(np.pi / 6)
    for name, side in (("right", 1), ("left", -1)):
        x = np.array([side * c, 0, -s])
        R = np.stack([x, [0, 1, 0], np.cross(x, [0, 1, 0])], axis=1)
        top = np.array([0.05 * side, 0, 1.0])
        inertia = mb.box(0.3, (1.0, 0.01, 0.01)).plus(5.0, (0.5, 0, 0))
        center = top + (0.5 + inertia.center[0]) * x
        speed = np.cross((0, 0, 2 * np.pi), center)
        rod = model.add(mb.Body(f"{name} rod", inertia, top + 0.5 * x, R, velocity=speed, **spin))
        model.add(mb.Revolute(f"{name} hinge", shaft, rod, at=top, axis=(0, 1, 0)))
        ends = slider.frame((0.05 * side, 0, 0)), rod.frame((0, 0, 0))
        model.add(mb.SpringDamper(f"{name} spring", *ends, stiffness=8e5, damping=4e4, length=0.5))
    return model


# What the library asks for: a model, its end, options, the body and its point whose position (in some axes)
# counts, and its reference: A01 exact, A02 a pendulum, the others integrated in minimal coordinates.
RUNS: dict[str, tuple[Any, ...]] = {
    "A01": (pendulum, 10.0, {"h": 2e-4}, "bob", (0, 0), {0: -0.275087462576117, 1: -0.961419205099125}),
    "A02, N = 2": (
        lambda: four_bars(2),
        10.0,
        {"h": 5e-4},
        "crank 0",
        (0.5, 0),
        {0: 0.328458111533797, 1: 0.944518538181036},
    ),
    "A02, N = 40": (
        four_bars,
        10.0,
        {"h": 2e-3},
        "crank 0",
        (0.5, 0),
        {0: 0.180512226681102, 1: 0.983572740583336},
    ),
    "A03": (
        squeezer,
        0.05,
        {"h": 1e-5},
        "body 2",
        (0, 0),
        {0: -5.208504722296720e-3, 1: 4.676695260310722e-3},
    ),
    "A04": (bricard, 10.0, {"h": 2e-3}, "rod 2", (0.5, 0), {0: 0.999730987304, 1: -0.999999963826}),
    "A05": (governor, 10.0, {"h": 2e-3, "method": "index3"}, "slider", (0, 0), {2: 0.619622917061}),
}


def main() -> None:
    for name, (build, end, options, body, at, reference) in RUNS.items():
        model = build()
        found, taken = model.assemble(redundant="drop"), []
        for _ in range(4):  # the first compiles
            begin = time.perf_counter()
            sol = model.solve((0.0, end), **options)
            taken.append(time.perf_counter() - begin)
        x = model.motion(sol).position(body, at)[-1]
        errors = [abs(x[i] - wanted) / abs(wanted) for i, wanted in reference.items()]
        print(f"{name}: {found}")
        print(
            f"  {len(sol.t) - 1} steps, {min(taken):.3f} s; relative error {max(errors):.1e} at t = {end:g}"
        )


if __name__ == "__main__":
    main()

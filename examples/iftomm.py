"""Four problems of the IFToMM benchmark library as models: A01, A02, A04 and A05.

``python examples/iftomm.py`` runs them and prints what the library asks for, beside reference values.
Specifications: the library's own pages (A01, A02), MBS-BOS (A04, A05). Gravity is 9.81.
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


def main() -> None:
    runs = (
        ("A01", pendulum(), 10.0, {"rtol": 1e-7}, "bob", "x = -0.275087"),
        ("A02, N = 40", four_bars(), 10.0, {"h": 2e-3}, "crank 0", "top of crank 0: x = 0.180512"),
        ("A04", bricard(), 10.0, {"h": 2e-3}, "rod 2", "P3(10) = (0.999731, -1.000000, -0.000269)"),
        ("A05", governor(), 10.0, {"h": 2e-3}, "slider", "s(10) = 0.619623"),
    )
    for name, model, end, options, body, wanted in runs:
        found = model.assemble(redundant="drop")
        model.solve((0.0, 0.01), **options)
        begin = time.perf_counter()
        sol = model.solve((0.0, end), **options)
        taken = time.perf_counter() - begin
        at = (0.5, 0, 0) if body.startswith(("crank", "rod")) else (0, 0, 0)
        x = model.motion(sol).position(body, at)[-1]
        print(f"{name}: {found}")
        print(f"  {taken:.3f} s, {len(sol.t) - 1} steps; {x.round(6).tolist()}; reference {wanted}")


if __name__ == "__main__":
    main()

"""A four-bar linkage in space with a motor and a spring, from bodies and joints.

``python examples/four_bar.py`` prints a summary and saves a plot and a page that plays the motion.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from genalpha import multibody as mb

OUT = Path("out")


def linkage() -> mb.Model:
    """The bars, hinges and the spring. This is also a file, ``examples/models/four_bar.json``."""
    model = mb.Model(gravity=(0, 0, -9.81))
    A, B, C, D = (0, 0, 0), (0.2, 0, 0.3), (1.0, 0, 0.7), (1.2, 0, 0)
    bar = lambda name, start, end: model.add(mb.Body.bar(name, 1.0, start, end))
    crank, coupler, rocker = bar("crank", A, B), bar("coupler", B, C), bar("rocker", C, D)
    pin = lambda name, a, b, at: model.add(mb.Revolute(name, a, b, at=at, axis=(0, 1, 0)))
    pin("A", model.ground, crank, A)
    pin("B", crank, coupler, B)
    pin("C", coupler, rocker, C)
    pin("D", rocker, model.ground, D)
    model.add(mb.SpringDamper("spring", model.ground.frame((0.6, 0, -0.4)), coupler, 80.0, 2.0))
    return model


def build() -> mb.Model:
    """With a motor, whose target is a function of time, which a file cannot hold; its joints closed."""
    model = linkage()
    model.add(mb.Motor("motor", model["A"], target=lambda t: 3.0 * t**2, kp=200.0, kd=30.0))
    print(model.assemble(redundant="drop"))
    return model


def main() -> None:
    model = build()
    sol = model.solve((0.0, 2.0), rtol=1e-5)
    motion = model.motion(sol)
    print(sol.summary())
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    left.plot(sol.t, motion.coordinate("A"), label="crank, A")
    left.plot(sol.t, motion.coordinate("D"), label="rocker, D")
    left.set(xlabel="time, s", ylabel="angle, rad")
    left.legend()
    for k, axis in enumerate("xy"):
        right.plot(sol.t, motion.reaction("B").force[:, k], label=f"joint B, {axis}")
    right.set(xlabel="time, s", ylabel="force on the coupler, N")
    right.legend()
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / "four-bar.png", dpi=120)
    path = model["coupler"].frame((0.2, 0, 0.3))
    view = model.view(sol, traces=[path], reactions=True, title="Four-bar linkage")
    view.save(OUT / "four-bar.html")


if __name__ == "__main__":
    main()

"""Statics and linear analysis of a bicycle, a hanging chain and a robot arm.

    python examples/linear_analysis.py [--save picture.png]

- The eigenvalues of the benchmark bicycle (Meijaard et al. 2007) over its speed: weave and capsize.
- A chain of 200 rods in its equilibrium, and its first modes.
- The response of an arm on a spring to the torque of its motor.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import genalpha as ga
from genalpha import multibody as mb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder above, for a run as a script

from examples import mechanisms


def bicycle(speeds: np.ndarray) -> np.ndarray:
    """The four largest eigenvalues (K, 4) of the bicycle that rides straight on at each speed."""
    model = mechanisms.bicycle()
    model.assemble()
    radii = {"rear wheel": 0.3, "front wheel": 0.35}
    found = []
    for speed in speeds:
        v = np.zeros_like(model.v0)
        for name, (_, at) in model.slices().items():
            v[at.start] = speed
            if name in radii:
                v[at.start + 4] = speed / radii[name]
        values = ga.linearize(model.system, (0.0, model.q0, v)).eigenvalues
        found.append(values[np.argsort(-np.abs(values))[:4]])
    return np.array(found)


def chain(count: int = 200, span: float = 0.6) -> ga.Assembly:
    """Rods of total length 1 m between two hooks, with masses of 1 kg in all at their joints."""
    length = mass = 1.0 / count
    points = ga.Part(
        mass=mass * jnp.eye(2),
        force=lambda t, q, v: mass * jnp.array([0.0, -9.81]),
        nodes=np.arange(count - 1),
    )
    rods = ga.Part(
        holonomic=lambda t, q: jnp.array([jnp.sum((q[1] - q[0]) ** 2) / length - length]),
        nodes=np.stack([np.arange(count - 2), np.arange(1, count - 1)], axis=1),
    )
    hooks = ga.Part(
        holonomic=lambda t, q, x: jnp.array([((q[0] - x) ** 2 + q[1] ** 2) / length - length]),
        nodes=[0, count - 2],
        args=([0.0, span],),
    )
    return ga.Assembly([points, rods, hooks], space=ga.Euclidean(2), count=count - 1)


def arm() -> mb.Model:
    """Two rods that hang on hinges, the second on a torsion spring with some damping."""
    model = mb.Model()
    upper = model.add(mb.Body("upper", mb.rod(2.0, 0.6), at=(0.3, 0, 0)))
    lower = model.add(mb.Body("lower", mb.rod(1.0, 0.5), at=(0.85, 0, 0)))
    model.add(mb.Revolute("shoulder", model.ground, upper, at=(0, 0, 0), axis=(0, 1, 0)))
    elbow = model.add(mb.Revolute("elbow", upper, lower, at=(0.6, 0, 0), axis=(0, 1, 0)))
    model.add(mb.JointSpring("spring", elbow, stiffness=20.0, damping=0.05))
    return model


def draw(
    path: str, speeds: np.ndarray, values: np.ndarray, net: Any, rest: Any, found: Any, linear: Any
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 3.8), layout="constrained")
    axes = figure.subplots(1, 3)
    axes[0].plot(
        np.repeat(speeds, 4), values.real.reshape(-1), ".", ms=2, color="tab:blue", label="real part"
    )
    swings = values.imag > 1e-6
    across = np.repeat(speeds, 4).reshape(values.shape)
    axes[0].plot(across[swings], values.imag[swings], ".", ms=2, color="tab:orange", label="imaginary part")
    axes[0].axhline(0.0, color="black", lw=0.6)
    axes[0].set(xlabel="speed [m/s]", ylabel="1/s", ylim=(-10, 10), title="eigenvalues of a bicycle")
    axes[0].legend(fontsize="small", loc="lower right")
    shape = net.by_node(rest.q)
    axes[1].plot(*shape.T, color="black", lw=1.5, label="at rest")
    for i in range(3):
        way = net.by_node(found.shapes[:, i])
        moved = shape + 0.06 * way / np.abs(way).max()
        axes[1].plot(*moved.T, lw=1.0, label=f"{found.frequency[i]:.2f} Hz")
    axes[1].set(xlabel="x [m]", ylabel="y [m]", title="a hanging chain and its modes", aspect="equal")
    axes[1].legend(fontsize="small", loc="upper center")
    omega = np.geomspace(0.5, 200.0, 2000)
    response = np.abs(linear.frequency_response(omega))
    for i, name in enumerate(linear.output_names):
        axes[2].loglog(omega, response[:, i, 0], lw=1.2, label=name)
    axes[2].set(xlabel="ω [rad/s]", ylabel="rad per N m", title="torque of the shoulder to angles")
    axes[2].legend(fontsize="small")
    for ax in axes:
        ax.grid(alpha=0.2)
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--save", metavar="PNG", help="write a picture")
    options = parser.parse_args(arguments)
    speeds = np.linspace(0.0, 10.0, 101)
    values = bicycle(speeds)
    stable = speeds[values.real.max(axis=1) < 0]
    print(f"the bicycle is stable by itself from {stable.min():.1f} to {stable.max():.1f} m/s")
    net = chain()
    x = np.linspace(0.0, 0.6, 201)[1:-1]
    rest = ga.equilibrium(net, np.stack([x, -0.3 * np.sin(np.pi * x / 0.6)], axis=1).reshape(-1))
    print(f"the chain sags by {-rest.q[1::2].min():.4f} m; {rest.message}")
    found = ga.modes(net, rest, 4)
    print("its modes have", ", ".join(f"{f:.3f}" for f in found.frequency), "Hz")
    model = arm()
    print(f"the arm hangs: {model.equilibrium().message}")
    print(model.modes())
    linear = model.linearize(inputs=["shoulder"], outputs=["shoulder", "elbow"])
    if options.save:
        draw(options.save, speeds, values, net, rest, found, linear)


if __name__ == "__main__":
    main()

"""A ball slides down a smooth sphere and leaves it: a constraint that is switched off.

The sphere can push but not pull. When the multiplier of the constraint changes its sign, the run ends.
The motion is then continued with another system, without the constraint. A ball that starts at the top
with speed v leaves at the height 2/3 + v²/(3g) of the radius. The result is checked against this height.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import genalpha as ga

GRAVITY, SPEED = 9.81, 0.1
weight = lambda t, q, v: jnp.array([0.0, -GRAVITY])
on_sphere = ga.System(jnp.eye(2), weight, lambda t, q: jnp.array([q @ q - 1.0]))
in_flight = ga.System(jnp.eye(2), weight)


def simulate(tolerance: float = 1e-7) -> tuple[ga.Solution, ga.Solution]:
    """The ball on the sphere until it leaves, and after that until it has fallen by its radius."""
    leaves = ga.Event(lambda t, q, v, lam, psi: lam[0], terminal=True)
    lands = ga.Event(lambda t, q, v: q[1] + 1.0, terminal=True)
    top, along = np.array([0.0, 1.0]), np.array([SPEED, 0.0])
    sliding = ga.solve(on_sphere, (0.0, 9.0), top, along, rtol=tolerance, atol=tolerance, events=leaves)
    t, q, v = sliding.t[-1], sliding.q[-1], sliding.v[-1]
    return sliding, ga.solve(in_flight, (t, t + 9.0), q, v, rtol=tolerance, atol=tolerance, events=lands)


def main(folder: str = "out") -> None:
    from matplotlib.figure import Figure

    sliding, flying = simulate()
    height, exact = sliding.q[-1, 1], 2 / 3 + SPEED**2 / (3 * GRAVITY)
    print(f"on the sphere: {sliding.message}, {sliding.stats.steps} steps")
    print(f"in flight: {flying.message}, {flying.stats.steps} steps")
    print(f"leaves at                {sliding.t[-1]:.6f} s, height {height:.8f}, exact {exact:.8f}")
    print(f"error of the height      {abs(height - exact):.1e}")
    print(f"distance when it lands   {flying.q[-1, 0]:.6f}")
    figure = Figure(figsize=(5.5, 6), layout="constrained")
    axis = figure.subplots()
    around = np.linspace(-np.pi / 2, np.pi / 2, 200)
    axis.fill(np.sin(around), np.cos(around), color="0.85")
    for sol, label in ((sliding, "on the sphere"), (flying, "in flight")):
        axis.plot(*sol(np.linspace(sol.t[0], sol.t[-1], 200)).q.T, lw=2, label=label)
    axis.plot(*sliding.q[-1], "ko", ms=5)
    axis.set(aspect="equal", xlabel="x", ylabel="y", title="A ball leaves a smooth sphere")
    axis.legend()
    path = Path(folder) / "leaving-a-sphere.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"plot                     {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])

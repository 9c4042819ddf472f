"""A pendulum strikes a wall below its pivot and bounces, until it hardly moves.

Between impacts it keeps its energy, so the speed at each impact is e times the speed at the impact
before. The times between impacts are elliptic integrals. The result is checked against them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from scipy.special import ellipk

import genalpha as ga

GRAVITY, RESTITUTION, T_END = 9.81, 0.8, 12.0

pendulum = ga.System(
    mass=jnp.eye(2),
    force=lambda t, q, v: jnp.array([0.0, -GRAVITY]),
    holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
)
wall = ga.Event(lambda t, q, v: q[0], direction=-1, reset=lambda t, q, v: -RESTITUTION * v)


def exact(count: int) -> np.ndarray:
    """Times of the impacts of a pendulum that starts level: a quarter period, then half periods."""
    speeds = np.sqrt(2 * GRAVITY) * RESTITUTION ** np.arange(count)
    quarter = ellipk(speeds**2 / (4 * GRAVITY)) / np.sqrt(GRAVITY)  # of the swing that starts with a speed
    return np.cumsum(np.append(quarter[0], 2 * quarter[1:]))


def simulate(**options: float) -> ga.Solution:
    return ga.solve(pendulum, (0.0, T_END), [1.0, 0.0], [0.0, 0.0], events=wall, **options)  # type: ignore[arg-type]


def main(folder: str = "out") -> None:
    sol = simulate(rtol=1e-7, atol=1e-9)
    times = sol.t_events[0]  # type: ignore[index]
    errors = np.abs(times - exact(len(times)))
    print(f"pendulum at a wall: {sol.message}, {sol.stats.steps} steps, {len(times)} impacts")
    for t, v, error in list(zip(times, sol.v_events[0], errors, strict=True))[:6]:  # type: ignore[index]
        print(f"strikes at {t:.6f} s with {v[0]:.4f} m/s; the time is off by {error:.1e} s")
    print(f"largest error of a time  {errors.max():.1e} s")
    print(f"furthest into the wall   {-sol.q[:, 0].min():.1e} m")
    print(f"largest residuals        position {sol.residuals.position.max():.1e}, ", end="")
    print(f"velocity {sol.residuals.velocity.max():.1e}")
    path = Path(folder) / "pendulum-at-a-wall.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    sol.plot(names=["x", "y"]).savefig(path, dpi=110)
    print(f"plot                     {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Dimensions of a four-bar for a wanted coupler curve, with bounded joint forces.

The crank turns at a constant speed. A point of the coupler shall follow a flat oval, at given times. Longer
bars are heavier, so a mechanism that is large and follows the curve well has large forces in its joints.
``python examples/four_bar_design.py`` finds the dimensions without and with a bound on the forces, by
``scipy.optimize.minimize`` (SLSQP) with gradients of the whole run, and saves a plot.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from scipy.optimize import minimize

import genalpha as ga

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAMES = (
    "crank",
    "coupler",
    "rocker",
    "ground",
    "point along",
    "point across",
    "pivot x",
    "pivot y",
    "turned",
)
GUESS = np.array([0.25, 0.7, 0.6, 0.8, 0.4, 0.3, 0.0, 0.0, 0.0])
DENSITY, SPEED, BOUND = 2.0, 15.0, 45.0  # kg/m, rad/s, N
STEPS = 120
TURN = 2 * np.pi / SPEED


def wanted(t: Any) -> Any:
    """The curve (K, 2)."""
    s = SPEED * t
    return np.stack([0.35 + 0.30 * np.cos(s + 0.5), 0.45 + 0.12 * np.sin(s + 0.5)], axis=1)


# --- the mechanism: centre and angle of crank, coupler and rocker -------------------------------------------


def mass(t: Any, q: Any, d: Any) -> Any:
    m = DENSITY * d[:3]
    return jnp.diag(jnp.stack([m, m, m * d[:3] ** 2 / 12], axis=1).ravel())


def force(t: Any, q: Any, v: Any, d: Any) -> Any:
    return jnp.stack([0 * d[:3], -9.81 * DENSITY * d[:3], 0 * d[:3]], axis=1).ravel()


def ends(q: Any, length: Any) -> Any:
    half = 0.5 * length * jnp.array([jnp.cos(q[2]), jnp.sin(q[2])])
    return q[:2] - half, q[:2] + half


def pivots(d: Any) -> Any:
    first = d[6:8]
    return first, first + d[3] * jnp.array([jnp.cos(d[8]), jnp.sin(d[8])])


def holonomic(t: Any, q: Any, d: Any) -> Any:
    """Joints A, B, C and D, and the drive. λ are the forces in the joints, and the torque of the drive."""
    (a, b), (c, e), (f, g) = (ends(q[3 * i : 3 * i + 3], d[i]) for i in range(3))
    first, last = pivots(d)
    drive = q[2] - d[8] - SPEED * t
    return jnp.concatenate([a - first, b - c, e - g, f - last, drive[None]])


def closed(t: Any, d: Any) -> Any:
    """All coordinates at a time, by the law of cosines. The crank starts along the ground."""
    first, last = pivots(d)
    turn = d[8] + SPEED * t
    b = first + d[0] * jnp.array([jnp.cos(turn), jnp.sin(turn)])
    way = last - b
    far = jnp.sqrt(way @ way)
    tilt = jnp.arctan2(way[1], way[0]) + jnp.arccos((d[1] ** 2 + far**2 - d[2] ** 2) / (2 * d[1] * far))
    c = b + d[1] * jnp.array([jnp.cos(tilt), jnp.sin(tilt)])
    up = c - last
    lean = jnp.arctan2(up[1], up[0])
    parts = [(first + b) / 2, turn[None], (b + c) / 2, tilt[None], (last + c) / 2, lean[None]]
    return jnp.concatenate(parts)


SYSTEM = ga.System(mass, force, holonomic)


def simulate(d: Any) -> ga.Solution:
    q0, v0 = jax.jvp(lambda t: closed(t, d), (0.0,), (1.0,))
    return ga.solve(SYSTEM, (0.0, TURN), q0, v0, h=TURN / STEPS, args=(d,))


def point(q: Any, d: Any) -> Any:
    """The point of the coupler (K, 2)."""
    c, s = jnp.cos(q[:, 5]), jnp.sin(q[:, 5])
    along, across = d[4] - 0.5 * d[1], d[5]
    return q[:, 3:5] + jnp.stack([along * c - across * s, along * s + across * c], axis=1)


def forces(lam: Any) -> Any:
    """Magnitudes of the forces in A, B, C and D, (K, 4)."""
    return jnp.sqrt(jnp.sum(lam[:, :8].reshape(-1, 4, 2) ** 2, axis=2))


# --- the design ---------------------------------------------------------------------------------------------


def judged(d: Any) -> tuple[Any, Any]:
    """The mean square distance from the curve in cm², and the forces at all steps relative to the bound."""
    sol = simulate(d)
    off = point(sol.q, d) - wanted(TURN * np.arange(STEPS + 1) / STEPS)
    return 1e4 * jnp.mean(jnp.sum(off**2, axis=1)), (forces(sol.lam) / BOUND).ravel()


values, slopes = jax.jit(judged), jax.jit(jax.jacfwd(judged))  # nine directions, and many forces
# A crank that can turn: it is the shortest bar, and shortest and longest are shorter than the other two.
GRASHOF = np.array(
    [(-1, 1, 1, -1), (-1, -1, 1, 1), (-1, 1, -1, 1), (-1, 1, 0, 0), (-1, 0, 1, 0), (-1, 0, 0, 1)]
)


class Design(NamedTuple):
    """Dimensions (9,), root mean square distance from the curve in m, largest force in N, iterations."""

    dimensions: np.ndarray
    distance: float
    force: float
    iterations: int


def design(bounded: bool) -> Design:
    wide = np.pad(GRASHOF, ((0, 0), (0, 5)))
    rules: list[Any] = [{"type": "ineq", "fun": lambda d: wide @ d - 0.02, "jac": lambda d: wide}]
    if bounded:
        below = {"fun": lambda d: 1 - np.asarray(values(d)[1]), "jac": lambda d: -np.asarray(slopes(d)[1])}
        rules.append({"type": "ineq", **below})
    found = minimize(
        lambda d: float(values(d)[0]),
        GUESS,
        jac=lambda d: np.asarray(slopes(d)[0]),
        bounds=[(0.05, 1.5)] * 4 + [(-1.5, 1.5)] * 4 + [(-np.pi, np.pi)],
        constraints=rules,
        method="SLSQP",
        options={"maxiter": 100, "ftol": 1e-6},
    )
    largest = float(np.max(forces(simulate(found.x).lam)))
    return Design(found.x, 1e-2 * float(np.sqrt(found.fun)), largest, found.nit)


def plot(designs: tuple[Design, Design], path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    curve = wanted(np.linspace(0, TURN, 100))
    axes[0].plot(*curve.T, "k--", label="wanted")
    for design, color, name in zip(designs, ("C0", "C3"), ("no bound", f"at most {BOUND:g} N"), strict=True):
        d = design.dimensions
        sol = simulate(d)
        axes[0].plot(*np.asarray(point(sol.q, d)).T, color, label=name)
        first, last = pivots(d)
        b, c = ends(sol.q[0, 3:6], d[1])
        axes[0].plot(*np.array([first, b, c, last]).T, color, marker="o", lw=0.8, alpha=0.5)
        axes[0].plot(*np.array([b, point(sol.q[:1], d)[0], c]).T, color, lw=0.8, alpha=0.5)
        axes[1].plot(sol.t, np.max(forces(sol.lam), axis=1), color, label=name)
    axes[0].set(aspect="equal", xlabel="x, m", ylabel="y, m")
    axes[1].axhline(BOUND, color="k", lw=0.8, ls="--")
    axes[1].set(xlabel="time, s", ylabel="largest joint force, N", ylim=(0, None))
    axes[0].legend()
    axes[1].legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(folder: str = "out") -> tuple[Design, Design]:
    both = design(False), design(True)
    for name, found in zip(("no bound", f"at most {BOUND:g} N"), both, strict=True):
        print(
            f"{name}: {found.iterations} iterations, distance from the curve {1e3 * found.distance:.2f} mm, ",
            end="",
        )
        print(f"largest force {found.force:.1f} N")
        print("  " + ", ".join(f"{n} {x:.3f}" for n, x in zip(NAMES, found.dimensions, strict=True)))
    Path(folder).mkdir(exist_ok=True)
    plot(both, Path(folder) / "four-bar-design.png")
    return both


if __name__ == "__main__":
    main(*sys.argv[1:])

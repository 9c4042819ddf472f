"""A slider crank whose slider strikes a stop: an impact that acts through all joints.

The stop pushes only the slider, but the joints transmit the impact. Let n be the row of v that the stop
acts on. The velocities after the impact follow from Newton's law of impact, n·v⁺ = −e n·v⁻, and the
joint constraints:

    M (v⁺ − v⁻) = n Λ − Gᵀ Λ_G,    G v⁺ = 0.

The impact takes −(1 − e)/2 · Λ n·v⁻ of energy, where n·v⁻ < 0. The result is checked against this loss.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import genalpha as ga

STOP, RESTITUTION = 0.2, 0.5
SLIDER = 6  # x of the slider in q


def blow(problem: ga.problems.Problem, t: Any, q: Any, v: Any) -> tuple[Any, float]:
    """The velocities after an impact, and the energy that it takes."""
    system, args, n = problem.system, problem.args, len(v)
    G = system.G(t, q, args)
    m = len(G)
    matrix = jnp.block([[system.M(t, q, args), G.T], [G, jnp.zeros((m, m))]])
    reply = jnp.linalg.solve(matrix, jnp.zeros(n + m).at[SLIDER].set(1.0))[:n]  # to a unit push at the slider
    push = -(1 + RESTITUTION) * v[SLIDER] / reply[SLIDER]
    lost = (1 - RESTITUTION**2) / 2 * v[SLIDER] ** 2 / reply[SLIDER]
    return v + push * reply, float(lost)


def simulate(**options: Any) -> tuple[ga.problems.Problem, ga.Solution]:
    """The first second of the slider crank, with the stop."""
    p = ga.problems.get("slider-crank")
    stop = ga.Event(
        lambda t, q, v, *args: q[SLIDER] - STOP,
        direction=-1,
        reset=lambda t, q, v, *args: blow(p, t, q, v)[0],
    )
    return p, ga.solve(p.system, p.t_span, p.q0, p.v0, args=p.args, events=stop, **options)


def main(folder: str = "out") -> None:
    problem, sol = simulate(rtol=1e-7, atol=1e-9)
    energy = jax.vmap(lambda t, q, v: problem.energy(t, q, v, *problem.args))(sol.t, sol.q, sol.v)  # type: ignore[misc]
    print(f"slider crank with a stop: {sol.message}, {sol.stats.steps} steps")
    print(f"{'strikes at':>12} {'with':>12} {'leaves with':>12} {'energy lost':>12} {'by the law':>12}")
    for t, q, v in zip(sol.t_events[0], sol.q_events[0], sol.v_events[0], strict=True):  # type: ignore[index]
        before, after = np.flatnonzero(sol.t == t)  # an event has two rows
        lost = float(energy[before] - energy[after])
        law = blow(problem, t, q, v)[1]
        print(f"{t:11.6f}s {v[SLIDER]:9.4f}m/s {sol.v[after, SLIDER]:9.4f}m/s {lost:11.3e}J {law:11.3e}J")
    print(f"nearest position         {sol.q[:, SLIDER].min() - STOP:+.1e} m from the stop")
    print(f"largest residuals        position {sol.residuals.position.max():.1e}, ", end="")
    print(f"velocity {sol.residuals.velocity.max():.1e}")
    path = Path(folder) / "slider-crank-with-a-stop.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    plot(sol, np.asarray(energy)).savefig(path, dpi=110)
    print(f"plot                     {path}")


def plot(sol: ga.Solution, energy: np.ndarray) -> Any:
    """Position and velocity of the slider, and the energy of it all."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.subplots(3, 1, sharex=True)
    curves = (
        (sol.q[:, SLIDER], "slider in m"),
        (sol.v[:, SLIDER], "velocity in m/s"),
        (energy, "energy in J"),
    )
    for axis, (values, label) in zip(axes, curves, strict=True):
        axis.plot(sol.t, values, lw=1.2)
        axis.set(ylabel=label)
        axis.grid(alpha=0.4)
        for t in sol.t_events[0]:  # type: ignore[index]
            axis.axvline(t, color="C3", lw=0.7, ls=":")
    axes[0].axhline(STOP, color="C3", lw=1)
    axes[0].set_title("Slider crank with a stop, restitution 0.5")
    axes[-1].set_xlabel("t in s")
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])

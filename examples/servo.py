"""A servo drive turns the crank of a slider crank: motor with current, gear, friction table, sampled PID.

The current of the motor is a first-order state, L i' = u − R i − k N ω. The PID controller runs at 500 Hz in
plain NumPy and knows the integral of its error. The friction of the gear is a table. The drive turns the
crank from 30° to 150° in half a second against a load on the slider, and holds it there.
``python examples/servo.py`` prints a summary and saves a plot.
"""

import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import matplotlib
import numpy as np

import genalpha as ga

matplotlib.use("Agg")
import matplotlib.pyplot as plt

CRANK, ROD = 0.1, 0.3  # m
CRANK_INERTIA, SLIDER, LOAD = 0.002, 1.5, 40.0  # kg m², kg, N
RESISTANCE, INDUCTANCE, TORQUE, ROTOR, GEAR = 0.8, 2e-3, 0.05, 2e-5, 30.0  # Ω, H, N m/A, kg m², 1
SUPPLY, SAMPLE = 24.0, 0.002  # V, s
KP, KI, KD = 150.0, 1500.0, 3.0  # V/rad, V/(rad s), V s/rad
FROM, TO, MOVE, T_END = np.radians(30.0), np.radians(150.0), 0.5, 1.0

# Friction of the gear at the crank, N m, over the speed of the crank, rad/s: it falls, then rises.
SPEEDS = np.array([-20.0, -10.0, -4.0, -1.0, -0.2, 0.0, 0.2, 1.0, 4.0, 10.0, 20.0])
FRICTION = ga.LookupTable(
    SPEEDS,
    [-1.4, -0.9, -0.65, -0.6, -0.7, 0.0, 0.7, 0.6, 0.65, 0.9, 1.4],
    "linear",
    outside="linear",
    name="gear friction",
)


# --- angle of the crank and position of the slider; the current of the motor --------------------------------


def force(t: Any, q: Any, v: Any, z: Any, c: Any) -> Any:
    drive = GEAR * TORQUE * z[0] - FRICTION(v[0])
    return jnp.array([drive, LOAD])


def current(t: Any, q: Any, v: Any, z: Any, c: Any) -> Any:
    return (c.u - RESISTANCE * z - TORQUE * GEAR * v[:1]) / INDUCTANCE


def holonomic(t: Any, q: Any, c: Any) -> Any:
    """The rod has a constant length."""
    return jnp.array([0.5 * ((q[1] - CRANK * jnp.cos(q[0])) ** 2 + (CRANK * jnp.sin(q[0])) ** 2 - ROD**2)])


INERTIA = CRANK_INERTIA + GEAR**2 * ROTOR
SYSTEM = ga.StateSystem(np.diag([INERTIA, SLIDER]), force, current, 1, holonomic)


def target(t: float) -> tuple[float, float]:
    """The wanted angle and its rate: a cycloid from one angle to the other."""
    s = min(t / MOVE, 1.0)
    angle = FROM + (TO - FROM) * (s - np.sin(2 * np.pi * s) / (2 * np.pi))
    return angle, (TO - FROM) / MOVE * (1 - np.cos(2 * np.pi * s)) * (s < 1)


def pid(t: float, q: Any, v: Any, integral: Any) -> tuple[Any, Any]:
    """The voltage, with that which the speed induces. The integral stops at the limits of the supply."""
    angle, speed = target(t)
    error = angle - q[0]
    wanted = GEAR * TORQUE * speed + KP * error + KI * integral + KD * (speed - v[0])
    u = np.clip(wanted, -SUPPLY, SUPPLY)
    return integral + (SAMPLE * error if u == wanted else 0.0), np.array([u])


CONTROLLER = ga.Controller(SAMPLE, pid, u0=[0.0], s0=0.0)


def simulate(**options: Any) -> ga.Solution:
    slider = CRANK * np.cos(FROM) + np.sqrt(ROD**2 - (CRANK * np.sin(FROM)) ** 2)
    start = ([FROM, slider], [0.0, 0.0])
    return ga.solve(SYSTEM, (0.0, T_END), *start, z0=[0.0], controller=CONTROLLER, **options)


def energies(sol: ga.Solution) -> tuple[float, float]:
    """The energy from the supply, and what became of it: heat, friction, magnetic field, load and motion."""
    i, w = sol.z[:, 0], sol.v[:, 0]
    held = np.concatenate([np.full(p.rows.stop - p.rows.start, p.args[-1].u[0]) for p in sol.phases or ()])
    total = lambda power: float(np.sum(0.5 * (power[1:] + power[:-1]) * np.diff(sol.t)))
    lost = total(RESISTANCE * i**2) + total(np.asarray(FRICTION(w)) * w)
    moving = 0.5 * (INERTIA * w[-1] ** 2 + SLIDER * sol.v[-1, 1] ** 2 + INDUCTANCE * i[-1] ** 2)
    return total(held * i), lost + moving + LOAD * (sol.q[0, 1] - sol.q[-1, 1])


def main(folder: str = "out") -> ga.Solution:
    sol = simulate(h=SAMPLE / 4)
    wanted = np.array([target(t) for t in sol.t])
    error = np.degrees(wanted[:, 0] - sol.q[:, 0])
    supplied, used, samples = *energies(sol), sol.control
    assert samples is not None
    print(f"{sol.message}: {sol.stats.steps} steps, {len(samples.t)} samples")
    print(f"largest error    {np.abs(error).max():.3f}° while moving, {abs(error[-1]):.4f}° at the end")
    print(f"largest current  {np.abs(sol.z).max():.2f} A, at the end {sol.z[-1, 0]:.2f} A")
    print(f"largest voltage  {np.abs(samples.u).max():.2f} V of {SUPPLY:g} V")
    print(
        f"energy           {supplied:.3f} J from the supply, {used:.3f} J in heat, friction, load and motion"
    )
    Path(folder).mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(4, 1, figsize=(7, 8), sharex=True, layout="constrained")
    axes[0].plot(sol.t, np.degrees(wanted[:, 0]), "--", label="target")
    axes[0].plot(sol.t, np.degrees(sol.q[:, 0]), label="crank")
    axes[0].set_ylabel("angle (°)")
    axes[0].legend()
    axes[1].plot(sol.t, error)
    axes[1].set_ylabel("error (°)")
    axes[2].plot(sol.t, sol.z[:, 0])
    axes[2].set_ylabel("current (A)")
    axes[3].step(samples.t, samples.u[:, 0], where="post")
    axes[3].set(ylabel="voltage (V)", xlabel="time (s)")
    figure.savefig(Path(folder) / "servo.png", dpi=150)
    plt.close(figure)
    return sol


if __name__ == "__main__":
    main(*sys.argv[1:])

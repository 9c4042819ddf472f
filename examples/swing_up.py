"""Swing-up of a pendulum that hangs from the slider of a slider crank: optimal control with 200 parameters.

A torque on the crank moves the slider to and fro. Its values at 200 times are found such that the pendulum
stands upright, at rest, at the end, with little effort. ``python examples/swing_up.py`` prints a summary and
saves a plot. One gradient with respect to all values costs about two runs (reverse mode).
"""

import sys
import time
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

CRANK, ROD, PENDULUM = 0.3, 0.8, 0.5  # lengths; the pendulum is a point at its end
CRANK_INERTIA, SLIDER, BOB, GRAVITY, FRICTION = 0.05, 1.0, 0.3, 9.81, 0.05
T_END, STEPS, VALUES = 3.0, 600, 200
TIMES = np.linspace(0.0, T_END, VALUES)


# --- angle of the crank, position of the slider, position of the bob ----------------------------------------


def force(t: Any, q: Any, v: Any, torque: Any) -> Any:
    drive = jnp.interp(t, TIMES, torque) - FRICTION * v[0]
    return jnp.array([drive, 0.0, 0.0, -BOB * GRAVITY])


def holonomic(t: Any, q: Any, torque: Any) -> Any:
    """The rod closes the loop: it has a constant length. So has the pendulum."""
    crank, slider, x, y = q
    pin = jnp.array([CRANK * jnp.cos(crank), CRANK * jnp.sin(crank)])
    rod, arm = jnp.array([slider, 0.0]) - pin, jnp.array([x - slider, y])
    return 0.5 * jnp.array([rod @ rod - ROD**2, arm @ arm - PENDULUM**2])


SYSTEM = ga.System(jnp.diag(jnp.array([CRANK_INERTIA, SLIDER, BOB, BOB])), force, holonomic)
AT = np.sqrt(ROD**2 - CRANK**2)  # of the slider, with the crank upright
Q0, V0 = np.array([0.5 * np.pi, AT, AT, -PENDULUM]), np.zeros(4)


def simulate(torque: Any) -> ga.Solution:
    return ga.solve(SYSTEM, (0.0, T_END), Q0, V0, h=T_END / STEPS, args=(torque,))


# --- the optimisation ---------------------------------------------------------------------------------------


def loss(torque: Any, weight: float) -> Any:
    """How far the end is from standing upright at rest, and the effort."""
    sol = simulate(torque)
    q, v = sol.q[-1], sol.v[-1]
    end = jnp.array([q[2] - q[1], q[3] - PENDULUM, *(0.3 * v)])
    return weight * end @ end + 1e-3 * jnp.mean(torque**2)


both = jax.jit(jax.value_and_grad(loss))


class Control(NamedTuple):
    """The torque (VALUES,), the loss, and the gradients that were computed."""

    torque: np.ndarray
    loss: float
    calls: int


def optimal() -> Control:
    """By L-BFGS, in two rounds: the second one insists on the end."""
    x, calls = np.sin(np.sqrt(GRAVITY / PENDULUM) * TIMES), 0  # a little, at the frequency of the pendulum
    for weight in (1.0, 100.0):
        value = lambda x, weight=weight: tuple(map(np.asarray, both(x, weight)))
        found = minimize(value, x, jac=True, method="L-BFGS-B", options={"maxiter": 150})
        x, calls = found.x, calls + found.nfev
    return Control(x, float(found.fun), calls)


def upright(sol: ga.Solution) -> np.ndarray:
    """The angle of the pendulum from the upright position, at all rows."""
    x, y = sol.q[:, 2] - sol.q[:, 1], sol.q[:, 3]
    return np.abs(np.arctan2(x, y))


def plot(control: Control, sol: ga.Solution, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    axes[0].plot(sol.t, np.degrees(upright(sol)), label="pendulum, from upright, °")
    axes[0].plot(TIMES, 10 * control.torque, "C1", label="torque, 0.1 N m")
    axes[0].set_xlabel("time, s")
    axes[0].legend()
    for k in range(0, STEPS + 1, 12):
        axes[1].plot(sol.q[k, [1, 2]], [0.0, sol.q[k, 3]], color=plt.cm.viridis(k / STEPS), lw=1)
    axes[1].plot(sol.q[:, 2], sol.q[:, 3], "k", lw=0.8)
    axes[1].plot(
        CRANK * np.cos(sol.q[:, 0]), CRANK * np.sin(sol.q[:, 0]), "C3", lw=1, label="pin of the crank"
    )
    axes[1].set(aspect="equal", title="from dark to light")
    axes[1].legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(folder: str = "out") -> tuple[Control, ga.Solution]:
    begin = time.perf_counter()
    control = optimal()
    took = time.perf_counter() - begin
    sol = simulate(control.torque)
    print(f"{control.calls} gradients with respect to {VALUES} values in {took:.1f} s")
    print(f"loss                     {control.loss:.2e}")
    print(f"angle from upright       {np.degrees(upright(sol)[-1]):.3f}°")
    print(f"largest speed at the end {np.abs(sol.v[-1]).max():.1e}")
    print(f"largest torque           {np.abs(control.torque).max():.2f} N m")
    print(f"largest force in the rod {np.abs(sol.lam[:, 0]).max() * ROD:.1f} N")
    Path(folder).mkdir(exist_ok=True)
    plot(control, sol, Path(folder) / "swing-up.png")
    return control, sol


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Stiffness, damping, an inertia and an unknown first speed of a slider crank, from noisy measurements.

A slider crank is set in motion by hand and left alone. A spring and a damper act on the slider. We measure
the position of the slider and the force at the crank pin. ``python examples/identify_slider_crank.py`` finds
the parameters, with their standard errors, once by ``scipy.optimize.least_squares`` (forward mode) and once
by plain gradient steps (reverse mode), and saves a plot.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from scipy.optimize import least_squares

import genalpha as ga

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAMES = ("stiffness, N/m", "damping, N s/m", "inertia of the crank, kg m²", "first speed, rad/s")
TRUE = np.array([120.0, 3.0, 0.02, 9.0])
GUESS = np.array([90.0, 6.0, 0.03, 7.0])
NOISE = np.array([2e-3, 0.5])  # of the position in m, of the force in N
CRANK, ROD, FREE = 0.15, 0.4, 0.6  # lengths of crank and rod, and the position at which the spring is free
ROD_MASS, SLIDER_MASS, START = 0.3, 0.5, 0.5  # START is the first angle of the crank
H, STEPS, EVERY = 2e-3, 500, 5  # every fifth step is measured


# --- the mechanism: crank angle, centre and angle of the rod, position of the slider ------------------------


def mass(t: Any, q: Any, p: Any) -> Any:
    return jnp.diag(jnp.stack([p[2], ROD_MASS, ROD_MASS, ROD_MASS * ROD**2 / 12, SLIDER_MASS]))


def force(t: Any, q: Any, v: Any, p: Any) -> Any:
    weight = -9.81 * ROD_MASS
    return jnp.array([0.0, 0.0, weight, 0.0, -p[0] * (q[4] - FREE) - p[1] * v[4]])


def holonomic(t: Any, q: Any, p: Any) -> Any:
    """The pin joins crank and rod, the wrist rod and slider. λ[:2] is the force on the rod at the pin."""
    angle, x, y, tilt, slider = q
    dx, dy = 0.5 * ROD * jnp.cos(tilt), 0.5 * ROD * jnp.sin(tilt)
    pin = jnp.array([CRANK * jnp.cos(angle) - (x - dx), CRANK * jnp.sin(angle) - (y - dy)])
    return jnp.concatenate([pin, jnp.array([x + dx - slider, y + dy])])


def closed(angle: Any) -> Any:
    """All coordinates, from the angle of the crank."""
    tilt = -jnp.arcsin(CRANK / ROD * jnp.sin(angle))
    x, y = CRANK * jnp.cos(angle), CRANK * jnp.sin(angle)
    dx, dy = ROD * jnp.cos(tilt), ROD * jnp.sin(tilt)
    return jnp.stack([angle, x + 0.5 * dx, y + 0.5 * dy, tilt, x + dx])


SYSTEM = ga.System(mass, force, holonomic)


def simulate(p: Any) -> Any:
    """Position of the slider, and force at the pin along x, (K, 2)."""
    q0, v0 = jax.jvp(closed, (START,), (p[3],))
    sol = ga.solve(SYSTEM, (0.0, STEPS * H), q0, v0, h=H, args=(p,), save=EVERY)
    return jnp.stack([sol.q[:, 4], sol.lam[:, 0]], axis=1)


# --- the fit ------------------------------------------------------------------------------------------------


class Fit(NamedTuple):
    """Parameters (4,), their standard errors (4,), and the calls that were needed."""

    parameters: np.ndarray
    errors: np.ndarray
    calls: int


def measured(seed: int = 0) -> np.ndarray:
    """The measurements: what the true parameters give, and noise."""
    rows = np.asarray(simulate(jnp.asarray(TRUE)))
    return rows + NOISE * np.random.default_rng(seed).normal(size=rows.shape)


def residuals(logs: Any, data: Any) -> Any:
    """Differences in units of the noise. The unknowns are logarithms, which keeps the parameters positive."""
    return ((simulate(jnp.exp(logs)) - data) / NOISE).ravel()


slopes = jax.jit(jax.jacfwd(residuals))
values = jax.jit(residuals)
loss = jax.jit(jax.value_and_grad(lambda logs, data: 0.5 * jnp.mean(residuals(logs, data) ** 2)))


def spread(logs: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Standard errors: the residuals have unit variance, so (JᵀJ)⁻¹ is the covariance of the logarithms."""
    J = np.asarray(slopes(logs, data))
    return np.exp(logs) * np.sqrt(np.diag(np.linalg.inv(J.T @ J)))


def by_least_squares(data: np.ndarray) -> Fit:
    """By a method of trust regions: a few Jacobians."""
    found = least_squares(values, np.log(GUESS), slopes, args=(data,))
    return Fit(np.exp(found.x), spread(found.x, data), found.nfev)


def by_gradient_steps(data: np.ndarray, steps: int = 1500) -> Fit:
    """Adam (Kingma and Ba 2014), with a rate that falls to zero. optax has this and more."""
    x, m, s = np.log(GUESS), np.zeros(4), np.zeros(4)
    for k in range(steps):
        g = np.asarray(loss(x, data)[1])
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2
        rate = 0.03 * (1 - k / steps)
        x = x - rate * m / (1 - 0.9 ** (k + 1)) / (np.sqrt(s / (1 - 0.999 ** (k + 1))) + 1e-12)
    return Fit(np.exp(x), spread(x, data), steps)


def plot(data: np.ndarray, fit: Fit, path: Path) -> None:
    t = H * EVERY * np.arange(len(data))
    guess, found = (np.asarray(simulate(jnp.asarray(p))) for p in (GUESS, fit.parameters))
    figure, axes = plt.subplots(2, 1, figsize=(8, 6), layout="constrained", sharex=True)
    for k, name in enumerate(("slider, m", "force at the pin along x, N")):
        axes[k].plot(t, guess[:, k], "C7--", label="first guess")
        axes[k].plot(t, data[:, k], "k.", ms=3, label="measured")
        axes[k].plot(t, found[:, k], "C0", label="fit")
        axes[k].set_ylabel(name)
    axes[0].legend(loc="upper right")
    axes[1].set_xlabel("time, s")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(folder: str = "out") -> tuple[Fit, Fit]:
    data = measured()
    fits = by_least_squares(data), by_gradient_steps(data)
    for name, fit in zip(("least squares", "gradient steps"), fits, strict=True):
        print(f"{name}, {fit.calls} calls")
        for what, true, found, error in zip(NAMES, TRUE, *fit[:2], strict=True):
            print(f"  {what:28s} {found:9.4f} ± {error:.4f}   true {true:g}")
    rest = np.asarray(values(np.log(fits[0].parameters), data))
    print(f"what is left, in units of the noise: {np.std(rest):.3f}")
    Path(folder).mkdir(exist_ok=True)
    plot(data, fits[0], Path(folder) / "identify-slider-crank.png")
    return fits


if __name__ == "__main__":
    main(*sys.argv[1:])

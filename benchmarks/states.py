"""What first-order states cost: as states, and as velocities of coordinates that nothing depends on.

A chain of filters z_i' = (z_{i−1} − z_i)/τ drives a pendulum. ``python -m benchmarks.states`` prints the time
of a step and of the first run, and then the time of a sample of a discrete controller.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import genalpha as ga
from benchmarks.measure import in_turns, seconds

T_END, TAU, REPEATS = 1.0, 0.05, 7


def rates(t: Any, z: Any) -> Any:
    return (jnp.concatenate([jnp.sin(t)[None], z[:-1]]) - z) / TAU


def push(q: Any, z: Any) -> Any:
    return jnp.array([0.0, -9.81]) + z[-1] * jnp.array([-q[1], q[0]])


def as_states(count: int) -> tuple[ga.System, dict[str, Any]]:
    system = ga.StateSystem(
        jnp.eye(2),
        lambda t, q, v, z: push(q, z),
        lambda t, q, v, z: rates(jnp.asarray(t, float), z),
        count,
        holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
    )
    return system, {"q0": [1.0, 0.0], "v0": np.zeros(2 + count)}


def as_coordinates(count: int) -> tuple[ga.System, dict[str, Any]]:
    system = ga.System(
        jnp.eye(2 + count),
        lambda t, q, v: jnp.concatenate([push(q, v[2:]), rates(jnp.asarray(t, float), v[2:])]),
        holonomic=lambda t, q: jnp.array([q[:2] @ q[:2] - 1.0]),
    )
    return system, {"q0": [1.0, *np.zeros(1 + count)], "v0": np.zeros(2 + count)}


def runs(make: Callable[[int], Any], count: int, steps: int) -> list[Callable[[], ga.Solution]]:
    """A run with given steps, and one with error control."""
    system, start = make(count)
    run = functools.partial(ga.solve, system, (0.0, T_END), **start, save="final")
    return [functools.partial(run, h=T_END / steps), functools.partial(run, rtol=1e-6)]


def main(most: int = 30, steps: int = 20_000) -> None:
    print("states  form         first run (s)  µs a step, h  µs a step, rtol  steps")
    forms = (as_states, as_coordinates)
    for count in [n for n in (1, 3, 10, 30) if n <= most]:
        each = [runs(make, count, steps) for make in forms]
        first = [seconds(given) for given, _ in each]
        taken = [control().stats.steps for _, control in each]
        times = [min(x) for x in in_turns([run for both in each for run in both], REPEATS)]
        for i, make in enumerate(forms):
            name, (given, control) = make.__name__.removeprefix("as_"), times[2 * i : 2 * i + 2]
            step = (1e6 * given / steps, 1e6 * control / taken[i])
            print(f"{count:6d}  {name:12} {first[i]:13.2f}  {step[0]:12.3f}  {step[1]:15.3f}  {taken[i]:5d}")
    cart = ga.System(jnp.eye(1), lambda t, q, v, c: c.u - q)
    hold = ga.Controller(0.01, lambda t, q, v, s: (s, -q - v), u0=[0.0])
    samples = 1000
    run = functools.partial(ga.solve, cart, (0.0, 0.01 * samples), [1.0], [0.0], controller=hold)
    for how in ({"h": 0.01}, {"h": 0.001}, {"rtol": 1e-4}):
        best = min(in_turns([functools.partial(run, **how)], 1 + REPEATS)[0][1:])
        print(f"a sample of a controller, {how}: {1e3 * best / samples:.3f} ms")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

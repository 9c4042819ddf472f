"""A plain Newton iteration on the equations of a step, with every choice open that YPR98 does not state.

The solver of the package decides by itself when to stop, when to take a new matrix and where to start. To
see how often an iteration converges, and how that depends on such choices, they must be fixed by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

import genalpha as ga
from genalpha.engine.step import extrapolated, moved_parabola
from genalpha.mechanics import initial_values
from genalpha.mechanics.system import Dims
from genalpha.numerics.data import Scale
from genalpha.problems import Problem


class Policy(NamedTuple):
    """How the equations of a step are solved.

    ``tol`` is what the last correction may be at most, in the largest of the unknowns q and v (absolute), and
    of ν and μ too where ``multipliers``; ``limit`` the number of corrections; ``start`` where they begin:
    0 with the accelerations and multipliers of the step before, 1 on the parabola through the last three, 2
    with none.
    """

    tol: Any = 1e-7
    limit: Any = 10
    multipliers: Any = True
    start: Any = 0


class Outcome(NamedTuple):
    """Steps that converged, the state after them, and the mean number of corrections in a step."""

    steps: Any
    t: Any
    q: Any
    v: Any
    corrections: Any


Runner = Callable[..., Outcome]


def runner(problem: Problem, method: Any, full: bool) -> Runner:
    """A compiled function of step sizes and numbers of steps (B,), a policy or B of them, and arguments.

    Every correction takes a new matrix where ``full``, otherwise all of a step that of its start. Arguments
    (B, ...) of the system are those of the problem where none are given.
    """
    system = problem.system
    q0, v0 = jnp.asarray(problem.q0), jnp.asarray(problem.v0)
    t0, c, hats = problem.t_span[0], method.coefficients, method.hats
    dims = Dims(q0.size, v0.size, len(system.g(t0, q0, problem.args)), 0)
    method.check(system, dims)
    names = method.sizes(dims)

    def size(dx: Array, h: Array, scale: Scale, policy: Policy) -> Array:
        """The largest change of q and v, and perhaps of ν and μ."""
        units = {"a_q": c.beta * h**2, "a_v": c.gamma * h, "lam_q": hats[0] * h**2, "lam_v": hats[1] * h}
        parts = method.split(dims, scale, dx)
        largest = {k: jnp.max(jnp.abs(units[k] * parts[k])) for k in names}
        states = jnp.maximum(largest["a_q"], largest["a_v"])
        return jnp.where(policy.multipliers, jnp.max(jnp.stack(list(largest.values()))), states)

    def solve(step: Any, guess: Array, scale: Scale, args: Any, policy: Policy) -> tuple[Array, Array, Array]:
        residual = lambda x: method.residual(system, step, dims, scale, x, args)
        linearized = residual
        if not method.exact_matrix:
            linearized = lambda x: method.linearized(system, step, dims, scale, x, args)

        inverse = None if full else jnp.linalg.inv(jax.jacfwd(linearized)(guess))

        def correct(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            x, count, _ = state
            matrix = jax.jacfwd(linearized)(x) if full else None
            dx = jnp.linalg.solve(matrix, residual(x)) if full else inverse @ residual(x)
            return x - dx, count + 1, size(dx, step.h, scale, policy)

        going = lambda s: (s[1] < policy.limit) & (s[2] > policy.tol)  # NaN ends it
        return lax.while_loop(going, correct, (guess, jnp.array(0), jnp.array(jnp.inf)))

    def one(h: Array, count: Array, policy: Policy, args: Any) -> Outcome:
        begin = initial_values.begin(system, dims, jnp.asarray(t0), q0, v0, args, None, method.needs_rate)
        scale = begin.scale
        carry, _ = method.begin(system, dims, begin, h, args)
        parts = {"a": carry.a / scale.a, "l": begin.state.lam / scale.lam}
        x = jnp.concatenate([parts[name[0]] for name in names])
        zero = jnp.zeros_like(x)

        def advance(state: tuple[Any, ...]) -> tuple[Any, ...]:
            n, carry, memory, total, _ = state
            step = method.prepare(system, carry, t0 + n * h, h, dims, scale, args)
            guess = jnp.stack([memory[0], extrapolated(memory, h, h), zero])[policy.start]
            x, corrections, last = solve(step, guess, scale, args, policy)
            after, _ = method.finish(system, step, dims, scale, x, args)
            fine = (last <= policy.tol) & jnp.all(jnp.isfinite(after.q)) & jnp.all(jnp.isfinite(after.a))
            carry = jax.tree.map(lambda new, old: jnp.where(fine, new, old), after, carry)
            parabola = moved_parabola(memory, x, h, h)
            return n + jnp.where(fine, 1, 0), carry, parabola, total + corrections, fine

        going = lambda s: (s[0] < count) & s[4]
        state = (jnp.array(0), carry, (x, zero, zero), jnp.array(0), jnp.array(True))
        n, carry, _, total, _ = lax.while_loop(going, advance, state)
        return Outcome(n, t0 + n * h, carry.q, carry.v, total / jnp.maximum(n, 1))

    many = jax.jit(jax.vmap(one))

    def run(h: Any, count: Any, policy: Policy, args: Any = None) -> Outcome:
        h = np.asarray(h, float)
        if args is None:
            args = jax.tree.map(lambda x: np.broadcast_to(x, (len(h), *np.shape(x))), problem.args)
        choices = Policy(*(np.broadcast_to(x, h.shape) for x in policy))
        return jax.tree.map(np.asarray, many(h, np.asarray(count), choices, args))

    return run


def draw_map(ax: Axes, x: Any, y: Any, maps: Mapping[str, np.ndarray]) -> list[Patch]:
    """Where Newton on (3.3) and CM converge, in colours; returns what their legend needs."""
    colors = ["#d9d9d9", "#f4a261", "#2a9d8f", "#e9f5f3"]
    labels = ["neither", "Newton on (3.3) only", "CM only", "both converge"]
    both = maps["(3.3)"].astype(int) + 2 * maps["CM"].astype(int)
    ax.pcolormesh(x, y, both, cmap=ListedColormap(colors), vmin=-0.5, vmax=3.5, shading="nearest")
    return [Patch(color=c, label=t) for c, t in zip(colors, labels, strict=True)]


METHODS: dict[str, Callable[[Any], Any]] = {
    "(3.3)": lambda c: ga.DAEAlpha(c, start="a0"),
    "CS": lambda c: ga.CoordinateSplit(c, start="a0", iteration="cs"),
    "CM": lambda c: ga.CoordinateSplit(c, start="a0", iteration="cm"),
}


def fewest(converged: Sequence[bool], counts: Sequence[int]) -> int | None:
    """The smallest number of steps from which on every one converged; None where the largest did not."""
    good = None
    for ok, count in sorted(zip(converged, counts, strict=True), key=lambda pair: -pair[1]):
        if not ok:
            break
        good = count
    return good


@functools.cache
def problem(name: str, **parameters: Any) -> Problem:
    return ga.problems.get(name, **parameters)


@functools.cache
def runner_of(method: str, rho: float, full: bool, name: str, **parameters: Any) -> Runner:
    """The runner of a method by its name in METHODS, on a problem."""
    return runner(problem(name, **parameters), METHODS[method](ga.chung_hulbert(rho)), full)

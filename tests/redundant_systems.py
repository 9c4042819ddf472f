"""Systems with redundant constraints, and their multipliers of smallest norm."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import genalpha as ga

WEIGHT = jnp.array([0.0, -9.81])
SPAN, START = (0.0, 1.0), ([1.0, 0.0], [0.0, 0.0])
solve = functools.partial(ga.solve, redundant="min_norm")


def circle(*factors: float) -> ga.System:
    """A pendulum whose constraint is stated several times."""
    return ga.System(
        np.eye(2), lambda t, q, v: WEIGHT, lambda t, q: jnp.array([c * (q @ q - 1.0) for c in factors])
    )


ONE, TWO, SCALED = circle(1.0), circle(1.0, 1.0), circle(1.0, -3.0, 1e4)


def plate(points: list[list[float]] | None) -> ga.System:
    """A plate (x, y, angle) on equal parallel bars at these points. It moves without turning.

    Without points, the constraint is stated directly.
    """
    minimal = lambda t, q: jnp.array([q[:2] @ q[:2] - 1.0, q[2]])

    def bars(t, q):
        at, (c, s) = jnp.array(points), (jnp.cos(q[2]), jnp.sin(q[2]))
        bar = q[:2] + at @ jnp.array([[c, s], [-s, c]]) - at
        return jnp.sum(bar * bar, axis=1) - 1.0

    return ga.System(
        np.diag([2.0, 2.0, 0.7]),
        lambda t, q, v: jnp.array([0.0, -19.62, 0.4 * jnp.sin(3 * t)]),
        minimal if points is None else bars,
    )


THREE_BARS, NO_BARS = plate([[-1.0, 0.0], [1.0, 0.0], [0.3, 1.2]]), plate(None)
ROUND = ([1.0, 0.0, 0.0], [0.0, 9.0, 0.0])  # fast enough for full turns


def door(hinges: list[float]) -> ga.System:
    """A door that hangs on hinges at these heights: each holds a point and the direction of the axis."""
    J, arm = jnp.array([0.5, 2.0, 1.5]), jnp.array([1.0, 0.0, 0.0])
    weight = jnp.array([0.0, -4.0, -9.81 * 3])
    up = jnp.array([0.0, 0.0, 1.0])

    def held(t, q):
        rotate = functools.partial(ga.rotation.rotate, q[3:])
        rows = [jnp.concatenate([q[:3] + rotate(z * up - arm) - z * up, rotate(up)[:2]]) for z in hinges]
        return jnp.concatenate(rows)

    return ga.System(
        np.diag([3.0, 3.0, 3.0, 0.5, 2.0, 1.5]),
        lambda t, q, v: jnp.concatenate([weight, -jnp.cross(v[3:], J * v[3:])]),
        held,
        space=ga.R3xSO3(),
    )


DOOR, HUNG_ONCE = door([-0.8, 0.7]), door([-0.8])
CLOSED = ([1.0, 0, 0, 1.0, 0, 0, 0], [0.0, 1.5, 0, 0, 0, 1.5])


def pinv(system: ga.System, sol: ga.Solution, rows: slice = slice(None)) -> np.ndarray:
    """The smallest (λ, ψ) with the reactions of a solution, by the singular value decomposition."""
    t, q, v = sol.t[rows], sol.q[rows], sol.v[rows]
    parts = [jax.jit(jax.vmap(system.G))(t, q)] if sol.lam.shape[1] else []
    parts += [jax.jit(jax.vmap(system.K))(t, q, v)] if sol.psi.shape[1] else []
    matrices = np.linalg.pinv(np.concatenate(parts, axis=1).transpose(0, 2, 1), rcond=1e-9)
    return -np.einsum("nij,nj->ni", matrices, sol.reactions.total[rows])


def assert_smallest(system, sol, rows=slice(None), rtol=1e-11):
    both = np.concatenate([sol.lam, sol.psi], axis=1)[rows]
    expected = pinv(system, sol, rows)
    np.testing.assert_allclose(both, expected, atol=rtol * np.abs(expected).max())

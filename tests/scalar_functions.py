"""Functions written in JAX that the compiler is tested with: each takes x (4,), y (4,), M (3, 3) and s ()."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import linalg as jsp_linalg

import genalpha as ga
from genalpha import rotation
from scalar_anywhere import ANYWHERE, VALUES, Function, regular, whole
from scalar_transformed import TRANSFORMED

# One row of 18 numbers.
SHAPES = [(4,), (4,), (3, 3), ()]
TABLE = np.array([0.0, 0.5, 2.0, 3.5])


def spd(M: Any) -> Any:
    return M @ M.T + jnp.eye(3)


def big(x: Any, y: Any, M: Any) -> Any:
    """A matrix (4, 4) whose largest entries are not on its diagonal."""
    return jnp.outer(x, y) + jnp.roll(5.0 * jnp.eye(4), 1, axis=0) + jnp.pad(M, ((0, 1), (0, 1)))


def unrolled(x: Any) -> Any:
    def body(i: Any, carry: Any) -> Any:
        return carry.at[i].add(jnp.sin(i * carry[0])), 2.0 * i

    return lax.scan(lambda c, i: body(i, c), x, jnp.arange(4))


def scan_back(x: Any, y: Any) -> Any:
    return lax.scan(lambda c, xs: (c * xs[0] + xs[1], c), 1.0, (x, y), reverse=True)


def window_scatter(x: Any, y: Any, indices: Any, mode: Any = None) -> Any:
    numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
    updates = jnp.stack([y[:2], 10 * y[2:]])
    return lax.scatter_add(x, indices, updates, numbers, mode=mode)


def windows(x: Any, indices: Any, mode: Any) -> Any:
    numbers = lax.GatherDimensionNumbers((1,), (), (0,))
    return lax.gather(x, indices, numbers, (2,), mode=mode)


# Functions that are compared at ordinary numbers.
ORDINARY: dict[str, Function] = {
    "rotations": lambda x, y, M, s: [
        rotation.matrix(rotation.normalize(x)),
        rotation.rotate(rotation.normalize(y), M[0]),
        jax.vmap(ga.SO3().retract)(rotation.normalize(x)[None], y[None, :3]),
        rotation.vector_of_matrix(rotation.matrix(rotation.normalize(x))),
    ],
    "circular": lambda x, y, M, s: [jnp.sin(x), jnp.cos(x), jnp.tan(x)],
    "norms": lambda x, y, M, s: [
        jnp.linalg.norm(x),
        jnp.linalg.norm(M),
        jnp.linalg.norm(x, 1),
        jnp.hypot(x, y),
    ],
    "cross": lambda x, y, M, s: jnp.cross(x[:3], y[1:]),
    "einsum": lambda x, y, M, s: [
        jnp.einsum("ij,jk,k->i", M, M, x[:3]),
        jnp.einsum("ii", M),
        jnp.einsum("i,j->ij", x, y),
    ],
    "matmul": lambda x, y, M, s: [M @ M.T, M @ x[:3], x[:3] @ M, x @ y, jnp.dot(x, y), jnp.vdot(M, M)],
    "known_times_unknown": lambda x, y, M, s: np.arange(12.0).reshape(3, 4) @ x,
    "batched_products": lambda x, y, M, s: jnp.einsum(
        "bij,bjk->bik", jnp.stack([M, M.T]), jnp.stack([M, 2 * M])
    ),
    "empty_products": lambda x, y, M, s: [
        jnp.zeros((3, 0)) @ x[:0],
        x[:0] @ y[:0],
        M[:0] @ x[:3],
        M[:, :0] @ M[:0],
    ],
    "integer_products": lambda x, y, M, s: whole(M) @ whole(M.T),
    "product_of_kinds": lambda x, y, M, s: whole(x) @ whole(y) / 4,
    "kron_trace": lambda x, y, M, s: [
        jnp.kron(x[:2], y[:2]),
        jnp.trace(M),
        jnp.diag(M),
        jnp.triu(M),
        jnp.tril(M, -1),
    ],
    "sums": lambda x, y, M, s: [
        jnp.sum(M, axis=0),
        jnp.sum(M),
        jnp.mean(x),
        jnp.prod(y),
        jnp.std(x),
        jnp.sum(x[:0]),
    ],
    "empty_reductions": lambda x, y, M, s: [
        jnp.sum(M[:0], axis=0),
        jnp.prod(M[:0], axis=0),
        jnp.any(x[:0] > 0),
        jnp.all(x[:0] > 0),
        lax.reduce_max_p.bind(M[:0], axes=(0,), out_sharding=None),
        lax.reduce_min_p.bind(M[:0], axes=(0,), out_sharding=None),
        jnp.sum(M, axis=()),
        jnp.max(M, axis=()),
    ],
    "empty_arrays": lambda x, y, M, s: [
        x[:0] + 1,
        jnp.concatenate([x[:0], y]),
        jnp.where(x[:0] > 0, x[:0], 1.0),
    ],
    "scalars": lambda x, y, M, s: [s, s + 1, s[None], jnp.reshape(s, (1, 1)), jnp.full(3, s)],
    "reduce_xor": lambda x, y, M, s: lax.reduce_xor(x > 0, (0,)),
    "cumulative_products": lambda x, y, M, s: [
        jnp.cumprod(x),
        jnp.cumsum(M, axis=1),
        lax.cumsum(M, 0, reverse=True),
    ],
    "known_cumulative": lambda x, y, M, s: (
        x * jnp.cumsum(jnp.arange(4)) + lax.cummax(jnp.arange(4), reverse=True)
    ),
    "differences": lambda x, y, M, s: [jnp.diff(x), jnp.gradient(y)],
    "shapes": lambda x, y, M, s: [
        jnp.stack([x, y], axis=1),
        jnp.concatenate([x, y]),
        jnp.hstack([x, s]),
        jnp.expand_dims(x, (0, 2)),
        x.reshape(2, 2).T,
        M[::-1],
        jnp.flip(M, 1),
        jnp.roll(x, 1),
        jnp.tile(x, 2),
        jnp.repeat(x, 2),
        M[1:, ::2],
        jnp.moveaxis(M[None], 0, 2),
        jnp.squeeze(M[None]),
        lax.rev(M, (0, 1)),
    ],
    "pieces": lambda x, y, M, s: [*jnp.split(x, [1, 3]), *jnp.unstack(M, axis=1), *jnp.array_split(y, 3), *M],
    "padding": lambda x, y, M, s: [
        jnp.pad(x, 2),
        lax.pad(x, 7.0, [(-1, 2, 0)]),
        lax.pad(x, s, [(1, -2, 2)]),
        lax.pad(M, 0.0, [(-1, 0, 1), (0, -1, 0)]),
        lax.pad(x, 0.0, [(-2, -2, 0)]),
        jnp.pad(x, 1, mode="edge"),
    ],
    "constant_index": lambda x, y, M, s: [
        x[jnp.array([3, 0, 0])],
        M[[0, 1], [2, 0]],
        M[:, [2, 0]],
        x[-1],
        x[np.array([True, False, True, False])],
    ],
    "take": lambda x, y, M, s: [
        jnp.take(x, np.array([0, 3, 7])),
        jnp.take(M, 1, axis=0),
        jnp.take_along_axis(M, np.array([[0], [1], [2]]), 1),
    ],
    "traced_index": lambda x, y, M, s: [
        x[jnp.argmax(y)],
        M[jnp.argmax(x[:3])],
        x[whole(y) % 4],
        x[whole(s) - 2],
    ],
    "two_traced_indices": lambda x, y, M, s: M[jnp.argmax(x[:3]), jnp.argmin(y[:3])],
    "filling_index": lambda x, y, M, s: [
        x.at[whole(y)].get(mode="fill", fill_value=-1.0),
        x.at[whole(y)].get(mode="fill"),
        x.at[whole(y)].get(mode="clip"),
        (x > 0).at[whole(y)].get(mode="fill"),
        jnp.arange(4).at[whole(y)].get(mode="fill", fill_value=9),
    ],
    "gathered_windows": lambda x, y, M, s: [
        windows(x, np.array([[0], [2], [3]]), "clip"),
        windows(x, np.array([[0], [2], [3]]), "fill"),
        windows(x, whole(y)[:, None], "clip"),
        windows(x, whole(y)[:, None], "fill"),
    ],
    "dynamic_slice": lambda x, y, M, s: [
        lax.dynamic_slice(x, (whole(s),), (2,)),
        lax.dynamic_slice(M, (whole(s), 5), (2, 2)),
        lax.dynamic_index_in_dim(M, whole(s), 1),
        lax.dynamic_update_slice(x, y[:2], (whole(s),)),
        lax.dynamic_update_slice(M, M[:2, :2] * 9, (whole(s), jnp.argmax(x[:2]))),
        lax.dynamic_slice(jnp.arange(5.0), (9,), (2,)) + s,
    ],
    "set": lambda x, y, M, s: [
        x.at[1].set(s),
        x.at[1:3].set(y[:2]),
        M.at[0, 1].add(s),
        M.at[:, 1].set(x[:3]),
        x.at[jnp.array([0, 0, 2])].add(y[:3]),
        x.at[1].multiply(3.0),
        x.at[2].divide(s),
        x.at[jnp.array([0, 9])].set(7.0),
        x.at[jnp.array([0, 9])].set(7.0, mode="clip"),
        x.at[2].max(s),
        x.at[2].min(s),
        x.at[1].power(2),
        x.at[1].subtract(s),
        jnp.zeros((3, 3)).at[np.tril_indices(3)].set(jnp.arange(6.0) * s),
    ],
    "set_at_traced": lambda x, y, M, s: [
        x.at[jnp.argmax(y)].set(s),
        x.at[whole(y)].add(1.0),
        x.at[whole(y)].set(9.0, mode="clip"),
        M.at[jnp.argmax(x[:3]), jnp.argmin(y[:3])].multiply(s),
        M.at[jnp.argmax(x[:3])].set(y[:3]),
    ],
    "scattered_windows": lambda x, y, M, s: [
        window_scatter(x, y, np.array([[1], [3]])),
        window_scatter(x, y, np.array([[1], [3]]), "clip"),
        window_scatter(x, y, whole(y)[:2, None]),
    ],
    "cond": lambda x, y, M, s: [
        lax.cond(s > 0, lambda a: a * 2, lambda a: -a, x),
        lax.cond(s > 0, jnp.sin, jnp.cos, s),
        lax.cond(True, lambda a: a + 1, lambda a: a - 1, x),
        lax.cond(s > 0, lambda: (x > 0, whole(s)), lambda: (y > 0, whole(-s))),
    ],
    "switch": lambda x, y, M, s: [
        lax.switch(whole(s), [jnp.sin, jnp.cos, jnp.tanh, jnp.exp], s),
        lax.switch(2, [jnp.sin, jnp.cos, jnp.tanh], x),
    ],
    "select_n": lambda x, y, M, s: lax.select_n(jnp.clip(whole(x), 0, 2), x, y, 2 * y),
    "select_scalar": lambda x, y, M, s: [
        lax.select_n(s > 0, x, y),
        jnp.select([x > 1, x > 0], [y, 2 * y], s),
    ],
    "piecewise": lambda x, y, M, s: jnp.piecewise(x, [x < 0, x > 1], [lambda a: -a, lambda a: a**2, 3.0]),
    "fori": lambda x, y, M, s: [
        lax.fori_loop(0, 4, lambda i, c: c + x[i] * i, s),
        lax.fori_loop(0, 5, lambda i, c: (c[1], c[0] + c[1]), (s, 1.0)),
        lax.fori_loop(2, 2, lambda i, c: c * 2, x),
    ],
    "while": lambda x, y, M, s: lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x)
    ),
    "scan": lambda x, y, M, s: [
        scan_back(x, y),
        unrolled(x),
        lax.scan(lambda c, _: (c, c), s, None, length=0)[0],
    ],
    "map": lambda x, y, M, s: lax.map(lambda a: a**2 + s, x),
    "associative_scan": lambda x, y, M, s: lax.associative_scan(jnp.multiply, x),
    "horner": lambda x, y, M, s: [jnp.polyval(x, s), jnp.vander(x, 3)],
    "interp": lambda x, y, M, s: [jnp.interp(x, TABLE, VALUES), jnp.interp(s, TABLE, x)],
    "searchsorted": lambda x, y, M, s: [jnp.searchsorted(TABLE, x), jnp.digitize(y, TABLE)],
    "solve": lambda x, y, M, s: [
        jnp.linalg.solve(regular(M), x[:3]),
        jnp.linalg.solve(big(x, y, M), y),
        jnp.linalg.solve(regular(M), M),
    ],
    "inverse": lambda x, y, M, s: [jnp.linalg.inv(regular(M)), jnp.linalg.inv(M[:2, :2] + 3 * jnp.eye(2))],
    "determinant": lambda x, y, M, s: [
        jnp.linalg.det(M),
        jnp.linalg.det(M[:2, :2]),
        jnp.linalg.det(big(x, y, M)),
        jnp.linalg.slogdet(big(x, y, M)),
    ],
    "singular_determinant": lambda x, y, M, s: jnp.linalg.det(jnp.stack([x, 0 * x, y, x + y]) * (s > -9)),
    "batched_solve": lambda x, y, M, s: jnp.linalg.solve(
        jnp.stack([regular(M), regular(M.T)]), jnp.stack([x[:3], y[:3]])[..., None]
    ),
    "cholesky": lambda x, y, M, s: [
        jnp.linalg.cholesky(spd(M)),
        jnp.linalg.cholesky(jnp.stack([spd(M), spd(M.T)])),
    ],
    "cho_solve": lambda x, y, M, s: [
        jsp_linalg.cho_solve(jsp_linalg.cho_factor(spd(M)), x[:3]),
        jsp_linalg.solve(spd(M), x[:3], assume_a="pos"),
    ],
    "triangular": lambda x, y, M, s: [
        jsp_linalg.solve_triangular(regular(M), x[:3], lower=lower, trans=trans, unit_diagonal=unit)
        for lower in (False, True)
        for trans in (0, 1)
        for unit in (False, True)
    ],
    "triangular_from_the_right": lambda x, y, M, s: lax.linalg.triangular_solve(
        regular(M), M, left_side=False, lower=True
    ),
    "matrix_power": lambda x, y, M, s: jnp.linalg.matrix_power(M, 3),
    "activations": lambda x, y, M, s: [
        jax.nn.relu(x),
        jax.nn.softplus(x),
        jax.nn.silu(x),
        jax.nn.gelu(x),
        jax.nn.leaky_relu(x),
        jax.nn.elu(x),
    ],
    "softmax": lambda x, y, M, s: [jax.nn.softmax(x), jax.nn.logsumexp(y), jnp.logaddexp(x, y)],
    "sinc": lambda x, y, M, s: [jnp.sinc(x), jnp.deg2rad(x), jnp.unwrap(x)],
}
FUNCTIONS = ANYWHERE | ORDINARY | TRANSFORMED


def split(row: Any) -> list[Any]:
    parts, at = [], 0
    for shape in SHAPES:
        size = int(np.prod(shape))
        parts.append(row[at : at + size].reshape(shape))
        at += size
    return parts

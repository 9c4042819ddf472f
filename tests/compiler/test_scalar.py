"""Functions written in JAX, compiled as scalar programs, give what JAX gives: in every way they are run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import linalg as jsp_linalg

from compiled import HAS_CC, Rows, by_c, by_llvm
from genalpha.compiler import machine
from genalpha.compiler.primitives import calls, table
from genalpha.compiler.reader import Symbols, inline

# Every function takes x (4,), y (4,), M (3, 3) and s (): one row of 18 numbers.
SHAPES = [(4,), (4,), (3, 3), ()]
Function = Callable[..., Any]
TABLE = np.array([0.0, 0.5, 2.0, 3.5])
VALUES = np.array([1.0, -2.0, 0.5, 4.0])


def whole(x: Any, scale: float = 3.0) -> Any:
    return (scale * x).astype(int)


def spd(M: Any) -> Any:
    return M @ M.T + jnp.eye(3)


def regular(M: Any) -> Any:
    return M + 4.0 * jnp.eye(3)


def big(x: Any, y: Any, M: Any) -> Any:
    """A matrix (4, 4) whose largest entries are not on its diagonal."""
    return jnp.outer(x, y) + jnp.roll(5.0 * jnp.eye(4), 1, axis=0) + jnp.pad(M, ((0, 1), (0, 1)))


@jax.custom_jvp
def handed_on(x: Any) -> Any:
    return x


handed_on.defjvp(lambda p, t: (handed_on(*p), 3.0 * t[0]))


@jax.custom_vjp
def clipped_slope(x: Any) -> Any:
    return x**3


clipped_slope.defvjp(lambda x: (x**3, x), lambda x, g: (jnp.minimum(g * 3 * x**2, 1.0),))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def scaled(k: int, x: Any) -> Any:
    return jnp.sin(k * x)


scaled.defjvp(lambda k, p, t: (scaled(k, *p), 2.0 * jnp.cos(k * p[0]) * t[0]))


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


# Functions whose results are compared where entries are NaN, infinite, huge, zero or equal, too.
ANYWHERE: dict[str, Function] = {
    "add": lambda x, y, M, s: x + y,
    "sub": lambda x, y, M, s: x - y,
    "mul": lambda x, y, M, s: x * y,
    "div": lambda x, y, M, s: x / y,
    "neg_and_abs": lambda x, y, M, s: -x + abs(y),
    "chain_of_signs": lambda x, y, M, s: -(-x - y) - (-(y - x)) * (-x) / (-y),
    "maximum": lambda x, y, M, s: jnp.maximum(x, y),
    "minimum": lambda x, y, M, s: jnp.minimum(x, y),
    "comparisons": lambda x, y, M, s: [x < y, x <= y, x > y, x >= y, x == y, x != y],
    "logic": lambda x, y, M, s: [(x < y) & (y < s), (x < y) | (x == s), (x < 0) ^ (y < 0), ~(x < y)],
    "order_of_booleans": lambda x, y, M, s: [
        op(x < 0, y < 0) for op in (jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal, jnp.equal)
    ],
    "extremes_of_booleans": lambda x, y, M, s: [jnp.maximum(x < 0, y < 0), jnp.minimum(x < 0, y < 0)],
    "sums_of_booleans": lambda x, y, M, s: [
        jnp.sum(x < y),
        (x < 0) * (y < 0),
        (x < 0) + (y < 0),
        jnp.mean(x < y, dtype=float),
    ],
    "where": lambda x, y, M, s: jnp.where(x < y, x, s),
    "where_of_booleans": lambda x, y, M, s: jnp.where(x < y, x < 0, y < 0),
    "nan_to_num": lambda x, y, M, s: jnp.nan_to_num(x, nan=1.0, posinf=2.0, neginf=3.0),
    "is_something": lambda x, y, M, s: [jnp.isnan(x), jnp.isinf(x), jnp.isfinite(x), jnp.isposinf(x)],
    "clip": lambda x, y, M, s: jnp.clip(x, -1.0, y),
    "clamp": lambda x, y, M, s: lax.clamp(-1.0, x, 0.5),
    "sign": lambda x, y, M, s: jnp.sign(x),
    "floor_ceil_trunc": lambda x, y, M, s: [jnp.floor(x), jnp.ceil(x), jnp.trunc(x)],
    "round_to_even": lambda x, y, M, s: jnp.round(x),
    "round_away": lambda x, y, M, s: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round_away_near_half": lambda x, y, M, s: lax.round(
        0.49999999999999994 * jnp.sign(x), lax.RoundingMethod.AWAY_FROM_ZERO
    ),
    "rem": lambda x, y, M, s: lax.rem(x, y),
    "mod": lambda x, y, M, s: jnp.mod(x, y),
    "floor_divide": lambda x, y, M, s: jnp.floor_divide(x, y),
    "sqrt": lambda x, y, M, s: jnp.sqrt(x),
    "rsqrt": lambda x, y, M, s: lax.rsqrt(x),
    "cbrt": lambda x, y, M, s: jnp.cbrt(x),
    "exp": lambda x, y, M, s: [jnp.exp(x), jnp.expm1(x), jnp.exp2(x)],
    "log": lambda x, y, M, s: [jnp.log(x), jnp.log1p(x), jnp.log2(abs(x)), jnp.log10(abs(x))],
    "atan2": lambda x, y, M, s: jnp.arctan2(x, y + 1.0),
    "inverse_circular": lambda x, y, M, s: [jnp.arcsin(x), jnp.arccos(x), jnp.arctan(x)],
    "hyperbolic": lambda x, y, M, s: [jnp.sinh(x), jnp.cosh(x), jnp.tanh(x)],
    "inverse_hyperbolic": lambda x, y, M, s: [jnp.arcsinh(x), jnp.arccosh(x), jnp.arctanh(x)],
    "pow": lambda x, y, M, s: [jnp.abs(x) ** y, jnp.power(x, y)],
    "powers": lambda x, y, M, s: [
        x**0,
        x**2,
        x**3,
        x**5,
        y**-1,
        y**-3,
        x**2.0,
        abs(x) ** 0.5,
        abs(x) ** 2.5,
        lax.square(x),
    ],
    "erf": lambda x, y, M, s: [jax.scipy.special.erf(x), jax.scipy.special.erfc(x)],
    "logistic": lambda x, y, M, s: jax.nn.sigmoid(x),
    "argmax": lambda x, y, M, s: [jnp.argmax(x), jnp.argmin(x), jnp.argmax(M, axis=0), jnp.argmin(M, axis=1)],
    "argmax_of_booleans": lambda x, y, M, s: jnp.argmax(x > 0),
    "max": lambda x, y, M, s: [jnp.max(x), jnp.min(y), jnp.max(M, axis=0), jnp.min(M, axis=(0, 1))],
    "any_all": lambda x, y, M, s: [jnp.any(x > 0), jnp.all(x < y), jnp.all(M > 0, axis=1)],
    "cumulative": lambda x, y, M, s: [lax.cummax(x), lax.cummin(y, reverse=True), jnp.cumsum(x)],
    "to_integers": lambda x, y, M, s: [jnp.clip(x.astype(int), -9, 9), jnp.clip(y.astype(jnp.int32), -9, 9)],
    "stop_gradient": lambda x, y, M, s: lax.stop_gradient(x),
    "heaviside": lambda x, y, M, s: jnp.heaviside(x, 0.5),
    "copysign_free": lambda x, y, M, s: jnp.where(x >= 0, jnp.abs(y), -jnp.abs(y)),
    "index_by_nan": lambda x, y, M, s: jnp.array(VALUES)[jnp.clip(x.astype(int), 0, 3)],
}

# Functions that are compared at ordinary numbers.
ORDINARY: dict[str, Function] = {
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
    "vmap": lambda x, y, M, s: [
        jax.vmap(jnp.dot, (0, None))(M, x[:3]),
        jax.vmap(jnp.outer)(x[None], y[None]),
        jax.vmap(lambda a, k: a[k])(M, whole(x[:3]) % 3),
    ],
    "vmapped_set": lambda x, y, M, s: jax.vmap(lambda row, k, v: row.at[k].set(v))(
        M, np.array([2, 0, 1]), x[:3]
    ),
    "vmapped_cond": lambda x, y, M, s: jax.vmap(lambda a: lax.cond(a > 0, jnp.sin, jnp.cos, a))(x),
    "jvp": lambda x, y, M, s: jax.jvp(lambda a: jnp.sin(a) * a**2, (x,), (y,)),
    "vjp": lambda x, y, M, s: jax.vjp(lambda a: jnp.cumsum(jnp.exp(a) * y), x)[1](y),
    "grad": lambda x, y, M, s: jax.grad(lambda a: jnp.linalg.norm(a) + jnp.max(a) + jnp.prod(a[1:]))(x),
    "jacfwd": lambda x, y, M, s: jax.jacfwd(lambda a: jnp.cross(a[:3], y[:3]) * jnp.tanh(a[3]))(x),
    "jacrev": lambda x, y, M, s: jax.jacrev(lambda a: jnp.where(a > 0, a**2, jnp.sin(a)))(x),
    "hessian": lambda x, y, M, s: jax.hessian(lambda a: jnp.sum(a**3) * a[0] + jnp.cos(a @ y))(x),
    "jacfwd_of_solve": lambda x, y, M, s: jax.jacfwd(
        lambda a: jnp.linalg.solve(regular(M) + jnp.outer(a, a), a)
    )(x[:3]),
    "custom_jvp": lambda x, y, M, s: [
        handed_on(x) * y,
        jax.jvp(handed_on, (x,), (y,)),
        scaled(2, x),
        jax.jvp(lambda a: scaled(2, a), (x,), (y,)),
    ],
    "custom_vjp": lambda x, y, M, s: [clipped_slope(x), jax.grad(lambda a: clipped_slope(a).sum())(x)],
    "remat": lambda x, y, M, s: [
        jax.checkpoint(jnp.sin)(x),
        jax.grad(lambda a: jax.checkpoint(lambda b: jnp.sin(b).sum())(a))(x),
    ],
    "jit": lambda x, y, M, s: jax.jit(lambda a, b: {"sum": a + b, "rest": (a, b)})(x, y),
    "barrier": lambda x, y, M, s: lax.optimization_barrier((x, y)),
    "integers": lambda x, y, M, s: [
        whole(x) // 2,
        whole(x) % 2,
        whole(x) // -3,
        whole(x) % -3,
        lax.div(whole(x), 2),
        lax.rem(whole(x), 2),
        3 * whole(y) - whole(s),
        whole(x) ** 2,
        whole(x) / 2,
        abs(whole(x)),
        jnp.sign(whole(x)),
        jnp.maximum(whole(x), whole(y)),
        -whole(x),
        whole(x) == whole(y),
        jnp.argmax(whole(x)),
        jnp.sum(whole(x)),
        whole(x).astype(bool),
        jnp.clip(whole(x), -1, 1),
    ],
    "integer_division_by_zero": lambda x, y, M, s: [
        lax.div(whole(x), whole(y - y)),
        lax.rem(whole(x), whole(y - y)),
        lax.div(whole(x), whole(y, 0.3)),
    ],
    "unknown_whole_exponent": lambda x, y, M, s: [
        jnp.power(2.5, whole(x)) / 3.0,
        jnp.power(x, whole(s)),
        jnp.power(x, 3),
    ],
    "conversions": lambda x, y, M, s: [
        (x > 0).astype(float),
        (x > 0).astype(int) + 1,
        whole(x).astype(float) / 2,
        whole(x).astype(jnp.int32),
        x.astype(bool),
        (x > 0) * x,
    ],
    "known_conversions": lambda x, y, M, s: (
        jnp.clip(jnp.array([np.nan, np.inf, -np.inf, 1e300]).astype(jnp.int32), -5, 5) * x
    ),
    "known_integers": lambda x, y, M, s: (
        x * (jnp.arange(4) // 3 + jnp.arange(-2, 2) % 3 + lax.div(jnp.arange(-2, 2), 2) + (jnp.arange(4) & 1))
    ),
    "known_everything": lambda x, y, M, s: jnp.linalg.inv(jnp.diag(jnp.array([1.0, 2.0]))),
    "known_outputs": lambda x, y, M, s: [
        jnp.eye(3),
        jnp.arange(3),
        jnp.array([True, False]),
        0 * jnp.ones(2),
    ],
    "reduce_precision": lambda x, y, M, s: lax.reduce_precision(x, 11, 52),
    "quaternion": lambda x, y, M, s: (
        jnp.concatenate(
            [(x[0] * y[0] - x[1:] @ y[1:])[None], x[0] * y[1:] + y[0] * x[1:] + jnp.cross(x[1:], y[1:])]
        )
        / jnp.linalg.norm(x)
    ),
    "friction": lambda x, y, M, s: (
        -jnp.tanh(x / 0.01) * jnp.maximum(y, 0.0) ** 1.5 + jnp.where(jnp.abs(x) < 0.1, x / 0.1, jnp.sign(x))
    ),
}
FUNCTIONS = ANYWHERE | ORDINARY


def split(row: Any) -> list[Any]:
    parts, at = [], 0
    for shape in SHAPES:
        size = int(np.prod(shape))
        parts.append(row[at : at + size].reshape(shape))
        at += size
    return parts


def points() -> tuple[np.ndarray, np.ndarray]:
    """Ordinary rows, and rows of numbers that are not."""
    rng = np.random.default_rng(0)
    ordinary = rng.uniform(-2, 2, (5, 18))
    odd = rng.choice(
        [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 2.5, np.inf, -np.inf, np.nan, 1e300, -1e-300], (24, 18)
    )
    ordinary[3] = np.round(ordinary[3])
    ordinary[4, :8] = 0.75  # ties
    return ordinary, odd


class Results:
    """All functions at all points by JAX, and what the package makes of them."""

    def __init__(self, folder: Any) -> None:
        ordinary, odd = points()
        self.rows: dict[str, Rows] = {}
        self.failures: dict[str, Exception] = {}
        for name, function in FUNCTIONS.items():
            rows = Rows(name, 18)
            try:
                given = [Symbols(ids, "f") for ids in split(rows.inputs)]
                outputs = jax.tree.leaves(inline(rows.graph, function, *given))
            except Exception as error:
                self.failures[name] = error
                continue
            self.rows[name] = rows.finish(np.concatenate([np.ravel(x) for x in outputs]).tolist())
        self.points = {n: np.concatenate([ordinary, odd]) if n in ANYWHERE else ordinary for n in FUNCTIONS}
        whole = lambda names: jax.jit(lambda row: {n: FUNCTIONS[n](*split(row)) for n in names})
        found = [whole(list(FUNCTIONS)), whole(list(ANYWHERE))]
        runs = [found[0](row) for row in ordinary] + [found[1](row) for row in odd]
        flat = lambda tree: np.concatenate([np.ravel(x).astype(float) for x in jax.tree.leaves(tree)])
        self.expected = {n: np.array([flat(run[n]) for run in runs if n in run]) for n in FUNCTIONS}
        many = list(self.rows.values())
        self.ways = {"graph": lambda rows, table: rows.evaluate(table)}
        self.ways |= {f"{lanes} lanes": by_llvm(many, lanes) for lanes in (1, machine.lanes())}
        if HAS_CC:
            self.ways["C"] = by_c(many, folder)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("rows"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_numbers_as_jax(results: Results, name: str) -> None:
    if name in results.failures:
        raise results.failures[name]
    expected = results.expected[name]
    for way, run in results.ways.items():
        found = run(results.rows[name], results.points[name])
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10, err_msg=way)


def test_tables_are_covered() -> None:
    """Every primitive that has a scalar form occurs in some function above."""
    seen: set[str] = set()

    def walk(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            seen.add(equation.primitive.name)
            for value in jax.tree.leaves(
                list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")
            ):
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns"):
                    walk(inner)

    for function in FUNCTIONS.values():
        walk(jax.make_jaxpr(lambda row, f=function: f(*split(row)))(np.ones(18)).jaxpr)
    spare = {
        "add_any",
        "copy_p",
        "name",
        "lt_to",
        "le_to",
        "stack",
        "device_put",
        "genalpha_derivative",
    }  # no function of JAX makes these
    older = {"pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"} | {
        n for n in table.TABLE if "scatter_" in n
    }
    assert set(table.TABLE) | set(calls.CALLS) <= seen | spare | older
    assert seen & {"remat", "remat2", "checkpoint"}

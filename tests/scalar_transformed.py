"""Functions that contain transforms of JAX, custom derivatives, integers, conversions or constants."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from scalar_anywhere import Function, regular, whole


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


TRANSFORMED: dict[str, Function] = {
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

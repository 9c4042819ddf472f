"""Functions written in JAX that are compared also at entries that are NaN, infinite, huge, zero or equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Function = Callable[..., Any]
VALUES = np.array([1.0, -2.0, 0.5, 4.0])


def whole(x: Any, scale: float = 3.0) -> Any:
    return (scale * x).astype(int)


def regular(M: Any) -> Any:
    return M + 4.0 * jnp.eye(3)


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

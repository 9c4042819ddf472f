"""The table of JAX's primitives that have a scalar form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from genalpha.compiler.graph import FALSE, ONE, TRUE, Graph
from genalpha.compiler.primitives import algebra, arrays, entries, indexing
from genalpha.compiler.reader import Handler


def _special(name: str) -> Callable[..., Any]:
    def evaluate(x: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(x)

    return evaluate


_UNARY: dict[str, tuple[str, Callable[..., Any]]] = {
    "sqrt": ("sqrt", np.sqrt),
    "abs": ("abs", np.abs),
    "floor": ("floor", np.floor),
    "ceil": ("ceil", np.ceil),
    "sin": ("sin", np.sin),
    "cos": ("cos", np.cos),
    "tan": ("tan", np.tan),
    "asin": ("asin", np.arcsin),
    "acos": ("acos", np.arccos),
    "atan": ("atan", np.arctan),
    "sinh": ("sinh", np.sinh),
    "cosh": ("cosh", np.cosh),
    "tanh": ("tanh", np.tanh),
    "asinh": ("asinh", np.arcsinh),
    "acosh": ("acosh", np.arccosh),
    "atanh": ("atanh", np.arctanh),
    "exp": ("exp", np.exp),
    "exp2": ("exp2", np.exp2),
    "expm1": ("expm1", np.expm1),
    "log": ("log", np.log),
    "log1p": ("log1p", np.log1p),
    "cbrt": ("cbrt", np.cbrt),
    "erf": ("erf", _special("erf")),
    "erfc": ("erfc", _special("erfc")),
}


_max, _min = (lambda g, a, b: g.extreme("max", a, b)), (lambda g, a, b: g.extreme("min", a, b))

TABLE: dict[str, Handler] = {
    **{name: entries.function(op, known) for name, (op, known) in _UNARY.items()},
    **dict.fromkeys(("add", "add_any"), entries.entrywise(np.add, entries.add, "fib")),
    "sub": entries.entrywise(np.subtract, Graph.sub),
    "mul": entries.product,
    "div": entries.divide,
    "neg": entries.entrywise(np.negative, Graph.neg),
    "max": entries.extreme("max", np.maximum),
    "min": entries.extreme("min", np.minimum),
    "rem": entries.remainder,
    "pow": entries.power,
    "atan2": entries.function("atan2", np.arctan2),
    "square": entries.entrywise(np.square, lambda g, a: g.mul(a, a)),
    "integer_pow": entries.integer_pow,
    "genalpha_scalars": entries.listed,
    "rsqrt": entries.entrywise(lambda x: 1 / np.sqrt(x), lambda g, a: g.div(ONE, g.apply("sqrt", a))),
    "sign": entries.entrywise(np.sign, entries.sign),
    "logistic": entries.entrywise(lambda x: 1 / (1 + np.exp(-x)), entries.logistic),
    "round": entries.round_,
    "clamp": entries.clamp,
    "is_finite": entries.entrywise(np.isfinite, entries.is_finite),
    "lt": entries.compare("lt", np.less),
    "le": entries.compare("le", np.less_equal),
    "gt": entries.compare("lt", np.greater, swap=True),
    "ge": entries.compare("le", np.greater_equal, swap=True),
    "eq": entries.compare("eq", np.equal),
    "ne": entries.compare("ne", np.not_equal),
    "lt_to": entries.in_total_order("lt", np.less),
    "le_to": entries.in_total_order("le", np.less_equal),
    "and": entries.logic("and", np.bitwise_and),
    "or": entries.logic("or", np.bitwise_or),
    "xor": entries.logic("xor", np.bitwise_xor),
    "not": entries.logic("not", np.invert),
    "select_n": entries.select,
    "convert_element_type": entries.convert,
    "stop_gradient": entries.stop,
    "copy": arrays.moving(lambda x, p: x),
    "copy_p": arrays.moving(lambda x, p: x),
    "name": arrays.moving(lambda x, p: x),
    "reduce_precision": entries.precision,
    "reshape": arrays.moving(lambda x, p: x.reshape(p["new_sizes"])),
    "squeeze": arrays.moving(lambda x, p: np.squeeze(x, axis=tuple(p["dimensions"]))),
    "tile": arrays.moving(lambda x, p: np.tile(x, p["reps"])),
    "transpose": arrays.moving(lambda x, p: np.transpose(x, p["permutation"])),
    "rev": arrays.moving(lambda x, p: np.flip(x, tuple(p["dimensions"]))),
    "broadcast_in_dim": arrays.moving(arrays.broadcast),
    "slice": arrays.moving(arrays.cut),
    "pad": arrays.joining(arrays.pad),
    "concatenate": arrays.joining(lambda xs, p: np.concatenate(xs, axis=p["dimension"])),
    "stack": arrays.joining(lambda xs, p: np.stack(xs, axis=p["axis"])),
    "split": arrays.split,
    "unstack": arrays.unstack,
    "iota": arrays.iota,
    "platform_index": arrays.platform,
    "reduce_sum": arrays.reduction(np.sum, arrays.total),
    "reduce_prod": arrays.reduction(np.prod, arrays.product),
    "reduce_max": arrays.extremum("max"),
    "reduce_min": arrays.extremum("min"),
    "reduce_and": arrays.every("and", np.bitwise_and.reduce, TRUE),
    "reduce_or": arrays.every("or", np.bitwise_or.reduce, FALSE),
    "reduce_xor": arrays.every("xor", np.bitwise_xor.reduce, FALSE),
    "argmax": arrays.position("max"),
    "argmin": arrays.position("min"),
    "cumsum": arrays.cumulative(np.cumsum, Graph.add),
    "cumprod": arrays.cumulative(np.cumprod, Graph.mul),
    "cummax": arrays.cumulative(np.maximum.accumulate, _max),
    "cummin": arrays.cumulative(np.minimum.accumulate, _min),
    "dot_general": arrays.dot,
    "dynamic_slice": indexing.dynamic_slice,
    "dynamic_update_slice": indexing.dynamic_update_slice,
    "gather": indexing.gather,
    "scatter": indexing.scatter(None),
    **dict.fromkeys(("scatter-add", "scatter_add"), indexing.scatter(Graph.add)),
    **dict.fromkeys(("scatter-sub", "scatter_sub"), indexing.scatter(Graph.sub)),
    **dict.fromkeys(("scatter-mul", "scatter_mul"), indexing.scatter(Graph.mul)),
    **dict.fromkeys(("scatter-max", "scatter_max"), indexing.scatter(_max)),
    **dict.fromkeys(("scatter-min", "scatter_min"), indexing.scatter(_min)),
    "lu": algebra.lu,
    "triangular_solve": algebra.triangular_solve,
    "cholesky": algebra.cholesky,
}
# Descriptions of operations that have no scalar form, for messages.
REASONS: dict[str, str] = {
    **dict.fromkeys(("sort", "top_k", "approx_top_k"), "sorting numbers (sort)"),
    **dict.fromkeys(("pure_callback", "io_callback"), "a call back into Python (pure_callback, io_callback)"),
    **dict.fromkeys(("debug_callback", "debug_print"), "output while running (jax.debug)"),
    **dict.fromkeys(
        (
            "random_bits",
            "random_seed",
            "random_wrap",
            "random_unwrap",
            "random_split",
            "random_fold_in",
            "threefry2x32",
        ),
        "drawing random numbers",
    ),
    **dict.fromkeys(
        ("qr", "eigh", "eig", "svd", "schur", "geqrf", "householder_product"),
        "a matrix decomposition other than LU and Cholesky",
    ),
    **dict.fromkeys(
        ("shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count", "clz"),
        "an operation on the bits of integers",
    ),
    "fft": "a Fourier transform",
    "conv_general_dilated": "a convolution",
}

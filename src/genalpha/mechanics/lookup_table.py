"""Tables of one or two inputs: interpolation that machine code, derivatives and warnings know of."""

from __future__ import annotations

import hashlib
import weakref
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.interpolate import CubicSpline

Kind = Literal["linear", "cubic"]
Outside = Literal["constant", "linear", "error"]
Ends = Literal["not-a-knot", "natural"]
# The function of a table has this name and a checksum. So its inputs can be found in a traced function.
PREFIX = "lookup_table_"
# All tables that exist, by the names of their functions.
known: weakref.WeakValueDictionary[str, LookupTable] = weakref.WeakValueDictionary()


class LookupTable:
    """A table of values over one input or over a grid of two, for use in the functions of a system.

    Parameters
    ----------
    x : (n,) increasing inputs; a pair of them, (n,) and (m,), for a table of two inputs.
    y : (n,) values, or (n, m) for two inputs.
    kind : "cubic" (default) is a spline with continuous second derivatives, "linear" joins the values by
        lines. With two inputs they are bicubic and bilinear.
    outside : what holds outside of the inputs: "constant" (default) the value at the nearest end, "linear"
        the tangent there, "error" nothing: a run that gets there stops.
    ends : "not-a-knot" (default) or "natural", the ends of cubic splines, as in ``scipy.interpolate``.
    name : for messages.

    It is called with numbers or arrays, and works in machine code and under JAX transforms. After a run whose
    rows have left a table, a warning tells its name, the inputs and the first time. Rows that were not kept
    (``save``, ``t_eval``) are not examined, nor are runs under a JAX transform and tables within ``lax.cond``
    and loops.

    >>> import genalpha as ga
    >>> pump = ga.LookupTable([0.0, 1.0, 2.0, 4.0], [0.0, 1.0, 4.0, 16.0], name="pump")
    >>> float(pump(3.0)), float(pump(5.0))
    (9.0, 16.0)
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        kind: Kind = "cubic",
        outside: Outside = "constant",
        ends: Ends = "not-a-knot",
        name: str = "",
    ) -> None:
        self.name, self.kind, self.outside, self.ends = name, kind, outside, ends
        for key, allowed in (("kind", Kind), ("outside", Outside), ("ends", Ends)):
            if getattr(self, key) not in get_args(allowed):
                one_of = ", ".join(get_args(allowed))
                raise ValueError(f"{key} of {self} must be one of {one_of}; got {getattr(self, key)!r}")
        pair = isinstance(x, tuple | list) and len(x) == 2 and all(np.ndim(one) == 1 for one in x)
        self.axes = tuple(
            self._axis(one, f"x[{i}]" if pair else "x") for i, one in enumerate(x if pair else [x])
        )
        self.values, shape = self._numbers(y, "y"), tuple(map(len, self.axes))
        if self.values.shape != shape:
            raise ValueError(f"y of {self} must have shape {shape} to fit to x, got {self.values.shape}")
        self._coefficients = _coefficients(self.axes, self.values, kind, ends)
        arrays = b"".join(one.tobytes() for one in (*self.axes, self.values))
        content = repr((name, kind, outside, ends, shape)).encode() + arrays
        self._label = PREFIX + hashlib.sha256(content).hexdigest()[:16]
        evaluate = lambda *inputs: self._evaluated(inputs)
        evaluate.__name__ = self._label
        self._look = jax.jit(evaluate)
        known[self._label] = self

    def __reduce__(self) -> tuple[Any, ...]:
        x = self.axes if len(self.axes) == 2 else self.axes[0]
        return LookupTable, (x, self.values, self.kind, self.outside, self.ends, self.name)

    def __str__(self) -> str:
        return f"the table {self.name!r}" if self.name else "a table"

    def _numbers(self, given: Any, what: str) -> np.ndarray:
        try:
            found = np.array(given, dtype=float)  # a copy: compiled code contains these numbers
        except (TypeError, ValueError) as error:
            raise TypeError(f"{what} of {self} must be an array of numbers: {error}") from error
        if not np.isfinite(found).all():
            where = np.argwhere(~np.isfinite(found))[0].tolist()
            raise ValueError(f"{what} of {self} holds NaN or infinite values, the first at {where}")
        return found

    def _axis(self, given: Any, what: str) -> np.ndarray:
        found = self._numbers(given, what)
        if found.ndim != 1 or len(found) < 2:
            raise ValueError(f"{what} of {self} must list at least two inputs, got shape {found.shape}")
        wrong = np.flatnonzero(np.diff(found) <= 0)
        if wrong.size:
            i = wrong[0]
            raise ValueError(
                f"{what} of {self} must increase, but {what}[{i}] = {found[i]:g} and "
                f"{what}[{i + 1}] = {found[i + 1]:g}: sort the inputs, and remove those that occur twice"
            )
        return found

    def __call__(self, *inputs: Any) -> Array:
        """The value at one input, or at two for a table of two; each a number or an array."""
        if len(inputs) != len(self.axes):
            raise TypeError(f"{self} takes {len(self.axes)} inputs, got {len(inputs)}")
        return self._look(*jnp.broadcast_arrays(*(jnp.asarray(x, float) for x in inputs)))

    def _evaluated(self, inputs: tuple[Array, ...]) -> Array:
        # At an end of the table the derivative is that inside; jnp.clip would halve it.
        near = lambda x, low, high: jnp.where(x < low, low, jnp.where(x > high, high, x))
        inside = [near(x, axis[0], axis[-1]) for x, axis in zip(inputs, self.axes, strict=True)]
        if self.outside == "constant":
            return self._polynomial(*inside)
        beyond = [x - end for x, end in zip(inputs, inside, strict=True)]
        if self.outside == "linear":
            value, more = jax.jvp(self._polynomial, inside, beyond)
            return value + more
        left = sum(abs(d) for d in beyond)
        return jnp.where(left == 0, self._polynomial(*inside), jnp.nan)

    def _polynomial(self, *inputs: Array) -> Array:
        """The value of the piece that holds inputs within the table."""
        cell: Any = 0
        places = []
        for x, axis in zip(inputs, self.axes, strict=True):
            known = lax.stop_gradient(x)  # which piece holds x has no derivative
            i = jnp.clip(jnp.searchsorted(axis, known, side="right") - 1, 0, len(axis) - 2)
            cell = cell * (len(axis) - 1) + i
            places.append(x - jnp.asarray(axis)[i])

        def horner(coefficients: np.ndarray, left: list[Array]) -> Array:
            if not left:
                return jnp.asarray(coefficients)[cell]
            total = horner(coefficients[0], left[1:])
            for one in coefficients[1:]:
                total = total * left[0] + horner(one, left[1:])
            return total

        return horner(self._coefficients, places)


def _coefficients(axes: tuple[np.ndarray, ...], values: np.ndarray, kind: str, ends: str) -> np.ndarray:
    """Coefficients of the pieces: an axis for the powers of each input, the highest first, and the cells."""

    def along(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:  # (powers, pieces, ...)
        if kind == "cubic":
            return CubicSpline(x, y, axis=axis, bc_type=ends).c
        y = np.moveaxis(y, axis, 0)
        width = np.diff(x).reshape(-1, *[1] * (y.ndim - 1))
        return np.stack([np.diff(y, axis=0) / width, y[:-1]])

    if len(axes) == 1:
        return along(axes[0], values, 0)
    both = along(axes[1], along(axes[0], values, 0), -1)  # (powers, cells) of the second, then of the first
    found = both.transpose(2, 0, 3, 1)
    return found.reshape(*found.shape[:2], -1)

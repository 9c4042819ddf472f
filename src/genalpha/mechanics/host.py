"""Functions that run in Python: written with NumPy, tables, or compiled libraries, which JAX cannot trace."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.errors import HostWarning, warn
from genalpha.mechanics.user_errors import NotTraceable, explained
from genalpha.numerics import differences
from genalpha.numerics.host import HOST, HostCall
from genalpha.numerics.tracing import is_traced

# The code of functions of which a warning has told.
_told: weakref.WeakSet[Any] = weakref.WeakSet()
# How often a function is called to see how long it takes, unless that is longer than so many seconds.
_EXAMPLES, _LONG = 3, 0.1


def host(
    function: Callable[..., Any],
    shape: int | Sequence[int],
    derivative: Callable[..., Any] | None = None,
    *,
    pattern: Sequence[Any] | None = None,
    scale: float = 1.0,
    smooth: bool = False,
    name: str | None = None,
) -> HostFunction:
    """A function that runs in Python, for use in the functions of a system.

    It may use NumPy, look up tables, or call compiled libraries. Everything around it stays compiled. It must
    be a pure function: the same arguments give the same result.

    Parameters
    ----------
    function : callable (*arguments) -> array of this ``shape``. The arguments are NumPy arrays, numbers, or
        trees of them.
    shape : shape of its result: () for a number, n or (n,) for a vector.
    derivative : callable (*arguments) -> tuple with one entry per argument: the derivatives, (*shape,
        *shape of the argument); 0 if they are zero; None for differences. Entries at the end may be missing.
        They are checked once against differences.
    pattern : tuple with one entry per argument: a boolean array like the derivative, which says where it may
        differ from zero, or None. Differences then need fewer calls, and matrices have fewer entries.
    scale : differences take steps by the larger of this number and the argument.
    smooth : whether the function has no kinks. Differences then take four points and wider steps: their error
        is about 1e-12, else 1e-10. A constraint should be smooth.
    name : what errors call the function, default its ``__name__``.

    Example
    -------
    A spring with a measured characteristic:

    >>> import numpy as np, jax.numpy as jnp, genalpha as ga
    >>> length, tension = np.array([-1.0, 0.0, 1.0]), np.array([-3.0, 0.0, 2.0])
    >>> spring = ga.host(lambda x: np.interp(x, length, tension), ())
    >>> system = ga.System(jnp.eye(1), lambda t, q, v: -jnp.array([spring(q[0])]))
    >>> round(float(ga.solve(system, (0.0, 1.0), [0.5], [0.0], h=0.01).q[-1, 0]), 3)  # 0.5 cos(√2 t)
    0.078
    """
    return HostFunction(function, _shape(shape), derivative, pattern, _positive(scale), bool(smooth), name)


class HostFunction:
    """What `ga.host` returns: a function of arrays, traced or not."""

    def __init__(
        self,
        function: Callable[..., Any],
        shape: tuple[int, ...],
        derivative: Callable[..., Any] | None = None,
        pattern: Sequence[Any] | None = None,
        scale: float = 1.0,
        smooth: bool = False,
        name: str | None = None,
    ) -> None:
        for what, given in (("function", function), ("derivative", derivative)):
            if not callable(given) and not (given is None and what == "derivative"):
                raise TypeError(f"the {what} of ga.host must be callable, got {type(given).__name__}")
        self.function, self.shape, self.derivative = function, shape, derivative
        self.pattern, self.scale, self.smooth = pattern, scale, smooth
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self._calls: dict[Any, HostCall] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.function, self.shape, self.derivative, self.pattern, self.scale, self.smooth)
        return HostFunction, (*parts, self.name)

    def __call__(self, *arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        arrays = [_array(x) for x in leaves]
        kinds = tuple((x.shape, x.dtype) for x in arrays)
        key = (structure, kinds)
        if key not in self._calls:
            inputs = [jax.ShapeDtypeStruct(*kind) for kind in kinds]
            self._calls[key] = _Derivatives(self, structure, inputs).call(())
        return HOST.bind(*arrays, call=self._calls[key])


def _array(x: Any) -> Any:
    """An array of doubles or integers."""
    if not is_traced(x):
        x = np.asarray(x)
    return x if x.dtype == float or x.dtype.kind in "biu" else x.astype(float)


def _shape(shape: Any) -> tuple[int, ...]:
    try:
        return (operator.index(shape),) if np.ndim(shape) == 0 else tuple(operator.index(n) for n in shape)
    except TypeError as error:
        raise TypeError(f"the shape of ga.host must be a number or a tuple of them, got {shape!r}") from error


def _positive(scale: Any) -> float:
    if not (isinstance(scale, int | float | np.number) and 0 < scale < math.inf):
        raise ValueError(f"the scale of ga.host must be a positive number, got {scale!r}")
    return float(scale)


class _Derivatives:
    """A function of arrays like ``inputs``, the leaves of its arguments, and its derivatives of any order."""

    def __init__(self, of: HostFunction, structure: Any, inputs: Sequence[jax.ShapeDtypeStruct]) -> None:
        self.of, self.structure, self.inputs = of, structure, inputs
        arguments = jax.tree.unflatten(structure, range(len(inputs)))
        # The argument that an array is, for those that are arrays and not trees of them.
        self.argument = {leaf: a for a, leaf in enumerate(arguments) if isinstance(leaf, int)}
        self._patterns = {k: found for k in range(len(inputs)) if (found := self._pattern(k)) is not None}
        self._last: tuple[bytes, list[Any]] = (b"", [])
        self._unchecked = set(self.argument)

    def _named(self, k: int) -> str:
        number = self.argument.get(k)
        return f"array {k} in the arguments" if number is None else f"argument {number}"

    def _pattern(self, k: int) -> np.ndarray | None:
        """Where the derivative with respect to array k may differ from zero (count, size of the array)."""
        given, number = self.of.pattern, self.argument.get(k)
        if given is None or number is None or number >= len(given) or given[number] is None:
            return None
        found, wanted = np.asarray(given[number], dtype=bool), (*self.of.shape, *self.inputs[k].shape)
        if found.shape != wanted:
            raise ValueError(
                f"the pattern of {self.of.name} for {self._named(k)} must have shape {wanted}, got "
                f"{found.shape}"
            )
        return found.reshape(math.prod(self.of.shape), -1)

    def call(self, path: tuple[int, ...]) -> HostCall:
        """The derivative with respect to the arrays ``path``, one after the other."""
        of = self.of
        shape = (*of.shape, *(n for k in path for n in self.inputs[k].shape))
        marks = "'" * len(path)
        compute = lambda *arrays: self._at(path, arrays, wide=of.smooth or len(path) > 1)
        return HostCall(
            f"{of.name}{marks}",
            self.inputs,
            shape,
            compute,
            lambda k: self.call((*path, k)),
            self._zeros(path),
        )

    def _zeros(self, path: tuple[int, ...]) -> np.ndarray | None:
        if not any(k in self._patterns for k in path):
            return None
        rows = math.prod(self.of.shape)
        nonzero = np.ones((rows,), bool)
        for k in path:
            size = math.prod(self.inputs[k].shape)
            of_k = self._patterns.get(k, np.ones((rows, size), bool))
            nonzero = nonzero[..., None] & of_k.reshape(rows, *[1] * (nonzero.ndim - 1), size)
        return ~nonzero

    def _value(self, arrays: Sequence[Any]) -> np.ndarray:
        found = self.of.function(*jax.tree.unflatten(self.structure, arrays))
        found = np.asarray(found, dtype=float)
        if found.shape != self.of.shape:
            raise ValueError(f"{self.of.name} must return shape {self.of.shape}, got {found.shape}")
        return found

    def _at(self, path: tuple[int, ...], arrays: Sequence[Any], wide: bool) -> np.ndarray:
        """The derivative. With ``wide`` steps differences have four points."""
        if not path:
            return self._value(arrays)
        *before, k = path
        if not before and self.of.derivative is not None:
            given = self._given(k, arrays)
            if given is not None:
                return given
        x = np.asarray(arrays[k], dtype=float)

        def moved(flat: np.ndarray) -> np.ndarray:
            there = _copies([*arrays[:k], flat.reshape(x.shape), *arrays[k + 1 :]])
            return self._at(tuple(before), there, wide).reshape(math.prod(self.of.shape), -1)

        depth = len(path) - (self.of.derivative is not None and len(path) > 1)
        step = differences.wide_step(depth) if wide else differences.STEP
        pattern = self._patterns.get(k)
        groups = differences.one_by_one(x.size) if pattern is None else differences.grouped(pattern)
        found = differences.jacobian(moved, x.reshape(-1), step, wide, self.of.scale, groups)
        if pattern is not None:
            found = np.where(pattern[:, None, :], found, 0.0)
        shape = (*self.of.shape, *(n for j in path for n in self.inputs[j].shape))
        return found.reshape(shape)

    # --- derivatives of the user ------------------------------------------------------------------

    def _given(self, k: int, arrays: Sequence[Any]) -> np.ndarray | None:
        """The derivative with respect to array k as the user gives it; None for differences."""
        number, of = self.argument.get(k), self.of
        if number is None:
            return None
        point = b"".join(np.asarray(x).tobytes() for x in arrays)
        last, found = self._last
        if last != point:
            assert of.derivative is not None
            given = of.derivative(*jax.tree.unflatten(self.structure, _copies(arrays)))
            if not isinstance(given, tuple | list) or len(given) > len(self.structure.children()):
                raise TypeError(
                    f"the derivative of {of.name} must be a tuple with one entry per argument, "
                    f"got {type(given).__name__}"
                )
            found = list(given)
            self._last = (point, found)
        if number >= len(found) or found[number] is None:
            return None
        result, wanted = np.asarray(found[number], dtype=float), (*of.shape, *self.inputs[k].shape)
        if result.shape == () and result == 0:
            result = np.zeros(wanted)
        if result.shape != wanted:
            raise ValueError(
                f"the derivative of {of.name} with respect to {self._named(k)} must have shape {wanted}, got "
                f"{result.shape}"
            )
        if k in self._unchecked:
            self._check(k, arrays, result)
        return result

    def _check(self, k: int, arrays: Sequence[Any], given: np.ndarray) -> None:
        """Compare a derivative with differences, once."""
        x = np.asarray(arrays[k], dtype=float)

        def moved(flat: np.ndarray) -> np.ndarray:
            return self._value(_copies([*arrays[:k], flat.reshape(x.shape), *arrays[k + 1 :]])).reshape(-1)

        flat = given.reshape(math.prod(self.of.shape), -1)
        with contextlib.suppress(FloatingPointError):  # the next call is checked then
            wrong = differences.wrong_entry(flat, moved, x.reshape(-1), self.of.scale)
            if wrong is not None:
                row, column = wrong.at
                raise ValueError(
                    f"the derivative of {self.of.name} with respect to {self._named(k)} is wrong in row "
                    f"{row}, column {column}: it is {wrong.given:.6g}, but differences give "
                    f"{wrong.found:.6g}. Correct it, or return None in its place for differences"
                )
            self._unchecked.discard(k)


def _copies(arrays: Sequence[Any]) -> list[Any]:
    """Arrays that the function may change."""
    return [np.array(x)[()] for x in arrays]


# --- functions that turn out not to be traceable ----------------------------------------------------------


def automatic(
    name: str, function: Callable[..., Any], inputs: Sequence[Any], example: Any, reason: NotTraceable
) -> HostFunction:
    """A function of a system that JAX cannot trace for this reason, as a function that runs in Python.

    The shape of its result is found by a call with the numbers ``example``, or with any numbers like
    ``inputs``. Warns once.
    """
    rng = np.random.default_rng(0)
    point = jax.tree.map(lambda x: _number_like(x, rng), inputs if example is None else example)
    elapsed = math.inf
    try:
        with jax.ensure_compile_time_eval():  # operations of JAX in it are not traced
            for _ in range(_EXAMPLES):
                begun = time.perf_counter()
                found = np.asarray(function(*jax.tree.map(lambda x: np.array(x)[()], point)), dtype=float)
                elapsed = min(elapsed, time.perf_counter() - begun)
                if elapsed > _LONG:
                    break
    except Exception as error:
        better = explained(name, error)
        if better is not None:
            raise better from error
        error.add_note(f"{reason}. A call in Python, with numbers, has failed too.")
        raise
    code = _code(function)
    if code not in _told:
        _told.add(code)
        warn(
            f"{reason}. Until then {name} runs in Python. A call takes about {1e6 * elapsed:.2g} µs, in "
            "compiled code less than 1 µs. Derivatives are differences, which call it often. To choose this "
            "without a warning, or to give derivatives, write ga.host(function, shape, derivative)",
            HostWarning,
        )
    forces = name in ("force", "reaction")
    shape = np.shape(inputs[2]) if forces and example is None else found.shape  # that of v
    return HostFunction(function, shape, smooth=not forces, name=name)


def _code(function: Any) -> Any:
    """What a function has in common with its copies, such as those that another call of a factory returns."""
    while isinstance(function, functools.partial):
        function = function.func
    called = type(function).__call__
    return getattr(function, "__code__", None) or getattr(called, "__code__", type(function))


def _number_like(x: Any, rng: np.random.Generator) -> np.ndarray:
    """The value of an array, or other numbers of its shape and type if it is traced."""
    if not is_traced(x):
        return np.asarray(x)
    return np.asarray(rng.uniform(0.1, 0.9, jnp.shape(x))).astype(x.dtype)

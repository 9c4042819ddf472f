"""Calls of Python functions from machine code and from XLA: the host.

A `HostCall` is a function of arrays that JAX does not look into. For JAX it is the primitive `HOST`. The
reader of `compiler` makes one node of it, and machine code calls it by a pointer. XLA calls it by
``jax.pure_callback``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from genalpha.numerics.tracing import under_transform

_POINTER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_NOTE = "This happened in {name}, which runs in Python, called with "
_numbers = itertools.count()


class _Thread(threading.local):
    """What calls in this thread have left: an exception, and whether exceptions become NaN."""

    pending: BaseException | None = None
    lenient = False


_thread = _Thread()
# Exceptions in calls by XLA, which has threads of its own, and whether somebody will raise them.
_by_xla: list[BaseException] = []
_watched: list[bool] = []


class HostCall:
    """``compute(*arrays)`` of arrays like ``inputs``, which returns an array of this shape.

    ``partial(k)`` is the call for the derivative with respect to array k; the shape of that array follows
    after ``shape``. Entries that are always zero are marked in ``zeros`` (count,). Calls are compared by
    identity.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[jax.ShapeDtypeStruct],
        shape: tuple[int, ...],
        compute: Callable[..., Any],
        partial: Callable[[int], HostCall],
        zeros: np.ndarray | None = None,
    ) -> None:
        self.name, self.inputs, self.shape = name, tuple(inputs), shape
        self.compute, self.partial = compute, functools.cache(partial)
        self.count = math.prod(shape)
        self.zeros = np.zeros(self.count, bool) if zeros is None else zeros.reshape(-1)
        ends = itertools.accumulate((math.prod(x.shape) for x in inputs), initial=0)
        self._cuts = [slice(*cut) for cut in itertools.pairwise(ends)]
        self._number = next(_numbers)

    def __repr__(self) -> str:
        return f"{self.name}#{self._number}"  # programs are recognized by their text

    @property
    def size(self) -> int:
        """The number of entries of all inputs."""
        return self._cuts[-1].stop if self._cuts else 0

    def __call__(self, numbers: Any) -> np.ndarray:
        """The entries (count,) of the result, from those of all inputs (size,)."""
        flat = np.array(numbers, dtype=float)
        arrays = [
            flat[cut].reshape(x.shape).astype(x.dtype, copy=False)[()]
            for cut, x in zip(self._cuts, self.inputs, strict=True)
        ]
        # Operations of JAX in the function are not traced.
        plain = jax.ensure_compile_time_eval() if under_transform() else contextlib.nullcontext()
        try:
            with plain:
                found = np.asarray(self.compute(*arrays), dtype=float)
            if found.shape != self.shape:
                raise ValueError(f"{self.name} must return shape {self.shape}, got {found.shape}")
        except Exception as error:
            if _thread.lenient:
                return np.full(self.count, np.nan)
            if not from_host(error):
                error.add_note(_NOTE.format(name=self.name) + _shown(arrays))
            raise
        return found.reshape(-1)

    def of_arrays(self, *arrays: Any) -> np.ndarray:
        """The result (shape) from all inputs."""
        numbers = np.concatenate([np.zeros(0), *(np.asarray(x, dtype=float).reshape(-1) for x in arrays)])
        return self(numbers).reshape(self.shape)

    @functools.cached_property
    def pointer(self) -> Any:
        """A function pointer void (double *block): the results, and after them the inputs.

        An exception cannot pass through machine code. It is kept for `raise_pending`. Until then all results
        are NaN.
        """
        count, size = self.count, self.count + self.size
        kind = ctypes.c_double * size

        def called(address: int) -> None:
            block: np.ndarray = np.ndarray((size,), float, kind.from_address(address))  # type: ignore[arg-type]
            if _thread.pending is None:
                try:
                    block[:count] = self(block[count:])
                    return
                except BaseException as error:
                    _thread.pending = error
            block[:count] = np.nan

        return _POINTER(called)


def _shown(arrays: Sequence[Any]) -> str:
    with np.printoptions(precision=6, threshold=8):
        return ", ".join(str(x) for x in arrays)


def from_host(error: BaseException) -> bool:
    """Whether an exception comes from a host function of the user."""
    start = _NOTE.partition("{")[0]
    return any(
        note.startswith(start) and "runs in Python" in note for note in getattr(error, "__notes__", ())
    )


def raise_pending() -> None:
    """Raise the exception of a call by machine code in this thread, or by XLA, if there is one."""
    error, _thread.pending = _thread.pending, None
    if error is None and _by_xla:
        error = _by_xla[0]
        _by_xla.clear()
    if error is not None:
        raise error


@contextlib.contextmanager
def lenient() -> Iterator[None]:
    """In this context, values of calls that raise are NaN."""
    before, _thread.lenient = _thread.lenient, True
    try:
        yield
    finally:
        _thread.lenient = before


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Raise exceptions in calls by XLA at the latest at the end of this context, and as they are.

    XLA itself would make a text of them.
    """
    _watched.append(True)
    try:
        yield
        raise_pending()
    finally:
        _watched.pop()
        if not _watched:
            _by_xla.clear()


# --- JAX ------------------------------------------------------------------------------------------------

HOST = Primitive("genalpha_host")


def _changed(arrays: Any, changes: Any, *, call: HostCall) -> Any:
    """The rule of ``jvp``: derivatives are other calls."""
    total = jnp.zeros(call.shape)
    for k, change in enumerate(changes):
        if not isinstance(change, ad.Zero) and call.inputs[k].dtype == float:
            total += jnp.tensordot(HOST.bind(*arrays, call=call.partial(k)), change, axes=change.ndim)
    return HOST.bind(*arrays, call=call), total


def _lowered(context: Any, *arrays: Any, call: HostCall) -> Any:
    def called(*arrays: Any) -> np.ndarray:
        try:
            return call.of_arrays(*arrays)
        except BaseException as error:
            if not _watched:
                raise
            _by_xla.append(error)
            return np.full(call.shape, np.nan)

    shape = jax.ShapeDtypeStruct(call.shape, float)
    traced = lambda *arrays: jax.pure_callback(called, shape, *arrays, vmap_method="sequential")
    return mlir.lower_fun(traced, multiple_results=False)(context, *arrays)


def _batched(arrays: Any, axes: Any, *, call: HostCall) -> Any:
    """The rule of ``vmap``: one call after the other."""
    moved = [x if a is None else jnp.moveaxis(x, a, 0) for x, a in zip(arrays, axes, strict=True)]

    def one(rows: Any) -> Any:
        left = iter(rows)
        return HOST.bind(
            *(x if a is None else next(left) for x, a in zip(arrays, axes, strict=True)), call=call
        )

    return jax.lax.map(one, tuple(x for x, a in zip(moved, axes, strict=True) if a is not None)), 0


ad.primitive_jvps[HOST] = _changed
HOST.def_impl(lambda *arrays, call: jnp.asarray(call.of_arrays(*arrays)))
HOST.def_abstract_eval(lambda *arrays, call: core.ShapedArray(call.shape, np.dtype(float)))
mlir.register_lowering(HOST, _lowered)
batching.primitive_batchers[HOST] = _batched

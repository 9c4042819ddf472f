"""Functions of NumPy arrays that compiled JAX programs call.

XLA calls a handler with the addresses of all arrays (its foreign function interface, `xla/ffi/api/c_api.h` of
jaxlib). The handler is a Python function, so it needs no compiler. On other devices than the CPU, and if the
interface cannot be used, ``jax.pure_callback`` does the same more slowly.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import functools
import itertools
import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

import jax
import numpy as np

from genalpha.compiler import machine

# ``function(*inputs)`` returns a list of arrays. All arrays hold doubles.
Function = Callable[..., Sequence[np.ndarray]]
TARGET = "genalpha_host"
_EXECUTE, _METADATA, _INTERNAL = 3, 1, 13  # a stage, an extension, an error code of the interface

# The functions that compiled programs call, by number, and how many programs call each of them. A function
# stays for a while after its last program is gone, because calls of it may not have begun yet: JAX runs
# programs in the background, at most 32 of them.
_functions: dict[int, Function] = {}
_numbers: dict[Function, int] = {}
_users: dict[int, int] = {}
_next, _lock = itertools.count(), threading.Lock()
_gone: collections.deque[int] = collections.deque()
LATE = 64


class _Start(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p))


class _Buffers(ctypes.Structure):
    _fields_ = (("start", _Start), ("count", c_int64), ("types", c_void_p), ("items", POINTER(c_void_p)))


class _Attributes(ctypes.Structure):
    _fields_ = (
        *(("start", _Start), ("count", c_int64), ("types", c_void_p), ("names", c_void_p)),
        ("items", POINTER(c_void_p)),
    )


class _Buffer(ctypes.Structure):
    _fields_ = (
        *(("start", _Start), ("dtype", c_int), ("data", c_void_p), ("rank", c_int64)),
        ("shape", POINTER(c_int64)),
    )


class _Number(ctypes.Structure):
    _fields_ = (("dtype", c_int), ("value", POINTER(c_int64)))


class _Version(ctypes.Structure):
    _fields_ = (("start", _Start), ("major", c_int), ("minor", c_int))


class _Failure(ctypes.Structure):
    _fields_ = (("start", _Start), ("message", ctypes.c_char_p), ("code", c_int))


class _Interface(ctypes.Structure):
    _fields_ = (
        *(("start", _Start), ("version", _Version), ("internal", c_void_p)),
        ("fail", ctypes.CFUNCTYPE(c_void_p, POINTER(_Failure))),
    )


class _Frame(ctypes.Structure):
    _fields_ = (
        *(("start", _Start), ("interface", POINTER(_Interface)), ("context", c_void_p), ("stage", c_int)),
        *(("inputs", _Buffers), ("outputs", _Buffers), ("attributes", _Attributes)),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("version", _Version), ("traits", c_uint32))


class _Extension(ctypes.Structure):
    _fields_ = (
        *(("size", c_size_t), ("kind", c_int), ("next", c_void_p)),
        ("metadata", POINTER(_Metadata)),
    )


def _array(address: int) -> np.ndarray:
    """The array behind a buffer, without a copy."""
    buffer = _Buffer.from_address(address)
    shape = tuple(buffer.shape[: buffer.rank]) if buffer.rank else ()
    count = math.prod(shape)
    if not count:
        return np.zeros(shape)
    return np.ndarray(shape, float, (ctypes.c_double * count).from_address(buffer.data))


def _handle(frame: Any) -> int | None:
    """Called by XLA. Returns the address of an error, or None."""
    call = frame.contents
    if call.start.extension:
        extension = ctypes.cast(call.start.extension, POINTER(_Extension)).contents
        if extension.kind == _METADATA:  # XLA asks for which version the handler was made
            own, theirs = extension.metadata.contents.version, call.interface.contents.version
            own.major, own.minor = theirs.major, theirs.minor
            extension.metadata.contents.traits = 0
            return None
    if call.stage != _EXECUTE:
        return None
    try:
        number = ctypes.cast(call.attributes.items[0], POINTER(_Number)).contents.value[0]
        inputs = [_array(call.inputs.items[i]).copy() for i in range(call.inputs.count)]
        found = _functions[number](*inputs)
        for i, x in enumerate(found):
            _array(call.outputs.items[i])[...] = x
    except BaseException as error:
        text = f"{type(error).__name__}: {error}".encode()
        failure = _Failure(_Start(ctypes.sizeof(_Failure), None), text, _INTERNAL)
        return call.interface.contents.fail(ctypes.byref(failure))
    return None


_handler = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))(_handle)


# Calls the handler, unless the interpreter is about to end: programs that JAX still runs in the background
# would wait for its lock for ever. The state counts the calls that go on, and says whether the end has come.
_GATE = """\
@handler = internal global ptr null
@state = internal global ptr null
define void @gate_of(ptr %handler, ptr %state) nounwind {
  store ptr %handler, ptr @handler
  store ptr %state, ptr @state
  ret void
}
define ptr @gate(ptr %frame) nounwind {
  %state = load ptr, ptr @state
  %before = atomicrmw add ptr %state, i64 1 seq_cst
  %end.p = getelementptr i64, ptr %state, i64 1
  %end = load atomic i64, ptr %end.p seq_cst, align 8
  %closed = icmp ne i64 %end, 0
  br i1 %closed, label %done, label %call
call:
  %handler = load ptr, ptr @handler
  %error = call ptr %handler(ptr %frame)
  br label %done
done:
  %found = phi ptr [ null, %0 ], [ %error, %call ]
  %after = atomicrmw sub ptr %state, i64 1 seq_cst
  ret ptr %found
}
"""
_state = (c_int64 * 2)()


def _close() -> None:
    """Wait for calls of the handler, and let no others begin."""
    _state[1] = 1
    while _state[0]:
        time.sleep(1e-3)


@functools.cache
def _gate() -> Any:
    """The handler behind its gate."""
    library = machine.Library(_GATE, ["gate_of", "gate"])
    library.function("gate_of", c_void_p, c_void_p)(
        ctypes.cast(_handler, c_void_p).value, ctypes.addressof(_state)
    )
    atexit.register(_close)
    return library.function("gate", c_void_p, result=c_void_p)


@functools.cache
def _registered() -> bool:
    """Whether XLA knows the handler."""
    try:
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(_gate()), platform="cpu", api_version=1)
    except Exception:  # another version of the interface
        return False
    return True


class Use:
    """A program calls a function. The program keeps this object; the function is forgotten after it."""

    def __init__(self, function: Function) -> None:
        self.function = function
        with _lock:
            self.number = _numbers.setdefault(function, next(_next))
            _functions[self.number] = function
            _users[self.number] = _users.get(self.number, 0) + 1
            while len(_gone) > LATE:
                _forget(_gone.popleft())
        weakref.finalize(self, _gone.append, self.number).atexit = False


def _forget(number: int) -> None:
    """A program that called a function is gone."""
    _users[number] -= 1
    if not _users[number]:
        del _users[number], _numbers[_functions.pop(number)]


def by_handler(use: Use, shapes: Sequence[Any], *inputs: Any) -> Any:
    """The function of traced arrays, on the CPU."""
    if not _registered():
        return by_callback(use, shapes, *inputs)
    number = use.number
    return jax.ffi.ffi_call(TARGET, list(shapes))(*inputs, function=np.int64(number))


def by_callback(use: Use, shapes: Sequence[Any], *inputs: Any) -> Any:
    """The function of traced arrays, on any device."""

    def called(*inputs: Any) -> Any:
        found = use.function(*(np.asarray(x, dtype=float) for x in inputs))
        return [np.asarray(x, dtype=float).reshape(s.shape) for x, s in zip(found, shapes, strict=True)]

    return jax.pure_callback(called, list(shapes), *inputs)

"""Operations on arrays of doubles that machine code computes, with derivatives by machine code too.

Four primitives of JAX stand for the value, the value with a tape, the change of the value (linear in the
changes of the inputs), and the transpose of that. So ``jvp``, ``grad``, ``vmap`` and ``jit`` work in any
order. Derivatives of derivatives are those of the same function by XLA.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from genalpha.backends.transforms import host

Arrays = Sequence[Any]
Shape = tuple[int, ...]


class Operation(ABC):
    """A function of arrays of doubles. It is compared by identity.

    ``smooth`` says which outputs have derivatives; those of the others are zero.
    """

    smooth: tuple[bool, ...]

    @abstractmethod
    def shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        """The shapes of the outputs."""

    def tape_shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        """The shapes of what derivatives need from the value."""
        return []

    @abstractmethod
    def value(self, inputs: Arrays) -> list[np.ndarray]:
        """The outputs."""

    def taped(self, inputs: Arrays) -> list[np.ndarray]:
        """The outputs, and what derivatives need."""
        return self.value(inputs)

    @abstractmethod
    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        """The changes of the smooth outputs, from those of the inputs."""

    @abstractmethod
    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        """The derivatives of weights · smooth outputs with respect to the inputs."""

    @abstractmethod
    def by_xla(self, *inputs: Any) -> list[Any]:
        """The same function of arrays that JAX traces."""

    def members(
        self, kind: str, size: int, inputs: Arrays, own: Sequence[bool], more: Arrays
    ) -> list[np.ndarray]:
        """The same for the ``size`` members of a batch: "value", "tangent" or "cotangent", without a tape.

        Inputs that are their ``own`` have one more axis, the first, and so have the arrays ``more``.
        """
        found = [self.member(kind, i, inputs, own, more) for i in range(size)]
        return [np.stack(parts) for parts in zip(*found, strict=True)]

    def member(
        self, kind: str, i: int, inputs: Arrays, own: Sequence[bool], more: Arrays
    ) -> list[np.ndarray]:
        """The same for one member. Its tape is computed again."""
        one = [x[i] if yes else x for x, yes in zip(inputs, own, strict=True)]
        if kind == "value":
            return self.value(one)
        shapes = [np.shape(x) for x in one]
        tape = self.taped(one)[len(self.smooth) :] if self.tape_shapes(shapes) else []
        return getattr(self, kind)(one, tape, [x[i] for x in more])

    def __call__(self, *inputs: Any) -> list[Any]:
        return VALUE.bind(*map(_doubles, inputs), op=self, batch=None)


def _doubles(x: Any) -> Any:
    """An array of doubles, without a call of JAX where it can be helped: it compiles one for each shape."""
    if not isinstance(x, jax.core.Tracer):
        return np.asarray(x, dtype=float)
    return x if x.dtype == float and not x.weak_type else jnp.asarray(x, float)


def _zeros(shape: Shape) -> np.ndarray:
    """Zeros that take no memory in compiled programs, and need none to be made."""
    return np.broadcast_to(0.0, shape)


# What each primitive computes, as a function of (op, inputs, further arrays).
_COMPUTED = {
    "value": lambda op, count, arrays: op.value(arrays),
    "taped": lambda op, count, arrays: op.taped(arrays),
    "tangent": lambda op, count, arrays: op.tangent(arrays[:count], arrays[count:-count], arrays[-count:]),
    "cotangent": lambda op, count, arrays: op.cotangent(
        arrays[:count], arrays[count : -sum(op.smooth)], arrays[-sum(op.smooth) :]
    ),
}


def _shapes(kind: str, op: Operation, count: int, given: Sequence[Shape]) -> list[Shape]:
    """The shapes of what a primitive returns, from those of its arrays."""
    inputs = given[:count]
    out = op.shapes(inputs)
    if kind == "value":
        return out
    if kind == "taped":
        return [*out, *op.tape_shapes(inputs)]
    return [s for s, yes in zip(out, op.smooth, strict=True) if yes] if kind == "tangent" else list(inputs)


def _inputs(kind: str, op: Operation, arrays: int, tape: int) -> int:
    """How many of the arrays of a primitive are inputs of the operation."""
    if kind == "tangent":
        return (arrays - tape) // 2
    return arrays - tape - sum(op.smooth) if kind == "cotangent" else arrays


@dataclass(frozen=True)
class _Call:
    """A primitive applied to arrays of some shapes: a function of NumPy arrays.

    ``batch`` is None, or says which arrays have one more axis, the first, that counts the members of a batch.
    """

    kind: str
    op: Operation
    batch: tuple[bool, ...] | None
    tape: int

    def count(self, arrays: Sequence[Any]) -> int:
        return _inputs(self.kind, self.op, len(arrays), self.tape)

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        if self.batch is None:
            return _shapes(self.kind, self.op, self.count(given), given)
        members = next(s[0] for s, yes in zip(given, self.batch, strict=True) if yes)
        single = [s[1:] if yes else s for s, yes in zip(given, self.batch, strict=True)]
        return [(members, *s) for s in _shapes(self.kind, self.op, self.count(given), single)]

    def __call__(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        count = self.count(arrays)
        if self.batch is None:
            return _COMPUTED[self.kind](self.op, count, list(arrays))
        inputs, more = arrays[:count], arrays[count + self.tape :]
        size = next(len(x) for x, yes in zip(arrays, self.batch, strict=True) if yes)
        if not size:
            return [np.zeros(s) for s in self.shapes([x.shape for x in arrays])]
        wide = [
            x if yes else np.broadcast_to(x, (size, *np.shape(x)))
            for x, yes in zip(more, self.batch[count + self.tape :], strict=True)
        ]
        if any(self.batch[:count]):
            return self.op.members(self.kind, size, inputs, self.batch[:count], wide)
        kept = arrays[: count + self.tape]  # one run with several directions or weights: its tape serves all
        each = [_COMPUTED[self.kind](self.op, count, [*kept, *one]) for one in zip(*wide, strict=True)]
        return [np.stack(parts) for parts in zip(*each, strict=True)]


def _primitive(kind: str) -> Primitive:
    made = Primitive(f"genalpha_{kind}")
    made.multiple_results = True

    def call(op: Operation, batch: Any, tape: int) -> _Call:
        return _Call(kind, op, batch, tape)

    def run(*arrays: Any, op: Operation, batch: Any = None, tape: int = 0) -> Any:
        found = call(op, batch, tape)(*(np.asarray(x) for x in arrays))
        return [jax.device_put(x) for x in found]

    def abstract(*arrays: Any, op: Operation, batch: Any = None, tape: int = 0) -> Any:
        shapes = call(op, batch, tape).shapes([x.shape for x in arrays])
        return [core.ShapedArray(s, np.dtype(float)) for s in shapes]

    def lower(by: Any) -> Any:
        def rule(context: Any, *arrays: Any, op: Operation, batch: Any = None, tape: int = 0) -> Any:
            one = call(op, batch, tape)
            use = host.Use(one)
            context.module_context.add_keepalive(use)
            shapes = [jax.ShapeDtypeStruct(s, float) for s in one.shapes([x.shape for x in context.avals_in])]
            traced = lambda *arrays: by(use, shapes, *arrays)
            return mlir.lower_fun(traced, multiple_results=True)(context, *arrays)

        return rule

    made.def_impl(run)
    made.def_abstract_eval(abstract)
    mlir.register_lowering(made, lower(host.by_handler), platform="cpu")
    mlir.register_lowering(made, lower(host.by_callback))
    batching.primitive_batchers[made] = functools.partial(_batched, kind, made)
    return made


def _batched(
    kind: str, made: Primitive, arrays: Any, axes: Any, *, op: Operation, batch: Any = None, tape: int = 0
) -> Any:
    """The rule of ``vmap``. A batch of batches is one long batch.

    A batch keeps no tape: its derivatives compute the runs again. So the tape of a batch is a single one,
    which nothing reads.
    """
    size = next(x.shape[a] for x, a in zip(arrays, axes, strict=True) if a is not None)
    mapped = [a is not None for a in axes]
    moved = [jnp.moveaxis(x, a, 0) if yes else x for x, a, yes in zip(arrays, axes, mapped, strict=True)]
    flags, inner, wide = tuple(mapped), None, moved
    if batch is not None:
        pairs = list(zip(moved, mapped, batch, strict=True))
        inner = next(x.shape[int(yes)] for x, yes, has in pairs if has)
        wide = []
        for x, yes, has in pairs:
            rest = x.shape[int(yes) + int(has) :]
            x = x.reshape((size if yes else 1, inner if has else 1, *rest))
            wide.append(jnp.broadcast_to(x, (size, inner, *rest)).reshape((size * inner, *rest)))
        flags = (True,) * len(wide)
    found = (VALUE if kind == "taped" else made).bind(*wide, op=op, batch=flags, tape=tape)
    found = found if inner is None else [x.reshape((size, inner, *x.shape[1:])) for x in found]
    if kind != "taped":
        return found, [0] * len(found)
    single = [x.shape[1:] if yes else x.shape for x, yes in zip(wide, flags, strict=True)]
    none = [_zeros(s) for s in op.tape_shapes(single)]
    return [*found, *none], [*[0] * len(found), *[None] * len(none)]


VALUE, TAPED, TANGENT, COTANGENT = map(_primitive, ("value", "taped", "tangent", "cotangent"))


def _filled(changes: Sequence[Any], at: Sequence[Any]) -> list[Any]:
    """Changes as arrays; those that are always zero too."""
    return [_zeros(np.shape(x)) if type(dx) is ad.Zero else dx for dx, x in zip(changes, at, strict=True)]


def _is_zero(changes: Sequence[Any]) -> bool:
    return all(type(dx) is ad.Zero for dx in changes)


def _zero(x: Any) -> Any:
    return ad.Zero(jax.typeof(x).to_tangent_aval())


def _value_rule(inputs: Any, changes: Any, *, op: Operation, batch: Any = None, tape: int = 0) -> Any:
    shapes = [np.shape(x) for x in inputs]
    length = len(op.tape_shapes(shapes)) if batch is None else 0
    found = (TAPED if length else VALUE).bind(*inputs, op=op, batch=batch)
    values, kept = found[: len(op.smooth)], found[len(op.smooth) :]
    flags = None if batch is None else (*batch, *batch)
    moved = iter(TANGENT.bind(*inputs, *kept, *_filled(changes, inputs), op=op, batch=flags, tape=length))
    return values, [next(moved) if yes else _zero(x) for x, yes in zip(values, op.smooth, strict=True)]


def _taped_rule(inputs: Any, changes: Any, *, op: Operation, batch: Any = None, tape: int = 0) -> Any:
    """The tape counts as constant: derivatives of derivatives do not use it."""
    found = TAPED.bind(*inputs, op=op, batch=batch)
    _, moved = _value_rule(inputs, changes, op=op, batch=batch)
    return found, [*moved, *map(_zero, found[len(moved) :])]


def _mapped(function: Any, batch: Any) -> Any:
    """A function of single arrays, applied to the members of a batch."""
    return function if batch is None else jax.vmap(function, in_axes=[0 if yes else None for yes in batch])


def _smooth(op: Operation, outputs: Sequence[Any]) -> list[Any]:
    return [x for x, yes in zip(outputs, op.smooth, strict=True) if yes]


def _tangent_rule(arrays: Any, changes: Any, *, op: Operation, batch: Any = None, tape: int = 0) -> Any:
    count = (len(arrays) - tape) // 2
    bound = {"op": op, "batch": batch, "tape": tape}
    found, directions = TANGENT.bind(*arrays, **bound), arrays[-count:]
    if _is_zero(changes[:count]):  # it is linear in the last arrays
        turned = _filled(changes[-count:], directions)
        return found, TANGENT.bind(*arrays[:-count], *turned, **bound)

    def one(*x: Any) -> Any:
        inputs, along = x[:count], x[count:]
        return jax.jvp(lambda *a: _smooth(op, op.by_xla(*a)), inputs, along)[1]

    flags = None if batch is None else (*batch[:count], *batch[-count:])
    primals = [*arrays[:count], *directions]
    moved = _filled([*changes[:count], *changes[-count:]], primals)
    return found, jax.jvp(_mapped(one, flags), tuple(primals), tuple(moved))[1]


def _cotangent_rule(arrays: Any, changes: Any, *, op: Operation, batch: Any = None, tape: int = 0) -> Any:
    outs = sum(op.smooth)
    count = len(arrays) - tape - outs
    bound = {"op": op, "batch": batch, "tape": tape}
    found, weights = COTANGENT.bind(*arrays, **bound), arrays[-outs:]
    if _is_zero(changes[:count]):
        return found, COTANGENT.bind(*arrays[:-outs], *_filled(changes[-outs:], weights), **bound)

    def one(*x: Any) -> Any:
        pull = jax.vjp(lambda *a: _smooth(op, op.by_xla(*a)), *x[:count])[1]
        return list(pull(list(x[count:])))

    flags = None if batch is None else (*batch[:count], *batch[-outs:])
    primals = [*arrays[:count], *weights]
    moved = _filled([*changes[:count], *changes[-outs:]], primals)
    return found, jax.jvp(_mapped(one, flags), tuple(primals), tuple(moved))[1]


def _tangent_transposed(weights: Any, *arrays: Any, op: Operation, batch: Any = None, tape: int = 0) -> Any:
    """From derivatives with respect to the changes of outputs to those with respect to changes of inputs."""
    count = (len(arrays) - tape) // 2
    known, unknown = arrays[:-count], arrays[-count:]
    given = [x.aval.shape if ad.is_undefined_primal(x) else np.shape(x) for x in arrays]
    shapes = _Call("tangent", op, batch, tape).shapes(given)
    filled = [_zeros(s) if type(w) is ad.Zero else w for w, s in zip(weights, shapes, strict=True)]
    flags = None if batch is None else (*batch[:-count], *(True,) * len(filled))
    found = COTANGENT.bind(*known, *filled, op=op, batch=flags, tape=tape)
    own = (True,) * count if batch is None else batch[-count:]
    summed = [x if yes else jnp.sum(x, axis=0) for x, yes in zip(found, own, strict=True)]
    wanted = [x if ad.is_undefined_primal(u) else None for x, u in zip(summed, unknown, strict=True)]
    return [None] * len(known) + wanted


def _cotangent_transposed(changes: Any, *arrays: Any, op: Operation, batch: Any = None, tape: int = 0) -> Any:
    """The transpose of the transpose."""
    outs = sum(op.smooth)
    known, count = arrays[:-outs], len(arrays) - tape - outs
    given = [x.aval.shape if ad.is_undefined_primal(x) else np.shape(x) for x in arrays]
    shapes = _Call("cotangent", op, batch, tape).shapes(given)
    filled = [_zeros(s) if type(w) is ad.Zero else w for w, s in zip(changes, shapes, strict=True)]
    flags = None if batch is None else (*batch[:-outs], *(True,) * count)
    found = TANGENT.bind(*known, *filled, op=op, batch=flags, tape=tape)
    own = (True,) * outs if batch is None else batch[-outs:]
    summed = [x if yes else jnp.sum(x, axis=0) for x, yes in zip(found, own, strict=True)]
    wanted = [x if ad.is_undefined_primal(u) else None for x, u in zip(summed, arrays[-outs:], strict=True)]
    return [None] * len(known) + wanted


ad.primitive_jvps[VALUE] = _value_rule
ad.primitive_jvps[TAPED] = _taped_rule
ad.primitive_jvps[TANGENT] = _tangent_rule
ad.primitive_jvps[COTANGENT] = _cotangent_rule
ad.primitive_transposes[TANGENT] = _tangent_transposed
ad.primitive_transposes[COTANGENT] = _cotangent_transposed

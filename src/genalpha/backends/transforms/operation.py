"""Operations on arrays of doubles that machine code computes, with derivatives by machine code too.

Four primitives of JAX stand for the value, the value with a tape, the change of the value (linear in the
changes of the inputs), and the transpose of that. So ``jvp``, ``grad``, ``vmap`` and ``jit`` work in any
order. Derivatives of derivatives are those of the same function by XLA.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, partial_eval

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

    def members(self, asked: Asked, size: int, inputs: Arrays, more: Arrays) -> list[np.ndarray]:
        """The wanted results for the ``size`` members of a batch, without a tape.

        Inputs that are their own have one more axis, the first, and so have the arrays ``more``: directions
        or weights, with zeros for those that are not given.
        """
        found = [self.member(asked, i, inputs, more) for i in range(size)]
        return [np.stack(parts) for parts in zip(*found, strict=True)]

    def member(self, asked: Asked, i: int, inputs: Arrays, more: Arrays) -> list[np.ndarray]:
        """The same for one member. Its tape is computed again."""
        one = [x[i] if yes else x for x, yes in zip(inputs, asked.own(len(inputs)), strict=True)]
        if asked.kind == "value":
            return asked.chosen(self.value(one))
        shapes = [np.shape(x) for x in one]
        tape = self.taped(one)[len(self.smooth) :] if self.tape_shapes(shapes) else []
        return asked.chosen(getattr(self, asked.kind)(one, tape, [x[i] for x in more]))

    def several(self, asked: Asked, inputs: Arrays, tape: Arrays, more: Arrays) -> list[np.ndarray]:
        """The wanted results for several directions or weights ``more``, with one set of inputs."""
        each = [asked.alone(inputs, tape, one) for one in zip(*more, strict=True)]  # the tape serves all
        return [np.stack(parts) for parts in zip(*each, strict=True)]

    def __call__(self, *inputs: Any) -> list[Any]:
        return VALUE.bind(*map(_doubles, inputs), asked=Asked("value", self, wanted=_all(self.smooth)))


def _doubles(x: Any) -> Any:
    """An array of doubles, without a call of JAX where it can be helped: it compiles one for each shape."""
    if not isinstance(x, jax.core.Tracer):
        return np.asarray(x, dtype=float)
    return x if x.dtype == float and not x.weak_type else jnp.asarray(x, float)


def _zeros(shape: Shape) -> np.ndarray:
    """Zeros that take no memory in compiled programs, and need none to be made."""
    return np.broadcast_to(0.0, shape)


def _all(items: Sequence[Any]) -> tuple[bool, ...]:
    return (True,) * len(items)


@dataclass(frozen=True)
class Asked:
    """A primitive applied to arrays: a function of NumPy arrays.

    ``kind`` is "value", "taped", "tangent" or "cotangent". The arrays are the inputs of the operation,
    ``tape`` arrays of a tape, and directions (one for each input) or weights (one for each smooth output),
    without those that are not ``given``, which are zero. Only results that are ``wanted`` are returned.
    ``batch`` is None, or says which arrays have one more axis, the first, that counts the members of a batch.
    """

    kind: str
    op: Operation
    batch: tuple[bool, ...] | None = None
    tape: int = 0
    given: tuple[bool, ...] = ()
    wanted: tuple[bool, ...] = ()

    def count(self, arrays: Sequence[Any]) -> int:
        """How many of the arrays are inputs of the operation."""
        return len(arrays) - self.tape - sum(self.given)

    def own(self, count: int) -> tuple[bool, ...]:
        """Which of the inputs differ between the members of a batch."""
        return self.batch[:count] if self.batch is not None else (False,) * count

    def chosen(self, results: Sequence[Any]) -> list[Any]:
        """Those that are wanted of all results."""
        return [x for x, yes in zip(results, self.wanted, strict=True) if yes]

    def _along(self, inputs: Sequence[Shape]) -> list[Shape]:
        """The shapes of all directions or weights of one member."""
        if self.kind == "cotangent":
            return [s for s, yes in zip(self.op.shapes(inputs), self.op.smooth, strict=True) if yes]
        return list(inputs) if self.kind == "tangent" else []

    def filled(self, inputs: Sequence[Shape], given: Sequence[Any], lead: Shape = ()) -> list[Any]:
        """All directions or weights, from those that are given."""
        some = iter(given)
        return [
            next(some) if yes else _zeros((*lead, *s))
            for s, yes in zip(self._along(inputs), self.given, strict=True)
        ]

    def single(self, given: Sequence[Shape]) -> list[Shape]:
        """The shapes of arrays of one member."""
        flags = self.batch or (False,) * len(given)
        return [tuple(s[1:]) if yes else tuple(s) for s, yes in zip(given, flags, strict=True)]

    def size(self, given: Sequence[Shape]) -> int:
        """The number of members."""
        assert self.batch is not None
        return next(s[0] for s, yes in zip(given, self.batch, strict=True) if yes)

    def shapes(self, given: Sequence[Shape]) -> list[Shape]:
        """The shapes of the wanted results, from those of the arrays."""
        lead = () if self.batch is None else (self.size(given),)
        return [(*lead, *s) for s in self.shapes_of(self.single(given)[: self.count(given)])]

    def shapes_of(self, inputs: Sequence[Shape]) -> list[Shape]:
        """The shapes of the wanted results of one member."""
        out = list(inputs) if self.kind == "cotangent" else self.op.shapes(inputs)
        if self.kind == "taped":
            out = [*out, *self.op.tape_shapes(inputs)]
        elif self.kind == "tangent":
            out = _smooth(self.op, out)
        return self.chosen(out)

    def __call__(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        shapes = [x.shape for x in arrays]
        count = self.count(arrays)
        last = count + self.tape
        inputs, tape, given = arrays[:count], list(arrays[count:last]), arrays[last:]
        if self.batch is None:
            return self.alone(inputs, tape, self.filled(shapes[:count], given))
        size = self.size(shapes)
        if not size:
            return [np.zeros(s) for s in self.shapes(shapes)]
        wide = [
            x if yes else np.broadcast_to(x, (size, *np.shape(x)))
            for x, yes in zip(given, self.batch[last:], strict=True)
        ]
        more = self.filled(self.single(shapes)[:count], wide, (size,))
        if any(self.batch[:count]):
            return self.op.members(self, size, inputs, more)
        return self.op.several(self, inputs, tape, more)

    def alone(self, inputs: Arrays, tape: Arrays, more: Arrays) -> list[np.ndarray]:
        """The wanted results for one set of inputs."""
        if self.kind in ("value", "taped"):
            return self.chosen(getattr(self.op, self.kind)(list(inputs)))
        return self.chosen(getattr(self.op, self.kind)(list(inputs), tape, list(more)))


def _primitive(kind: str) -> Primitive:
    made = Primitive(f"genalpha_{kind}")
    made.multiple_results = True

    def run(*arrays: Any, asked: Asked) -> Any:
        return [jax.device_put(x) for x in asked(*(np.asarray(x) for x in arrays))]

    def abstract(*arrays: Any, asked: Asked) -> Any:
        return [core.ShapedArray(s, np.dtype(float)) for s in asked.shapes([x.shape for x in arrays])]

    def lower(by: Any) -> Any:
        def rule(context: Any, *arrays: Any, asked: Asked) -> Any:
            use = host.Use(asked)
            context.module_context.add_keepalive(use)
            shapes = asked.shapes([x.shape for x in context.avals_in])
            traced = lambda *arrays: by(use, [jax.ShapeDtypeStruct(s, float) for s in shapes], *arrays)
            return mlir.lower_fun(traced, multiple_results=True)(context, *arrays)

        return rule

    def unused(used: list[bool], equation: Any) -> Any:
        """Results that nothing reads are not computed."""
        if not any(used):
            return [False] * len(equation.invars), None
        asked, rest = equation.params["asked"], iter(used)
        wanted = tuple(yes and next(rest) for yes in asked.wanted)
        outputs = [x for x, yes in zip(equation.outvars, used, strict=True) if yes]
        params = {"asked": replace(asked, wanted=wanted)}
        return [True] * len(equation.invars), equation.replace(outvars=outputs, params=params)

    made.def_impl(run)
    made.def_abstract_eval(abstract)
    mlir.register_lowering(made, lower(host.by_handler), platform="cpu")
    mlir.register_lowering(made, lower(host.by_callback))
    batching.primitive_batchers[made] = functools.partial(_batched, made)
    partial_eval.dce_rules[made] = unused
    return made


def _batched(made: Primitive, arrays: Any, axes: Any, *, asked: Asked) -> Any:
    """The rule of ``vmap``. A batch of batches is one long batch.

    A batch keeps no tape: its derivatives compute the runs again. So the tape of a batch is a single one,
    which nothing reads.
    """
    size = next(x.shape[a] for x, a in zip(arrays, axes, strict=True) if a is not None)
    mapped = [a is not None for a in axes]
    moved = [jnp.moveaxis(x, a, 0) if yes else x for x, a, yes in zip(arrays, axes, mapped, strict=True)]
    flags, inner, wide = tuple(mapped), None, moved
    if asked.batch is not None:
        pairs = list(zip(moved, mapped, asked.batch, strict=True))
        inner = next(x.shape[int(yes)] for x, yes, has in pairs if has)
        wide = []
        for x, yes, has in pairs:
            rest = x.shape[int(yes) + int(has) :]
            x = x.reshape((size if yes else 1, inner if has else 1, *rest))
            wide.append(jnp.broadcast_to(x, (size, inner, *rest)).reshape((size * inner, *rest)))
        flags = _all(wide)
    many = replace(asked, batch=flags)
    if asked.kind == "taped":
        outs = len(asked.op.smooth)
        found = VALUE.bind(*wide, asked=replace(many, kind="value", wanted=asked.wanted[:outs]))
        shapes = asked.op.tape_shapes(many.single([x.shape for x in wide]))
        none = [_zeros(s) for s, yes in zip(shapes, asked.wanted[outs:], strict=True) if yes]
    else:
        found, none = made.bind(*wide, asked=many), []
    found = found if inner is None else [x.reshape((size, inner, *x.shape[1:])) for x in found]
    return [*found, *none], [*[0] * len(found), *[None] * len(none)]


VALUE, TAPED, TANGENT, COTANGENT = map(_primitive, ("value", "taped", "tangent", "cotangent"))


def _is_zero(changes: Sequence[Any]) -> bool:
    return all(type(dx) is ad.Zero for dx in changes)


def _zero(x: Any) -> Any:
    return ad.Zero(jax.typeof(x).to_tangent_aval())


def _with(asked: Asked, known: Arrays, changes: Sequence[Any], flags: Sequence[bool]) -> tuple[Asked, Arrays]:
    """A linear primitive with other directions or weights, some of which may be zero, and its arrays.

    ``changes`` and ``flags``, which say what differs in a batch, belong to all directions or weights.
    """
    given = tuple(type(dx) is not ad.Zero for dx in changes)
    more = [dx for dx in changes if type(dx) is not ad.Zero]
    batch = None
    if asked.batch is not None:
        own = [yes for yes, there in zip(flags, given, strict=True) if there]
        batch = (*asked.batch[: len(known)], *own)
    return replace(asked, given=given, batch=batch), [*known, *more]


def _spread(given: Sequence[bool], some: Sequence[Any], otherwise: Any) -> list[Any]:
    """Items for all directions or weights, from those of the given ones."""
    rest = iter(some)
    return [next(rest) if yes else otherwise for yes in given]


def _value_rule(inputs: Any, changes: Any, *, asked: Asked) -> Any:
    op = asked.op
    shapes = [np.shape(x) for x in inputs]
    length = len(op.tape_shapes(shapes)) if asked.batch is None else 0
    if length:
        kept = replace(asked, kind="taped", wanted=(*asked.wanted, *(True,) * length))
        found = TAPED.bind(*inputs, asked=kept)
    else:
        found = VALUE.bind(*inputs, asked=asked)
    outs = sum(asked.wanted)
    values, known = found[:outs], [*inputs, *found[outs:]]
    wanted = tuple(_smooth(op, asked.wanted))
    change = Asked("tangent", op, asked.batch, length, wanted=wanted)
    change, arrays = _with(change, known, changes, asked.batch or ())
    moved = iter(TANGENT.bind(*arrays, asked=change) if any(wanted) else ())
    kinds = asked.chosen(op.smooth)
    return values, [next(moved) if yes else _zero(x) for x, yes in zip(values, kinds, strict=True)]


def _taped_rule(inputs: Any, changes: Any, *, asked: Asked) -> Any:
    """The tape counts as constant: derivatives of derivatives do not use it."""
    found, outs = TAPED.bind(*inputs, asked=asked), len(asked.op.smooth)
    value = replace(asked, kind="value", wanted=asked.wanted[:outs])
    _, moved = _value_rule(inputs, changes, asked=value)
    return found, [*moved, *map(_zero, found[len(moved) :])]


def _smooth(op: Operation, outputs: Sequence[Any]) -> list[Any]:
    return [x for x, yes in zip(outputs, op.smooth, strict=True) if yes]


def _linear_rule(made: Primitive, by_xla: Any, arrays: Any, changes: Any, *, asked: Asked) -> Any:
    """The rule of ``jvp`` for a primitive that is linear in its last arrays."""
    count = asked.count(arrays)
    last = count + asked.tape
    found = made.bind(*arrays, asked=asked)
    if _is_zero(changes[:count]):
        if _is_zero(changes[last:]):
            return found, [*map(_zero, found)]
        every = _spread(asked.given, changes[last:], _zero(0.0))
        flags = _spread(asked.given, asked.batch[last:] if asked.batch is not None else _all(every), False)
        other, turned = _with(asked, arrays[:last], every, flags)
        return found, made.bind(*turned, asked=other)

    def one(*x: Any) -> Any:
        inputs, along = x[:count], x[count:]
        every = asked.filled([np.shape(x) for x in inputs], along)
        return asked.chosen(by_xla(asked.op, inputs, every))

    if asked.batch is not None:
        own = (*asked.batch[:count], *asked.batch[last:])
        one = jax.vmap(one, in_axes=[0 if yes else None for yes in own])
    primals = [*arrays[:count], *arrays[last:]]
    moved = [
        _zeros(np.shape(x)) if type(dx) is ad.Zero else dx
        for dx, x in zip([*changes[:count], *changes[last:]], primals, strict=True)
    ]
    return found, jax.jvp(one, tuple(primals), tuple(moved))[1]


def _changes_by_xla(op: Operation, inputs: Any, along: Any) -> Any:
    return jax.jvp(lambda *a: _smooth(op, op.by_xla(*a)), tuple(inputs), tuple(map(jnp.asarray, along)))[1]


def _pulled_by_xla(op: Operation, inputs: Any, weights: Any) -> Any:
    pull = jax.vjp(lambda *a: _smooth(op, op.by_xla(*a)), *inputs)[1]
    return list(pull(list(map(jnp.asarray, weights))))


def _transposed(made: Primitive, kind: str, weights: Any, *arrays: Any, asked: Asked) -> Any:
    """The transpose of "tangent" is "cotangent", and the other way round."""
    count = asked.count(arrays)
    last = count + asked.tape
    known, unknown = arrays[:last], arrays[last:]
    linear = [ad.is_undefined_primal(x) for x in unknown]
    wanted = tuple(_spread(asked.given, linear, False))
    every = _spread(asked.wanted, weights, _zero(0.0))
    turned = replace(asked, kind=kind, wanted=wanted)
    turned, moved = _with(turned, known, every, _all(every))
    found = _spread(linear, made.bind(*moved, asked=turned), None)
    own = asked.batch[last:] if asked.batch is not None else _all(unknown)
    summed = [x if x is None or yes else jnp.sum(x, axis=0) for x, yes in zip(found, own, strict=True)]
    return [None] * last + summed


ad.primitive_jvps[VALUE] = _value_rule
ad.primitive_jvps[TAPED] = _taped_rule
ad.primitive_jvps[TANGENT] = functools.partial(_linear_rule, TANGENT, _changes_by_xla)
ad.primitive_jvps[COTANGENT] = functools.partial(_linear_rule, COTANGENT, _pulled_by_xla)
ad.primitive_transposes[TANGENT] = functools.partial(_transposed, COTANGENT, "cotangent")
ad.primitive_transposes[COTANGENT] = functools.partial(_transposed, TANGENT, "tangent")

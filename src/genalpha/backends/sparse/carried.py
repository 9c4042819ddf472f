"""The shapes of what a copy of a part carries from step to step."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from genalpha.backends.sparse.models import KindModel
from genalpha.engine.setup import Setup
from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.spaces import Euclidean, Space
from genalpha.mechanics.system import Dims, System
from genalpha.methods import Method
from genalpha.numerics.data import Carry, NewtonReport, Scale, State
from genalpha.numerics.tracing import zeros

# Sizes that can be told apart in shapes. So a method is traced once for all parts.
_EXAMPLE = Dims(61, 61, 47, 43)
_LEAST = min(_EXAMPLE)


def begun(setup: Setup, model: KindModel) -> Carry:
    """The shapes of the carry of one copy."""
    dims = model.full(setup.dims)
    constant = model.element is None or model.element.constant_mass
    example = Dims(*(size and other for size, other in zip(dims, _EXAMPLE, strict=True)))
    found, sizes = _shapes(setup.method, example, constant), dict(zip(example[1:], dims[1:], strict=True))
    leaves = jax.tree.leaves(found)
    if any(size >= _LEAST and size not in sizes for leaf in leaves for size in leaf.shape):  # a sum of sizes
        return _shapes(setup.method, dims, constant, model.space)
    number: Any = lambda *shape: jax.ShapeDtypeStruct(shape, float)
    alike = jax.tree.map(lambda leaf: number(*(sizes.get(size, size) for size in leaf.shape)), found)
    return alike._replace(q=number(dims.size))


@functools.lru_cache(256)
def _shapes(method: Method, dims: Dims, constant_mass: bool, space: Space | None = None) -> Carry:
    """The shapes of the carry of a system of these sizes."""
    size, n, m, p = dims
    number: Any = lambda *shape: jax.ShapeDtypeStruct(shape, float)
    state = State(number(), number(size), number(n), number(n), number(m), number(p))
    scale, report = Scale(number(n), number(m), number(p)), NewtonReport(*[number()] * 6)
    constraints = (number(m + p, n), number(m), number(m), number(p))
    start = Beginning(state, number(n), scale, report, *constraints, number(n, n), number(n))
    system = _zero(dims, constant_mass, space)
    return jax.eval_shape(lambda start, h: method.begin(system, dims, start, h, ())[0], start, number())


def _zero(dims: Dims, constant_mass: bool, space: Space | None) -> System:
    """A system of these sizes whose functions are zero."""
    _, n, m, p = dims
    zero: Any = lambda *shape: lambda *inputs: zeros(*shape)
    mass = np.zeros((n, n)) if constant_mass else zero(n, n)
    constraints = zero(m) if m else None, zero(p) if p else None
    return System(mass, zero(n), *constraints, zero(n), space or Euclidean(n))

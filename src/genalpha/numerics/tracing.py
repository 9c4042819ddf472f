"""Whether JAX is tracing: then there are no numbers to look at."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

# Outside of every transform this state is known at once. Inside one, a new array says more.
_OUTSIDE = get_opaque_trace_state()


def is_traced(*trees: Any) -> bool:
    """Whether JAX is tracing any of these values."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def under_transform(*trees: Any) -> bool:
    """Whether JAX is tracing any of these values, or everything, as it does inside ``jit``."""
    return is_traced(*trees) or (get_opaque_trace_state() != _OUTSIDE and is_traced(jnp.zeros(())))

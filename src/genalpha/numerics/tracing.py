"""Whether JAX is tracing. If it is, values are not known yet."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state

# The state outside of all transforms. Comparing with it is fast. Only if it differs, a new array is made.
_OUTSIDE = get_opaque_trace_state()


def is_traced(*trees: Any) -> bool:
    """Whether JAX is tracing any of these values."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def under_transform(*trees: Any) -> bool:
    """Whether JAX is tracing any of these values, or all operations, as it does inside ``jit``."""
    return not outside() and (is_traced(*trees) or is_traced(jnp.zeros(())))


def outside() -> bool:
    """Whether no transform is active."""
    return get_opaque_trace_state() == _OUTSIDE


def library(x: Any) -> Any:
    """NumPy for its arrays and numbers, else JAX."""
    return np if isinstance(x, np.ndarray | np.generic) else jnp


def zeros(*shape: int) -> Any:
    """Zeros as constants of what is traced. `jnp.zeros` would run an operation for each."""
    return np.zeros(shape)

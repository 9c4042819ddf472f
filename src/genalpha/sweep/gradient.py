"""The gradient of a sum over many runs, block by block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.sweep import axes as of_axes
from genalpha.sweep.driver import Crew
from genalpha.sweep.job import Values

_compiled: dict[bytes, Callable[..., Any]] = {}


def sweep_gradient(
    function: Callable[..., Any],
    parameters: Any,
    *,
    over: Any,
    executor: Any = None,
    block: int = 256,
    worker_timeout: float | None = None,
) -> tuple[float, Any]:
    """The sum of ``function(parameters, **values)`` over all runs of ``over``, and its gradient.

    ``function`` is written with ``jax.numpy``, calls :func:`genalpha.solve` for one run, and returns a
    number. ``parameters`` is a tree of arrays that all runs share; the gradient has the same form. ``over``,
    ``executor`` and ``worker_timeout`` are those of :func:`genalpha.sweep`. Blocks of ``block`` runs are
    computed with native gradients and added in their order, a few of them at a time.

    >>> import jax.numpy as jnp, numpy as np, genalpha as ga
    >>> spring = ga.System(mass=jnp.eye(1), force=lambda t, q, v, k: -k * q)
    >>> def missed(k, speed):
    ...     return ga.solve(spring, (0.0, 1.0), [0.0], speed[None], h=0.1, args=(k,)).q[-1, 0] ** 2
    >>> total, slope = ga.sweep_gradient(missed, 2.0, over={"speed": np.array([1.0, 2.0])}, block=2)
    >>> more, less = (ga.sweep_gradient(missed, k, over={"speed": [1.0, 2.0]}, block=2)[0]
    ...               for k in (2.001, 1.999))
    >>> bool(abs(slope - (more - less) / 0.002) < 1e-5)
    True
    """
    import cloudpickle

    if not callable(function):
        raise TypeError(f"function must be a function, got {type(function).__name__}")
    if block < 1:
        raise ValueError(f"block must be a whole number above zero, got {block!r}")
    given = of_axes.parsed(over)
    parameters = jax.tree.map(lambda x: np.asarray(x, dtype=float), parameters)
    packed, crew = cloudpickle.dumps(function), Crew(executor, worker_timeout)
    total, slope = 0.0, jax.tree.map(np.zeros_like, parameters)
    underway: deque[tuple[int, Future[Any]]] = deque()
    parts = enumerate(_blocks(given, block))
    try:
        while True:
            while len(underway) < crew.most and (part := next(parts, None)) is not None:
                number, values = part
                underway.append((number, crew.executor.submit(_part, packed, parameters, values, block)))
            if not underway:
                return total, slope
            number, future = underway.popleft()
            value, change = crew.result(future)
            if not np.isfinite(value):
                first = number * block
                raise ValueError(
                    f"the sum over runs {first} to {min(first + block, given.count) - 1} is not finite: one "
                    "of them failed. Try them with ga.solve"
                )
            total, slope = total + value, jax.tree.map(np.add, slope, change)
    finally:
        for _, future in underway:
            future.cancel()
        crew.close()


def _blocks(given: of_axes.Axes, size: int) -> Iterator[Values]:
    """The values of the axes, block by block."""
    left: Values | None = None
    for part in given.parts():
        whole = part if left is None else {n: np.concatenate([left[n], x]) for n, x in part.items()}
        count = len(next(iter(whole.values())))
        for first in range(0, count // size * size, size):
            yield {name: x[first : first + size] for name, x in whole.items()}
        left = {name: x[count // size * size :] for name, x in whole.items()}
    if left is not None and len(next(iter(left.values()))):
        yield left


def _part(packed: bytes, parameters: Any, values: Values, size: int) -> tuple[float, Any]:
    """The sum and its gradient over one block, filled up with its last run, which does not count."""
    import cloudpickle

    if packed not in _compiled:
        if len(_compiled) > 8:
            _compiled.clear()
        one: Callable[..., Any] = cloudpickle.loads(packed)

        def summed(parameters: Any, values: Any, counts: Any) -> Any:
            each = jax.vmap(lambda mine: one(parameters, **mine))(values)
            return jnp.sum(jnp.where(counts, each, 0.0))

        _compiled[packed] = jax.jit(jax.value_and_grad(summed))
    count = len(next(iter(values.values())))
    filled = {name: x[np.minimum(np.arange(size), count - 1)] for name, x in values.items()}
    value, slope = _compiled[packed](parameters, filled, np.arange(size) < count)
    return float(value), jax.tree.map(np.asarray, slope)

"""The public function: many runs of one model, in a store that survives."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from genalpha.errors import unknown
from genalpha.mechanics.system import System
from genalpha.results.solution import Solution
from genalpha.run import arguments
from genalpha.run.arguments import Numbers
from genalpha.sweep import axes as of_axes
from genalpha.sweep.job import QUANTITIES, Job, checked_options
from genalpha.sweep.sweeping import Policy, Sweep, begin


def sweep(
    system: System,
    t_span: tuple[float, float],
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    *,
    over: Any,
    store: str | os.PathLike[str],
    args: Sequence[Any] = (),
    member: Callable[..., Mapping[str, Any]] | None = None,
    t_eval: Numbers | None = None,
    save: Sequence[str] = ("q", "v", "lam", "psi"),
    events: Any = None,
    most_events: int = 8,
    observe: Callable[[Solution], Mapping[str, Any]] | None = None,
    executor: Any = None,
    block: int | None = None,
    memory: float = 2**28,
    threads: int | None = None,
    deadline: float | None = None,
    retries: int = 2,
    verify: bool = True,
    other_kinds: Literal["refuse", "mark"] = "refuse",
    progress: bool = False,
    worker_timeout: float | None = None,
    **options: Any,
) -> Sweep:
    """Run a model many times, on this machine or many, and keep the results in a store on disk.

    Stop it in any way, and call it again with the same arguments: only what is missing is computed, and the
    result is bit for bit the same, whatever the number of workers and the size of blocks. It needs zarr and
    xarray: ``pip install genalpha[sweep]``.

    Parameters
    ----------
    system, t_span, q0, v0, args : as in :func:`solve_batch`, for one run.
    over : what varies. A dict of arrays is their outer product, the last axis fastest. A table
        (``pandas.DataFrame``, or ``xarray.Dataset`` with one dimension) has one run a row. :class:`Samples`
        are drawn from distributions. Names say where the values go: "q0", "v0[2]", "args[0]", "args[1].mass",
        or a setting such as "h", "rtol" or "accuracy".
    store : the path of the store, a folder in Zarr's format, which all workers can write to.
    member : a function of axes, by their names, that returns a dict with q0, v0 and args of one run, or some
        of them, in ``jax.numpy``. Axes that it does not take go where their names say.
    t_eval : times (K,) of the rows that are kept; by default the last row only.
    save : quantities that are kept, of "q", "v", "a", "lam" and "psi".
    events, most_events : as in :func:`solve_batch`; the times of the first ``most_events`` of each are kept.
    observe : a function of a :class:`Solution` of a batch. It returns a dict of arrays (B, ...), kept by
        name.
    executor : a ``concurrent.futures.Executor`` or a ``dask.distributed.Client``; by default this machine's
        cores.
    block : runs that are one task and one chunk of the store. It is rounded up to whole cells, which follow
        from the sweep. A store keeps its size of blocks.
    memory : the most bytes of results of one block.
    threads : threads for each block. The default is all cores without an executor, those of a Dask worker,
        and else one.
    deadline : seconds for a block. A block that takes longer counts as lost.
    retries : how often a block is tried again that was lost (its worker died, the deadline passed, memory was
        full). Then it is given up, and its runs get a status and the reason.
    verify : compare the checksums of all blocks when a store is resumed; damaged ones are computed again.
    other_kinds : "refuse" (default) workers of another kind than the first one (version, instructions of the
        processor, backend), or "mark" their blocks.
    progress : show a bar on standard error.
    worker_timeout : seconds that a Dask cluster may have no workers; then the sweep ends with an error. By
        default it waits for workers, and warns after a minute.
    options : h, rtol, atol, accuracy, method, rho_inf, newton, initial, backend and so on, as in
        :func:`solve_batch`.

    Returns
    -------
    A :class:`Sweep`. ``sweep.open()`` is an ``xarray.Dataset``; ``sweep.failures`` lists runs that failed,
    and ``sweep.retry(...)`` runs them again.

    Examples
    --------
    Pendulums of six lengths and speeds:

    >>> import tempfile, jax.numpy as jnp, numpy as np, genalpha as ga
    >>> pendulum = ga.System(
    ...     mass=jnp.eye(2),
    ...     force=lambda t, q, v, length: jnp.array([0.0, -9.81]),
    ...     holonomic=lambda t, q, length: jnp.array([q @ q - length**2]),
    ... )
    >>> folder = tempfile.mkdtemp()
    >>> found = ga.sweep(
    ...     pendulum, (0.0, 1.0), h=1e-2, store=f"{folder}/pendulums.zarr",
    ...     over={"length": np.array([0.5, 1.0, 1.5]), "speed": np.array([0.0, 1.0])},
    ...     member=lambda length, speed: {
    ...         "q0": [length, 0.0], "v0": [0.0, speed], "args": (length,)
    ...     },
    ... )
    >>> found
    <Sweep of 6 runs in pendulums.zarr: 6 done, 0 failed>
    >>> found.open(grid=True).q.sel(length=1.0).shape
    (2, 2)
    """
    span, given = arguments.span(t_span), arguments.arguments(args)
    arguments.is_system(system)
    options = checked_options(options)
    parsed = of_axes.parsed(over)
    kept = _kept(save)
    if t_eval is not None:
        options["t_eval"] = np.asarray(t_eval, dtype=float)
    if events is not None:
        options["events"] = events
    job = Job(system, span, q0, v0, given, parsed.names, member, observe, options, kept, most_events)
    block = _positive("block", block)
    work = (block, memory, threads, deadline, retries, verify, other_kinds, progress, worker_timeout)
    policy = Policy(*work)
    return begin(job, parsed, Path(store).expanduser().absolute(), executor, policy)


def _kept(save: Sequence[str]) -> tuple[str, ...]:
    if isinstance(save, str):
        raise TypeError(f'save must be a list of quantities such as ["q", "lam"], got {save!r}')
    for name in save:
        if name not in QUANTITIES:
            raise unknown("quantity in save", str(name), QUANTITIES)
    return tuple(dict.fromkeys(save))


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (not isinstance(value, int | np.integer) or value < 1):
        raise ValueError(f"{name} must be a whole number above zero, got {value!r}")
    return value

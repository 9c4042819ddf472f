"""Many variations of one system at once: on all cores and vector lanes, or on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from genalpha import methods
from genalpha.backends.batch.plan import BatchPlan, ControlledPlan, GivenPlan
from genalpha.engine import step_choice
from genalpha.engine.interpolate import steps_of
from genalpha.engine.row import layout
from genalpha.engine.setup import Setup
from genalpha.engine.step_choice import StepOptions
from genalpha.engine.steps import Controlled, Given, Steps
from genalpha.mechanics.state_system import with_states
from genalpha.mechanics.system import System
from genalpha.numerics.host import watched
from genalpha.numerics.newton import Newton
from genalpha.numerics.tracing import is_traced, under_transform
from genalpha.results import members, output
from genalpha.results.output import Output
from genalpha.results.solution import Solution
from genalpha.run import arguments, request
from genalpha.run.accurate.batch import AccurateBatch
from genalpha.run.arguments import Numbers
from genalpha.run.batch import Batch, Progress
from genalpha.run.batch_axes import find_axes, member, varied
from genalpha.run.request import BatchBackend, Initial, Options, one_of


def solve_batch(
    system: System,
    t_span: tuple[float, float],
    q0: Numbers,
    v0: Numbers,
    *,
    z0: Numbers | None = None,
    h: Numbers | None = None,
    rtol: Numbers | None = None,
    atol: Numbers | None = None,
    first_step: float | None = None,
    max_step: float | None = None,
    min_step: float | None = None,
    max_steps: int | None = None,
    accuracy: Numbers | None = None,
    force_accuracy: float | None = None,
    breakpoints: Numbers = (),
    args: Sequence[Any] = (),
    args_axes: Any = "auto",
    t_eval: Numbers | None = None,
    save: Any = "final",
    method: str | methods.Method = "soi2",
    rho_inf: float | None = None,
    newton: Newton = Newton(),  # noqa: B008 - immutable
    events: Any = None,
    initial: Initial = "check",
    backend: BatchBackend = "auto",
    progress: bool = False,
    redundant: Literal["raise"] = "raise",
) -> Solution:
    """Integrate many variations of a system at once.

    All members of the batch take the same steps (``h``), or each member has its own error control, or its
    own mesh for a wanted ``accuracy``.

    Parameters
    ----------
    q0 (size,) or (B, size), v0 (n,) or (B, n) : initial values, shared by all members or one row for each.
    z0 (n_states,) or (B, n_states) : first-order states of a :class:`StateSystem`, in the same way.
    h, rtol, atol, first_step, max_step, min_step, max_steps : as in :func:`solve`. Under error control
        (``h=None``) every member takes its own steps. The rows are then the last one, or those at ``t_eval``.
    accuracy, force_accuracy, breakpoints : as in :func:`solve`. Every member has its own rows and its own
        ``error``.
    args : as in :func:`solve`. Its arrays may have a leading axis of length B.
    args_axes : which arrays in ``args`` have this axis. "auto" (default): those whose first axis has B
        entries, provided that the functions of the system accept the part of one member. Otherwise a tree
        like ``args``, with 0 for an array that varies along its first axis and None for one that all members
        share. A single 0 or None may stand for a whole argument.
    t_eval : increasing times (K,). The rows are then at these times, interpolated between the steps of each
        member as in :func:`solve`.
    save : "final" (default) keeps the last row, "all" every row, a whole number k the start, every k-th row
        and the last. A list of quantities such as ``["q", "lam"]`` keeps only these; the others are None. A
        dict such as ``{"q": [0, 5]}`` chooses entries or nodes too, as in :func:`solve`. A pair such as
        ``("all", ["q"])`` says both. Memory is taken for the quantities that are kept only.
    events : as in :func:`solve`, with terminal, direction and reset. Members without an event run in lanes
        as before. A member with an event is run again on its own, from its start.
    initial : "check" (default) gives a status to members that break the constraints, and does not run them.
        "project" moves all members onto the constraints. "assume" takes them as they are.
    backend : "native" (threads and vector lanes on the CPU), "cuda" (a GPU, one thread per member; needs
        cupy), "xla", or "auto" (default): native if possible, else XLA.
    progress : show a progress bar on standard error.
    redundant : only "raise". :func:`solve` has "min_norm".

    The other parameters are those of :func:`solve`.

    Returns
    -------
    A :class:`Solution` whose arrays have the batch axis first: q (B, K, size) with K kept rows, t (B, K),
    status (B,), and B numbers in each of the stats. ``batch[i]`` is member i, with the rows up to its end: it
    has none if it failed before the first. A member that fails does not raise and does not affect the others:
    it has a status, ``stats.steps`` good steps, and NaN in the rows after them. Only if no member can be
    started, the error of the first one is raised.

    With ``events``, t (B, K) are the times of each member's own rows, and K is the largest number of rows: a
    reset adds rows and moves the steps after it. Rows after the end of a member are NaN, after a terminal
    event too; ``t_end`` (B,) are the times of the ends, and the only row with ``save="final"``. ``t_events``
    and the others have one array for each event, (B, E) and (B, E, ...), in which E is the largest number of
    occurrences and the rest is NaN. ``batch[i].t_events`` has those of member i, without NaN.

    Examples
    --------
    Pendulums of four lengths; after one second:

    >>> import jax.numpy as jnp, numpy as np, genalpha as ga
    >>> pendulum = ga.System(
    ...     mass=jnp.eye(2),
    ...     force=lambda t, q, v, length: jnp.array([0.0, -9.81]),
    ...     holonomic=lambda t, q, length: jnp.array([q @ q - length**2]),
    ... )
    >>> lengths = np.array([0.5, 1.0, 1.5, 2.0])
    >>> q0 = np.stack([lengths, 0 * lengths], axis=1)
    >>> batch = ga.solve_batch(pendulum, (0.0, 1.0), q0, [0.0, 0.0], h=1e-3, args=(lengths,))
    >>> batch.q[:, -1, 0].round(4).tolist()
    [-0.4833, -0.9863, -1.1917, -0.9574]
    >>> batch.success.all()
    np.True_
    """
    if redundant != "raise":
        raise ValueError(
            f"redundant={redundant!r} is not possible in solve_batch, only 'raise': state independent "
            "constraints, or call ga.solve for each member"
        )
    limits = (first_step, max_step, min_step, max_steps)
    steps = StepOptions(
        h, rtol, atol, *limits, accuracy=accuracy, breakpoints=breakpoints, force_accuracy=force_accuracy
    )
    if np.size(breakpoints) and accuracy is None:
        raise ValueError("breakpoints need accuracy in solve_batch: pass accuracy, or list steps as h")
    given = Options(
        method, rho_inf, steps, newton, t_eval, save=save, events=events, args=args, initial=initial
    )
    request.check_options(given)
    one_of("backend", backend, get_args(BatchBackend))
    if events is not None and backend == "cuda":
        raise ValueError('events are not possible with backend="cuda": use backend="native"')
    batch = _parse(system, t_span, q0, with_states(system, v0, z0), given, args_axes)
    bar = Progress(len(batch.q), progress)
    want = step_choice.accurate(batch.span, batch.setup.dims.n, steps)
    with watched():
        if want is None:
            sol = batch.run(backend, bar)
        else:
            sol = AccurateBatch(batch, request.suited(want, batch.setup.method), backend, bar).solution()
    own = batch.args, batch.varying
    return sol.labelled(system.labels, batch.output.entries, varied(*own), own)


def _parse(system: System, t_span: Any, q0: Any, v0: Any, given: Options, args_axes: Any) -> Batch:
    """Read and check the arguments."""
    span, args = arguments.span(t_span), arguments.arguments(given.args)
    arguments.is_system(system)
    q, v = _array("q0", q0), _array("v0", v0)
    if under_transform(q, v, args):
        raise TypeError("solve_batch cannot be traced: under a JAX transform use jax.vmap of ga.solve")
    varying, count = find_axes(system, span[0], q, v, args, args_axes)
    first = member((q, v, args), (q.ndim == 2, v.ndim == 2, varying), 0)
    dims, _ = arguments.trace(system, span[0], *first)
    steps, _ = step_choice.choose(span, dims.n, given.steps)
    method = request.chosen_method(given, system, dims, steps)
    kept, strict = output.placed(_output(given, span, steps), system, dims), given.initial == "check"
    listed, crossings = request.watched(system, given.events, dims, first[2])
    setup = Setup(system, method, given.newton, dims, crossings)
    what = members.kept(layout(setup), kept.names, steps.controlled)
    plan: BatchPlan
    if isinstance(steps, Controlled):
        plan = ControlledPlan(steps, span, strict, kept.t_eval, what)
    else:
        plan = GivenPlan(steps, _kept(steps, kept), strict, kept.t_eval, what)
    q, v = np.broadcast_to(q, (count, dims.size)), np.broadcast_to(v, (count, dims.n))
    return Batch(setup, span, plan, kept, q, v, args, varying, given.initial, listed)


def _array(name: str, value: Any) -> Any:
    """A finite array with one or two axes."""
    if is_traced(value):
        return value
    array = np.asarray(value)
    if array.ndim != 2:
        return arguments.vector(name, array)
    if array.size == 0:
        raise ValueError(f"{name} must have shape (B, n) with B, n > 0, got shape {array.shape}")
    if array.dtype.kind == "O" or not np.isfinite(array).all():
        for i, row in enumerate(array):
            arguments.vector(f"{name}[{i}]", row)  # raises, and names the row
    return np.asarray(array, dtype=float)


def _output(given: Options, span: tuple[float, float], steps: Steps) -> Output:
    """Which rows are kept of every member, and which quantities."""
    save, names = given.save, None
    if isinstance(save, tuple) and len(save) == 2 and not isinstance(save[1], str):
        save, names = save
    elif isinstance(save, Sequence | Mapping) and not isinstance(save, str):
        save, names = "final", save
    whole = isinstance(save, int | np.integer) and not isinstance(save, bool)
    if not ((isinstance(save, str) and save in ("final", "all")) or (whole and save > 0)):
        raise ValueError(
            'save must be "final", "all", a whole number k > 0 for every k-th step, a list of quantities '
            f'such as ["q", "lam"], or a pair such as ("all", ["q"]); got {given.save!r}'
        )
    if given.t_eval is not None:
        if save != "final":  # the default
            raise ValueError("pass either t_eval or save, not both: each says which rows are kept")
        save = "all"
    elif steps.controlled and save != "final":
        raise ValueError(
            f"save={save!r} needs h, because under error control every member takes its own steps: pass h, "
            "or times as t_eval"
        )
    return output.parse(save if names is None else (save, names), given.t_eval, False, span)


def _kept(steps: Given, wanted: Output) -> np.ndarray:
    """The numbers of the steps whose records are kept; 0 is the start."""
    if wanted.t_eval is None:
        return wanted.rows(len(steps.steps.h))
    after = steps_of(np.asarray(steps.times), wanted.t_eval)
    return np.union1d(after, np.maximum(after - 1, 0))

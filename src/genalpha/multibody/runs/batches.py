"""Many runs of a model at once: batches and sweeps, with numbers by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from genalpha.errors import hint
from genalpha.multibody import limits, values
from genalpha.multibody.closing import sides
from genalpha.multibody.runs import after, start_errors
from genalpha.numerics.tracing import is_traced
from genalpha.results.solution import Solution
from genalpha.run import arguments
from genalpha.solve_batch import solve_batch
from genalpha.sweep import axes as of_axes
from genalpha.sweep.front import sweep
from genalpha.sweep.sweeping import Sweep
from genalpha.sweep.targets import SETTINGS

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


def solved(model: Model, t_span: Any, numbers: Mapping[str, Any] | None, options: dict[str, Any]) -> Solution:
    """``solve_batch`` of a model, with other numbers for its members."""
    if numbers is not None:
        if options.get("args"):
            raise TypeError("pass values or args, not both: model.args(values) are args")
        args = values.args_with(model, numbers)
        axes_added = jax.tree.map(lambda x, usual: np.ndim(x) - np.ndim(usual), args, model.system.args)
        options |= {"args": args, "args_axes": jax.tree.map(lambda count: 0 if count else None, axes_added)}
    found: Solution = _from(model, solve_batch, t_span, options)
    after.warn_if_untrue(model, found, numbers)
    return found


def _from(
    model: Model,
    run: Callable[..., Any],
    t_span: Any,
    options: dict[str, Any],
    axes: Iterable[dict[str, Any]] = ({},),
) -> Any:
    """Call ``run`` with the system and the start of a model, or with q0 and v0 in the options.

    ``axes`` are numbers of members, which come on top of those in args.
    """
    given, own = [options.pop(name, None) for name in ("q0", "v0")], model._start()
    q0, v0 = (usual if x is None else x for x, usual in zip(given, own, strict=True))
    args = options.get("args")
    start = None if is_traced(q0, args) else _positions(model, q0)
    for more in axes:
        if start is None:
            break
        if given[0] is None:
            sides.check_start(model, t_span, start, args, more)
        else:
            numbers = values.in_args(model, args) | more
            sides.check_members(model, arguments.span(t_span)[0], start, numbers)
    if options.get("events") is not None and start is not None:
        for q, own in _starts(model, start, args):
            options["events"] = limits.from_start(model, options["events"], q, v0, own)
    with start_errors.noted(model):
        return run(model.system, t_span, q0, v0, **options)


def _positions(model: Model, q0: Any) -> np.ndarray | None:
    """The positions of a run, or of members. None if they cannot be such: the run says what is wrong."""
    try:
        found = np.asarray(q0, float)
    except (TypeError, ValueError):
        return None
    fits = found.ndim in (1, 2) and len(found) and found.shape[-1] == len(model.q0)
    return found if fits and np.isfinite(found).all() else None


def _starts(model: Model, start: np.ndarray, args: Any) -> Iterable[tuple[np.ndarray, Any]]:
    """The positions and args of members that may differ."""
    rows, usual = np.atleast_2d(start), model.system.args
    both = zip(jax.tree.leaves(args), jax.tree.leaves(usual), strict=False)
    counts = [len(x) for x, one in both if np.ndim(x) > np.ndim(one)]
    if not counts or not values.fits(model, args):
        return [(q, args or ()) for q in np.unique(rows, axis=0)]
    own = lambda i: jax.tree.map(lambda x, one: x[i] if np.ndim(x) > np.ndim(one) else x, args, usual)
    return [(rows[i % len(rows)], own(i)) for i in range(counts[0])]


class NamedNumbers:
    """The function ``member`` of the sweep of a model: from axes with names of its numbers to args.

    ``names`` are these axes. ``args`` have all other numbers. ``member``, if given, is the function of the
    user, which takes other axes and returns a dict with q0, v0 and values.
    """

    def __init__(
        self, model: Model, names: tuple[str, ...], member: Callable[..., Any] | None, args: tuple[Any, ...]
    ) -> None:
        self.model, self.names, self.member, self.args = model, names, member, args
        self.axis_names = (*names, *_parameters(member))

    def __call__(self, **given: Any) -> dict[str, Any]:
        numbers = {name: given.pop(name) for name in self.names}
        made = dict(self.member(**given)) if self.member else {}
        if "args" in made:
            raise TypeError("member of a model returns values by name, such as {'rod.mass': 2.0}, not args")
        numbers |= made.pop("values", {})
        found = values.checked(self.model, numbers)
        return made | {"args": values.with_numbers(self.model, found, self.args)}


def _parameters(member: Callable[..., Any] | None) -> tuple[str, ...]:
    return tuple(inspect.signature(member).parameters) if member else ()


def swept(model: Model, t_span: Any, over: Any, options: dict[str, Any]) -> Sweep:
    """``sweep`` of a model. Axes may have the names of its numbers, if ``member`` does not take them."""
    known, member, axes = model.values, options.pop("member", None), of_axes.parsed(over)
    taken = _parameters(member)
    if member is not None and not set(taken) & set(axes.names):
        raise ValueError(
            f"member takes none of the axes {', '.join(axes.names)}, so it would be the same for all runs: "
            "name its parameters like axes, or pass args=model.args({...})"
        )
    names = tuple(name for name in axes.names if name in known and name not in taken)
    args = options.get("args") or model.system.args
    if (names or member) and not values.fits(model, args):
        raise ValueError("args of the sweep are not those of the model: make them by model.args({...})")
    for name in axes.names:
        head = name.partition("[")[0]
        if name not in (*names, *taken, *SETTINGS) and head not in ("q0", "v0", "args"):
            raise ValueError(f"the axis {name!r} is no number of the model: {hint(name, known, 'it has')}")
        if head == "args" and name not in taken and (names or member):
            raise ValueError(f"the axis {name!r} and numbers by name exclude each other: name all of them")
    values.checked(model, {name: x for name, x in axes.columns.items() if name in names}, members=True)
    if names or member:
        options["member"] = NamedNumbers(model, names, member, args)
    return _from(model, sweep, t_span, options | {"over": over}, _of_couplings(model, axes, names))


def _of_couplings(
    model: Model, axes: of_axes.Axes, names: tuple[str, ...]
) -> Iterable[dict[str, np.ndarray]]:
    """The numbers of couplings in the runs of a sweep, part after part."""
    used = sides.of_couplings(model, dict.fromkeys(names))
    if not used:
        return ({},)
    if axes.samples is None:
        axes = replace(axes, columns={name: axes.columns[name] for name in used})
    return ({name: part[name] for name in used} for part in axes.parts())

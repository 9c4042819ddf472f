"""Many runs of a model at once: batches and sweeps, with numbers by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from genalpha.errors import hint
from genalpha.multibody import limits, sides, start_errors, values
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
        more = jax.tree.map(lambda x, usual: np.ndim(x) - np.ndim(usual), args, model.system.args)
        options |= {"args": args, "args_axes": jax.tree.map(lambda d: 0 if d else None, more)}
    return _from(model, solve_batch, t_span, options)


def _from(model: Model, run: Callable[..., Any], t_span: Any, options: dict[str, Any]) -> Any:
    """Call ``run`` with the system and the start of a model, or with q0 and v0 in the options."""
    own = model._start()
    q0, v0 = (own[i] if options.get(name) is None else options[name] for i, name in enumerate(("q0", "v0")))
    options = {name: x for name, x in options.items() if name not in ("q0", "v0")}
    if q0 is own[0]:
        sides.check_start(model, t_span, q0, None)
    starts = np.unique(np.atleast_2d(np.asarray(q0, float)), axis=0)
    for q in starts if q0 is not own[0] else ():
        sides.check(model, arguments.span(t_span)[0], q)
    for q in starts if options.get("events") is not None else ():
        options["events"] = limits.from_start(model, options["events"], q, q, ())
    with start_errors.noted(model):
        return run(model.system, t_span, q0, v0, **options)


class NamedNumbers:
    """The function ``member`` of the sweep of a model: from axes with names of its numbers to args.

    ``more``, if given, is such a function of other axes, which returns a dict with q0, v0 and values.
    """

    def __init__(self, model: Model, names: tuple[str, ...], more: Callable[..., Any] | None) -> None:
        self.model, self.names, self.more = model, names, more
        self.axis_names = (*names, *(inspect.signature(more).parameters if more else ()))

    def __call__(self, **given: Any) -> dict[str, Any]:
        numbers = {name: given.pop(name) for name in self.names}
        made = dict(self.more(**given)) if self.more else {}
        if "args" in made:
            raise TypeError("member of a model returns values by name, such as {'rod.mass': 2.0}, not args")
        numbers |= made.pop("values", {})
        return made | {"args": self.model.args(numbers)}


def swept(model: Model, t_span: Any, over: Any, options: dict[str, Any]) -> Sweep:
    """``sweep`` of a model. Axes may have the names of its numbers."""
    known, member, axes = model.values, options.pop("member", None), of_axes.parsed(over)
    names = tuple(name for name in axes.names if name in known)
    of = NamedNumbers(model, names, member)
    for name in axes.names:
        if name not in (*of.axis_names, *SETTINGS) and name.partition("[")[0] not in ("q0", "v0", "args"):
            raise ValueError(f"the axis {name!r} is no number of the model: {hint(name, known, 'it has')}")
    values.checked(model, {name: x for name, x in axes.columns.items() if name in known}, members=True)
    if of.axis_names:
        options["member"] = of
    return _from(model, sweep, t_span, options | {"over": over})

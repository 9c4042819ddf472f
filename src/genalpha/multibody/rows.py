"""The rows that a motion of a model is made of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha.engine.run_data import RunState
from genalpha.mechanics.labels import LISTS, Labels
from genalpha.numerics.tracing import is_traced

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

# What a solution has in every row, a state once.
_IN_ROWS = ("t", "q", "v", "a", "lam", "psi", "z")


def rows_of(model: Model, sol: Any) -> Any:
    """A solution of the model, or a state, an equilibrium or (t, q, v) as one row."""
    if isinstance(sol, RunState):  # its a and λ are those of the method, at other times
        sol = sol.t, sol.q, sol.v
    if type(sol) is tuple and len(sol) == 3:
        sol = SimpleNamespace(t=sol[0], q=np.asarray(sol[1]), v=np.asarray(sol[2]))
    given: dict[str, Any] = {name: getattr(sol, name, None) for name in ("t", "q", "v")}
    missing = [repr(name) for name, x in given.items() if x is None]
    if missing and hasattr(sol, "status"):
        raise ValueError(f"a motion needs q and v, but the solution has not saved {' and '.join(missing)}")
    if any(x is None for x in given.values()):
        what = "a solution, a state or an equilibrium"
        raise TypeError(f"a motion needs {what} of the model, got {type(sol).__name__}")
    if is_traced(*given.values()):
        raise TypeError(
            "a motion is made of numbers, but this run is traced by JAX: inside of jit, grad or vmap use "
            "sol.q, sol.v and sol.lam, and make a motion of the result of a plain run"
        )
    if np.ndim(given["q"]) == 3:
        raise ValueError("a motion needs one run, but this is a batch: pass one of its members, batch[i]")
    if np.ndim(given["q"]) == 1 and np.ndim(given["t"]) == 0:
        known = {name: getattr(sol, name, None) for name in _IN_ROWS}
        sol = SimpleNamespace(**{name: np.asarray(x)[None] for name, x in known.items() if x is not None})
    q, v = np.asarray(sol.q), np.asarray(sol.v)
    states = getattr(sol, "z", None)
    if states is not None and states.shape[-1]:  # an assembly of the model and of first-order states
        v = v[..., : -states.shape[-1]]
    found = [x.shape[-1] if x.ndim == 2 else 0 for x in (q, v)]
    if found != [len(model.q0), len(model.v0)]:
        raise ValueError(
            f"the solution has {found[0]} coordinates and {found[1]} velocities in a row, "
            f"and {model!r} has {len(model.q0)} and {len(model.v0)}: "
            "pass a solution of this model that saved all of q and v"
        )
    for phase in getattr(sol, "phases", None) or ():
        _check_parts(model, phase.system)
    if hasattr(sol, "labels"):
        _check_names(model, sol.labels)
    return sol


def _check_parts(model: Model, system: Any) -> None:
    """Refuse a run from before joints or forces were added, or rows left out: it has other multipliers.

    Parts of the user's own may follow those of the model.
    """
    own = model.system.parts
    if system is model.system:
        return
    both = zip(own, getattr(system, "parts", ()), strict=False)
    same = [x.label == y.label and np.array_equal(x.nodes, y.nodes) for x, y in both]
    if len(same) < len(own) or not all(same):
        raise of_another(model)


def _check_names(model: Model, labels: Labels) -> None:
    """The same by names of rows: not all solutions know their system. Rows of the user's own may follow."""
    own = model.system.labels
    for kind in LISTS if labels.q else ():
        there, here = getattr(labels, kind), getattr(own, kind)
        if there[: len(here)] != here:
            raise of_another(model)


def of_another(model: Model) -> ValueError:
    """The error for a run that was not one of this model as it is now."""
    return ValueError(
        f"the solution is of another model, or joints or forces of {model!r} were added or left out "
        "after the run, or rows of joints: solve again"
    )

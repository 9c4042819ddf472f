"""Discrete controllers: functions that are called at sample times, whose output is held between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.numerics.data import Signals, State

# Times that differ by less than this fraction of the sample time are the same.
_SAME = 1e-6


class ControlRecord(NamedTuple):
    """The samples of a run: times t (K,), and the output u and the state s after each, (K, ...)."""

    t: np.ndarray
    u: Any
    s: Any


@dataclass(frozen=True, eq=False)
class Controller:
    """A discrete controller with a sample time, a state of its own, and a held output.

    Parameters
    ----------
    sample : the sample time.
    update : function (t, q, v, s, *args) -> (s, u), called once at every sample with the state of the system
        there. It runs in Python and may use NumPy. The first-order states of a system follow v.
    u0 : the output before the first sample: a number, an array, or a tree of them. Every u has this form.
    s0 : the state of the controller before the first sample, in the same way. The default is none.
    offset : samples are at offset + k · sample. The default is 0.
    into : function (args, u) -> args, for an :class:`Assembly`: the args of its parts with the output;
        ``update`` gets no args then. A multibody model needs none: there, u is a dictionary of numbers by
        the names of ``model.values``.

    Pass it as ``ga.solve(..., controller=...)``. Functions of the system get one more argument c after
    ``args``. ``c.u`` is the output that holds now, and ``c.s`` is the state. A sample at the start counts,
    one at the end does not: it belongs to a run that continues. ``sol.control`` lists the samples. All
    numbers are doubles. Steps end at the samples; with ``h``, a whole number of steps must fit between them.

    A cart that is braked by a force that is decided every 0.1 s:

    >>> import jax.numpy as jnp, genalpha as ga
    >>> cart = ga.System(jnp.eye(1), lambda t, q, v, c: jnp.array([c.u]))
    >>> brake = ga.Controller(0.1, lambda t, q, v, s: (s + 1, -2.0 * v[0]), u0=0.0, s0=0)
    >>> sol = ga.solve(cart, (0.0, 1.0), [0.0], [1.0], h=0.05, controller=brake)
    >>> float(sol.v[-1, 0].round(9)), 0.8**10
    (0.107374182, 0.10737418240000006)
    >>> sol.control.u[:3].round(3).tolist(), float(sol.control.s[-1])
    ([-2.0, -1.6, -1.28], 10.0)
    """

    sample: float
    update: Callable[..., Any]
    u0: Any
    s0: Any = ()
    offset: float = 0.0
    into: Callable[[tuple[Any, ...], Any], tuple[Any, ...]] | None = None
    first: Signals = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("sample", "offset"):
            value = getattr(self, name)
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or (name == "sample" and not value > 0):
                kind = "positive number" if name == "sample" else "finite number"
                raise ValueError(f"{name} of a controller must be a {kind}, got {value!r}")
        if not callable(self.update):
            raise TypeError(
                f"update of a controller must be a function (t, q, v, s, *args), got {self.update!r}"
            )
        first = Signals(_numbers("u0", self.u0), _numbers("s0", self.s0))
        object.__setattr__(self, "first", first)

    def put(self, args: tuple[Any, ...], signals: Signals) -> tuple[Any, ...]:
        """The args of a system with signals. They are the last of them."""
        return (*(args if self.into is None else self.into(tuple(args), signals.u)), signals)

    def due(self, t: float) -> bool:
        """Whether there is a sample at time t."""
        k = (t - self.offset) / self.sample
        return abs(k - round(k)) <= _SAME

    def after(self, t: float) -> float:
        """The time of the first sample after time t."""
        return self.offset + self.sample * (math.floor((t - self.offset) / self.sample + _SAME) + 1)

    def times(self, first: float, last: float) -> np.ndarray:
        """The times of all samples from ``first`` to before ``last``."""
        begin = first if self.due(first) else self.after(first)
        return begin + self.sample * np.arange(max(0, math.ceil((last - begin) / self.sample - _SAME)))

    def updated(self, at: State, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The args of the system after the sample at a state. The last of them are the signals."""
        *own, held = args
        t = float(at.t)
        copy = lambda tree: jax.tree.map(np.array, tree)  # the function may change it in place
        try:
            given = own if self.into is None else ()
            found = self.update(t, np.array(at.q), np.array(at.v), copy(held.s), *given)
        except Exception as error:
            error.add_note(f"This happened in update of the controller at t = {t:.9g}.")
            raise
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise TypeError(f"update of the controller must return (s, u), got {found!r} at t = {t:.9g}")
        new = Signals(*(_numbers(name, x, t) for name, x in (("u", found[1]), ("s", found[0]))))
        for name, before, after in zip(Signals._fields, held, new, strict=True):
            forms = [jax.tree.map(np.shape, x) for x in (before, after)]
            if forms[0] != forms[1]:
                raise ValueError(
                    f"update of the controller returned {name} of the form {forms[1]} at t = {t:.9g}, but "
                    f"{name}0 has the form {forms[0]}: both must be alike"
                )
        return self.put(tuple(own), new)


def _numbers(name: str, tree: Any, t: float | None = None) -> Any:
    """A tree of finite doubles."""
    where = "of a controller" if t is None else f"that update of the controller returned at t = {t:.9g}"
    try:
        found = jax.tree.map(lambda x: np.array(x, dtype=float), tree, is_leaf=lambda x: isinstance(x, list))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} {where} must be numbers or a tree of them: {error}") from error
    if not all(np.isfinite(x).all() for x in jax.tree.leaves(found)):
        raise ValueError(f"{name} {where} holds NaN or infinite values")
    return found


def stacked(samples: list[tuple[float, Signals]]) -> ControlRecord:
    """The record of some samples. Of samples at one time the last counts."""
    kept = dict(samples)
    rows = jax.tree.map(lambda *each: np.stack(each), *kept.values()) if kept else Signals(None, None)
    return ControlRecord(np.array(list(kept)), *rows)

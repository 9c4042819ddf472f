"""Joins the solutions of phases, such as contact and flight, to one solution."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.engine.interpolate import StepEnd
from genalpha.mechanics.labels import NO_LABELS, Labels
from genalpha.results.deferred import Deferred
from genalpha.results.output import NAMES
from genalpha.results.phases import Phase, Phases, stacked
from genalpha.results.records import COUNTS, Stats
from genalpha.results.solution import Solution

# Differences that count as rounding: of t, relative to t and to the span; of q and v, relative to 1 + |q|.
_TIME, _MOTION = 1e-9, 1e-8
_OF_EVENTS = tuple(f"{name}_events" for name in ("t", "q", "v", "lam", "psi"))


def concatenate(*solutions: Solution, jumps: bool = False) -> Solution:
    """One solution out of the solutions of phases, each of which starts where the one before it ends.

    The phases may have different args or step sizes, or be different systems with the same coordinates, such
    as a body in contact and in flight. ``sol.phases`` lists them. Where two phases meet, the solution has two
    rows, one of each, as at a reset; ``sol(t)`` belongs to the first one there. Accelerations, multipliers,
    reactions and residuals are those of each phase. If a system has fewer constraints than another one, the
    columns of ``lam`` and ``psi`` that it does not have are NaN. Quantities that a phase has not kept are
    None. Totals in ``stats`` are added up; status, message and state are those of the last phase.

    Events that several phases have in common (the same function, direction, terminal and reset) have one list
    in ``t_events`` and the others, in the order in which the events first occur. Solutions from files do not
    know their functions, so their events get lists of their own.

    Raises a ValueError if times, q or v do not meet. With ``jumps=True`` q and v may jump, as in an impact.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> point = ga.System(jnp.eye(1), lambda t, q, v, force: jnp.array([1.0]) * force)
    >>> push = ga.solve(point, (0.0, 1.0), [0.0], [0.0], h=0.1, args=(2.0,))
    >>> coast = ga.solve(point, (1.0, 3.0), push.q[-1], push.v[-1], h=0.1, args=(0.0,))
    >>> both = ga.concatenate(push, coast)
    >>> both.q[-1].round(9).tolist(), both([0.5, 2.5]).a.tolist(), both.stats.steps
    ([5.0], [[2.0], [0.0]], 30)
    """
    parts = _checked(solutions)
    for i in range(1, len(parts)):
        _meet(parts[i - 1], parts[i], i, jumps)
    last, rows = parts[-1], {name: _joined(parts, name) for name in (*NAMES, "t_alpha", "error")}
    stats = {key: sum(int(getattr(sol.stats, key)) for sol in parts) for key in COUNTS}
    fallback = next((sol.stats.fallback for sol in parts if sol.stats.fallback), None)
    complete, connected = all(sol.complete for sol in parts), all(sol.phases for sol in parts)
    nodes = None if complete else _nodes(parts, connected)
    kinds = _kinds_of_events(parts)
    rows |= {name: _events(parts, name, kinds) for name in _OF_EVENTS}
    together = dataclasses.replace(
        last,
        **rows,
        t=np.concatenate([sol.t for sol in parts]),
        stats=Stats(**stats, fallback=fallback),
        method=", ".join(dict.fromkeys(sol.method for sol in parts)),
        backend=", ".join(dict.fromkeys(sol.backend for sol in parts)),
        not_unique=tuple(sorted({i for sol in parts for i in sol.not_unique})),
        nodes=nodes,
        complete=complete,
        **_labels(parts),
    )
    if not connected:
        return together
    return together.connected(last.__dict__["_later"], _phases(parts, kinds))


def _labels(parts: list[Solution]) -> dict[str, Any]:
    """Names and units that all parts have in common, if they kept the same entries."""
    if len({sol.entries for sol in parts}) > 1:
        return {"labels": NO_LABELS, "entries": ()}
    each = zip(*(sol.labels for sol in parts), strict=True)
    return {"labels": Labels(*(one[0] if len(set(one)) == 1 else type(one[0])() for one in each))}


def _checked(solutions: Sequence[Any]) -> list[Solution]:
    """The solutions, if they are single runs in the same space."""
    if not solutions:
        raise TypeError("ga.concatenate needs at least one solution: pass sol1, sol2, ...")
    for i, sol in enumerate(solutions):
        if not isinstance(sol, Solution):
            raise TypeError(
                f"ga.concatenate joins solutions, but solution {i} is a {type(sol).__name__}: pass sol1, sol2"
            )
        if isinstance(sol.status, jax.core.Tracer):
            raise TypeError("ga.concatenate needs known numbers: call it outside of jit, vmap and grad")
        if np.ndim(sol.status):
            raise TypeError(f"solution {i} is a batch: join its members one by one, such as sol[0]")
        first = solutions[0]
        for name in ("q", "v"):
            ours, theirs = (np.shape(getattr(x, name)) for x in (sol, first))
            if ours and theirs and ours[1:] != theirs[1:]:
                raise ValueError(
                    f"{name} has {ours[1]} entries in solution {i}, but {theirs[1]} in solution 0: all must "
                    "have the same coordinates"
                )
        if repr(sol.space) != repr(first.space):
            raise ValueError(
                f"solution {i} is in the space {sol.space}, but solution 0 in {first.space}: all must have "
                "the same coordinates"
            )
    return list(solutions)


class _End(NamedTuple):
    """The start or the end of a solution; q and v are None if they were not kept."""

    t: float
    q: Any
    v: Any


def _end(sol: Solution, first: bool) -> _End:
    index = 0 if first else -1
    if sol.nodes is not None:
        return _End(float(sol.nodes.t[index]), sol.nodes.q[index], sol.nodes.v[index])
    t = float(sol.phases[0].t0 if first else sol.t_end) if sol.phases else float(sol.t[index])
    kept = len(sol.t) > 0 and sol.t[index] == t
    row = lambda x: x[index] if kept and x is not None else None
    return _End(t, row(sol.q), row(sol.v))


def _meet(before: Solution, after: Solution, i: int, jumps: bool) -> None:
    """Raise if the start of solution ``i`` is not the end of the one before it."""
    (t1, *old), (t0, *new) = _end(before, first=False), _end(after, first=True)
    if abs(t1 - t0) > _TIME * (abs(t1) + abs(t1 - _end(before, first=True).t)):
        raise ValueError(
            f"solution {i} starts at t = {t0:.9g}, but solution {i - 1} ends at t = {t1:.9g}, {t0 - t1:.3g} "
            "apart: each must start where the one before it ends"
        )
    for name, a, b in zip("qv", old, new, strict=True):
        if jumps or a is None or b is None:
            continue
        off = np.abs(np.asarray(b) - a)
        if off.max() > _MOTION * (1 + np.abs(a).max()):
            k = int(off.argmax())
            raise ValueError(
                f"at t = {t0:.9g} {name}[{k}] is {b[k]:.9g} in solution {i}, but {a[k]:.9g} at the end of "
                f"solution {i - 1}: start where the one before ends, or pass jumps=True if it is an impact"
            )


def _joined(parts: list[Solution], name: str) -> Any:
    """A quantity of all rows, computed on first access; None if a part has not kept it."""
    if any(sol.__dict__.get(name, True) is None for sol in parts):
        return None

    def join() -> Any:
        found = [getattr(sol, name) for sol in parts]
        if isinstance(found[0], dict):
            shared = [key for key in found[0] if all(key in each for each in found)]
            return {key: stacked(*(each[key] for each in found)) for key in shared}
        return jax.tree.map(lambda *each: stacked(*each), *found)

    return Deferred(join) if any(name in sol._deferred for sol in parts) else join()


def _nodes(parts: list[Solution], connected: bool) -> StepEnd | None:
    """The ends of all steps of all parts, if they are known."""
    if not all(sol.complete or sol.nodes is not None for sol in parts):
        return None
    own = lambda sol: sol.nodes if connected else sol._nodes_for_a_file()
    found = [sol._rows_as_nodes(connected) if sol.nodes is None else own(sol) for sol in parts]
    return jax.tree.map(lambda *each: stacked(*each), *found)


def _phases(parts: list[Solution], kinds: list[Any]) -> Phases:
    found: list[Phase] = []
    first = 0
    for sol in parts:
        for phase in sol.phases or ():
            rows = slice(first + phase.rows.start, first + phase.rows.stop)
            number = phase.nodes if sol.nodes is not None else rows.stop - rows.start
            found.append(dataclasses.replace(phase, rows=rows, nodes=number))
        first += len(sol.t)
    return Phases(found, tuple(kinds))


def _kinds_of_events(parts: list[Solution]) -> list[Any]:
    """All different events of the parts, in the order in which they first occur."""
    return list(dict.fromkeys(event for i in range(len(parts)) for event in _own_events(parts, i)))


def _own_events(parts: list[Solution], i: int) -> Sequence[Any]:
    """The events of one part. Those of a solution from a file are only known to be different from others."""
    sol = parts[i]
    if sol.t_events is None:
        return ()
    events = sol.__dict__["_equations"].events if sol.phases else ()
    return events if len(events) == len(sol.t_events) else [(i, k) for k in range(len(sol.t_events))]


def _events(parts: list[Solution], name: str, kinds: list[Any]) -> list[np.ndarray] | None:
    """``t_events`` or another list of the events of all parts."""
    if all(sol.t_events is None for sol in parts):
        return None
    found: dict[Any, list[np.ndarray]] = {kind: [] for kind in kinds}
    for i, sol in enumerate(parts):
        for kind, rows in zip(_own_events(parts, i), getattr(sol, name) or (), strict=True):
            found[kind].append(rows)
    return [stacked(*rows) for rows in found.values()]

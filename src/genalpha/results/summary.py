"""A solution in words: its end and its work, values by name, residuals, digits, and what to look at."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from genalpha.mechanics.html import card
from genalpha.numerics import codes
from genalpha.results import named

if TYPE_CHECKING:
    from genalpha.results.solution import Solution

_SYMBOLS = {"q": "q", "v": "v", "a": "v'", "lam": "λ", "psi": "ψ"}
_MOST_VALUES, _MOST_MEMBERS = 8, 6
_MOST_MASSES = 100  # of velocities: larger mass matrices are not computed for a summary


def text(sol: Solution) -> str:
    """A few lines about a single run or a batch."""
    if np.ndim(sol.status):
        return "\n".join(_of_batch(sol))
    lines = [f"{sol.method}, {sol.backend}: {sol.message}", *(f"{head}: {told}" for head, told in _work(sol))]
    values = _values(sol)
    width = max((len(row[0]) for row in values), default=0)
    lines += [f"{key:{width}}  {first:>12}  {last:>12}  {unit}".rstrip() for key, first, last, unit in values]
    lines += [f"{head}: {told}" for head, told in (*_quality(sol), *_digits(sol))]
    return "\n".join(lines + _advice(sol))


def html(sol: Solution) -> str:
    """The same as a small table for notebooks."""
    if isinstance(sol.status, jax.core.Tracer):
        return card(repr(sol), [])
    if np.ndim(sol.status):
        first, *rest = _of_batch(sol)
        return card(first, (line.partition(": ")[::2] for line in rest))
    rows: list[Any] = [("status", sol.message), *_work(sol), *_values(sol), *_quality(sol), *_digits(sol)]
    return card(f"Solution by {sol.method}, {sol.backend}", rows)


def _work(sol: Solution) -> list[tuple[str, str]]:
    """The time span and the work."""
    stats, unit = sol.stats, f" {sol.labels.time}" if sol.labels.time else ""
    steps = f"{stats.steps} steps" + (f", {stats.rejected} rejected" if stats.rejected else "")
    steps += f", {stats.newton_iterations} Newton iterations, {stats.jacobians} matrices"
    first = f"{sol.t[0]:.9g} to " if len(sol.t) else "up to "
    found = [("t", f"{first}{sol.t_end:.9g}{unit}, {len(sol.t)} rows"), ("work", steps)]
    return found + ([("by XLA", stats.fallback)] if stats.fallback else [])


def _values(sol: Solution) -> list[tuple[str, str, str, str]]:
    """First and last values of coordinates, velocities and multipliers, by name, with units."""
    if not len(sol.t):
        return []
    rows = [("", "first", "last", "")]
    for kind in named.kept(sol):
        if kind == "a":
            continue
        values, keys, units = np.asarray(getattr(sol, kind)), named.keys(sol, kind), named.units(sol, kind)
        for i, key in enumerate(keys[:_MOST_VALUES]):
            rows.append((key, f"{values[0, i] + 0.0:.6g}", f"{values[-1, i] + 0.0:.6g}", units[i]))
        if len(keys) > _MOST_VALUES:
            rows.append((f"and {len(keys) - _MOST_VALUES} more", "", "", ""))
    return rows if len(rows) > 1 else []


def _quality(sol: Solution) -> list[tuple[str, str]]:
    """Residuals of constraints, and kinetic energy if the equations of motion are at hand."""
    found = []
    if sol.residuals is not None and len(sol.t):
        largest = {name: float(np.max(r)) for name, r in sol.residuals._asdict().items() if np.any(r)}
        if largest:
            told = ", ".join(f"{name} {value:.1e}" for name, value in largest.items())
            found.append(("largest residuals", told))
    phases = sol.phases
    whole = sol.q is not None and sol.v is not None and not sol.entries and len(sol.t)
    if phases and whole and sol.v.shape[1] <= _MOST_MASSES:
        first, last = (_kinetic(sol, row) for row in (0, len(sol.t) - 1))
        found.append(("kinetic energy", f"{first:.6g} in the first row, {last:.6g} in the last"))
    return found


def _kinetic(sol: Solution, row: int) -> float:
    phase = next(one for one in sol.phases or () if one.rows.start <= row < one.rows.stop)
    v, M = sol.v[row], np.asarray(phase.system.M(sol.t[row], sol.q[row], phase.args))
    v = np.where(phase.system.space.moved(len(v)), v, 0.0)  # first-order states have no energy
    return float(v @ M @ v / 2)


def _digits(sol: Solution) -> list[tuple[str, str]]:
    """Estimated global errors and digits."""
    if sol.error is None:
        return [("global error", "not estimated, pass accuracy to ga.solve")]
    found = []
    for name, symbol in _SYMBOLS.items():
        value, error = getattr(sol, name), getattr(sol.error, name)
        if value is None or not np.size(error):
            continue
        largest, size = float(np.max(error)), float(np.max(np.abs(value)))
        told = f"error {largest:.1e}"
        if size > 0:
            digits = max(0, math.floor(-math.log10(max(largest / size, 1e-16))))
            told += f", largest value {size:.4g}, {digits} digits"
        found.append((symbol, told))
    return found


def _advice(sol: Solution) -> list[str]:
    """What to look at after a failure."""
    if sol.success:
        return []
    lines = ["what to look at: docs/failures.md explains the message"]
    if len(sol.t) > 1 and sol.v is not None:
        last = np.abs(np.asarray(sol.v)[-1])
        keys = named.keys(sol, "v")
        fast = [f"{keys[i]} = {sol.v[-1, i]:.3g}" for i in np.argsort(-last)[:3] if last[i] > 0]
        lines += [f"  largest velocities of the last row: {', '.join(fast)}"] if fast else []
    if sol.newton is not None and len(sol.newton.iterations):
        counts = ", ".join(map(str, sol.newton.iterations[-5:].tolist()))
        lines.append(f"  Newton iterations of the last good steps: {counts}")
    return lines


def _of_batch(sol: Solution) -> list[str]:
    """How the members of a batch ended."""
    status, steps = np.asarray(sol.status), np.asarray(sol.stats.steps)
    lines = [f"{sol.method}, {sol.backend}: {sol.message}"]
    lines.append(f"steps: {steps.min()} to {steps.max()} a member, {np.shape(sol.t)[1]} rows kept")
    for name, values in sol.parameters.items():
        lines.append(f"{name}: {np.min(values):.6g} to {np.max(values):.6g}")
    for code, count in Counter(status[status != codes.SUCCESS].tolist()).most_common():
        members = np.flatnonzero(status == code)
        which = ", ".join(map(str, members[:_MOST_MEMBERS].tolist()))
        more = ", ..." if count > _MOST_MEMBERS else ""
        lines.append(f"{codes.reason(code, sol.rotations)}: {count} members, numbers {which}{more}")
    return lines

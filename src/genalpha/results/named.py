"""Quantities of a solution by name: what ``sol["x"]``, tables and plots mean by a key."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from genalpha.mechanics.labels import Labels

if TYPE_CHECKING:
    from genalpha.results.solution import Solution

# Quantities with one column for each entry, and the list of names that they have.
QUANTITIES = {"q": "q", "v": "v", "a": "a", "lam": "holonomic", "psi": "nonholonomic"}
RESIDUALS = ("position", "velocity", "nonholonomic")
_NUMBERED = re.compile(rf"({'|'.join(QUANTITIES)})\[(\d+)\]")
_UNDERLINED = re.compile(r"^(lam|psi)_(.+)$")  # lam_rod is short for lam[rod]
_MOST_LISTED = 12


class NamedColumn(NamedTuple):
    """One quantity over time: its key, its kind ("q", "v", ...), its unit, and values (..., K)."""

    key: str
    kind: str
    unit: str
    values: Any


def places(sol: Solution, kind: str) -> Sequence[int]:
    """The numbers of the entries that the columns of a quantity hold."""
    return dict(sol.entries).get(kind) or range(getattr(sol, kind).shape[-1])


def entries(sol: Solution, kind: str) -> list[str]:
    """The names of the columns of a quantity: those of its entries, or their numbers such as ``v[0]``."""
    names, number = getattr(sol.labels, QUANTITIES[kind]), QUANTITIES[kind]
    return [names[i] if names else f"{number}[{i}]" for i in places(sol, kind)]


def keys(sol: Solution, kind: str) -> list[str]:
    """The keys of the columns of a quantity. Multipliers have those of their constraints in brackets."""
    if kind not in ("lam", "psi"):
        return entries(sol, kind)
    names = getattr(sol.labels, QUANTITIES[kind])
    return [f"{kind}[{names[i] if names else i}]" for i in places(sol, kind)]


def units(sol: Solution, kind: str) -> list[str]:
    """The units of the columns of a quantity, empty where they are not known."""
    known = getattr(sol.labels, f"{QUANTITIES[kind]}_units")
    return [known[i] if known else "" for i in places(sol, kind)]


def of_kind(sol: Solution, kind: str) -> list[NamedColumn]:
    """All columns of a quantity."""
    values = getattr(sol, kind)
    both = zip(keys(sol, kind), units(sol, kind), strict=True)
    return [NamedColumn(key, kind, unit, values[..., i]) for i, (key, unit) in enumerate(both)]


def kept(sol: Solution) -> list[str]:
    """The quantities with columns that the solution has."""
    every = {kind: getattr(sol, kind) for kind in QUANTITIES}
    return [kind for kind, values in every.items() if values is not None and values.shape[-1]]


def chosen(sol: Solution, wanted: Sequence[str]) -> list[NamedColumn]:
    """The columns with these keys. A key may be a whole quantity, such as "q" or "residuals"."""
    columns: list[NamedColumn] = []
    for key in wanted:
        if not isinstance(key, str):
            raise TypeError(f"names of quantities must be strings such as 'q' or 'lam[0]', got {key!r}")
        if key == "residuals":
            columns += [_residual(sol, name) for name in residuals(sol)]
        elif key.startswith("residuals.") and key.removeprefix("residuals.") in RESIDUALS:
            columns.append(_residual(sol, key.removeprefix("residuals.")))
        elif key in QUANTITIES and key not in _index(sol.labels):
            _values(sol, key)
            columns += of_kind(sol, key)
        else:
            columns.append(column(sol, key))
    return columns


def residuals(sol: Solution) -> list[str]:
    """The residuals of those kinds of constraints that the system has, as far as is known."""
    of = {"position": sol.lam, "velocity": sol.lam, "nonholonomic": sol.psi}
    return [name for name, values in of.items() if values is None or values.shape[-1]]


def _residual(sol: Solution, name: str) -> NamedColumn:
    return NamedColumn(f"residuals.{name}", "residuals", "", getattr(_values(sol, "residuals"), name))


def found(sol: Solution, key: str) -> Any:
    """What ``sol[key]`` means: a column, a whole quantity, or a parameter of a batch."""
    if key not in _index(sol.labels):
        if key in (*QUANTITIES, "t"):
            return _values(sol, key)
        if key in sol.parameters:
            return sol.parameters[key]
        if key.startswith("residuals."):
            return chosen(sol, [key])[0].values
    return column(sol, key).values


def column(sol: Solution, key: str) -> NamedColumn:
    """The column with this key."""
    number, index = _NUMBERED.fullmatch(key), _index(sol.labels)
    at = index.get(key) or index.get(_UNDERLINED.sub(r"\1[\2]", key))
    at = at or (number and (number[1], int(number[2])))
    if not at:
        raise KeyError(_unknown(sol, key))
    kind, place = at
    values, known = _values(sol, kind), places(sol, kind)
    if place not in known:
        told = f"0 to {known[-1]}" if isinstance(known, range) and known else ", ".join(map(str, known))
        raise KeyError(
            f"the solution has no {key}: of {kind} it has {f'the entries {told}' if told else 'none'}"
        )
    i = known.index(place)
    return NamedColumn(keys(sol, kind)[i], kind, units(sol, kind)[i], values[..., i])


def _values(sol: Solution, kind: str) -> Any:
    values = getattr(sol, kind)
    if values is None:
        raise KeyError(f"the solution has no {kind}, because save left it out: name it in save")
    return values


@functools.lru_cache(maxsize=16)
def _index(labels: Labels) -> dict[str, tuple[str, int]]:
    """Which quantity and which of its entries a name belongs to."""
    known: dict[str, tuple[str, int]] = {}
    for kind, listed in QUANTITIES.items():
        shown = "{}" if kind not in ("lam", "psi") else kind + "[{}]"
        known |= {shown.format(name): (kind, i) for i, name in enumerate(getattr(labels, listed))}
    return known


def _unknown(sol: Solution, key: str) -> str:
    """A message about a wrong key, with those that are near. (KeyError escapes quotes, so it has none.)"""
    for kind in ("lam", "psi"):
        if key in getattr(sol.labels, QUANTITIES[kind]):
            return f"{key} is a constraint: its multiplier is {kind}[{key}]"
    known = [*_index(sol.labels), *sol.parameters]
    lower = {name.lower(): name for name in known}
    near = [lower[name] for name in difflib.get_close_matches(key.lower(), lower, n=4)]
    if near:
        return f"the solution has no {key}. Near names: {', '.join(near)}"
    more = f" and {len(known) - _MOST_LISTED} more" if len(known) > _MOST_LISTED else ""
    listed = f"Its names are {', '.join(known[:_MOST_LISTED])}{more}. " if known else ""
    return f"the solution has no {key}. {listed}Numbers work too, such as q[0], v[0] and lam[0]"

"""Small tables in notebooks. All text is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genalpha.mechanics.system import System

_MOST_NAMES = 12


def card(title: str, rows: Iterable[Sequence[str]]) -> str:
    """A table with a title. The first cell of a row is its heading.

    >>> card("a < b", [("q", "1")])
    '<table><caption>a &lt; b</caption><tr><th>q</th><td>1</td></tr></table>'
    """
    escaped = [[html.escape(str(cell)) for cell in row] for row in rows]
    lines = [
        f"<tr><th>{head}</th>{''.join(f'<td>{cell}</td>' for cell in rest)}</tr>" for head, *rest in escaped
    ]
    return f"<table><caption>{html.escape(title)}</caption>{''.join(lines)}</table>"


def listed(names: Sequence[str]) -> str:
    """The first names of a list.

    >>> listed(["x", "y"])
    'x, y'
    """
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def of_system(system: System, title: str = "System") -> str:
    """A system: its functions, its space, and its names with units."""
    labels = system.labels
    functions = ["constant mass" if system.constant_mass else "mass", "force"]
    functions += [
        name for name in ("holonomic", "nonholonomic", "reaction") if getattr(system, name) is not None
    ]
    space = repr(system.space)
    rows = [
        ("functions", ", ".join(functions)),
        ("space", space if len(space) < 80 else type(system.space).__name__),
    ]
    for kind in ("q", "v", "holonomic", "nonholonomic"):
        names, units = getattr(labels, kind), labels.q_units if kind == "q" else labels.v_units
        if units and kind in ("q", "v"):  # those of constraints belong to multipliers
            names = [f"{name} [{unit}]" for name, unit in zip(names, units, strict=False)]
        if names:
            rows.append((kind, listed(names)))
    return card(title, rows)

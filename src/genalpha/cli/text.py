"""Text for terminals with 80 columns, and JSON."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

WIDTH = 80
_MOST_ENTRIES = 12  # longer vectors are shortened


def table(rows: Iterable[Sequence[str]], least: int = 0) -> str:
    """Rows as a table. Columns are two blanks apart, and the first is at least ``least`` wide.

    The last column is wrapped. Words are never cut, so that a path can be copied.

    >>> print(table([("q", "coordinates"), ("lam", "multipliers")]))
    q    coordinates
    lam  multipliers
    """
    rows = [tuple(row) for row in rows]
    fixed = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    fixed[0] = max(fixed[0], least)
    indent = " " * (sum(fixed) + 2 * len(fixed))
    lines = []
    for row in rows:
        start = "".join(cell.ljust(size + 2) for cell, size in zip(row, fixed, strict=False))
        for part in row[-1].splitlines():
            options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
            lines += textwrap.wrap(part, WIDTH, initial_indent=start, subsequent_indent=indent, **options)
            start = indent
    return "\n".join(lines)


def vector(values: Any, width: int) -> str:
    """The entries of a vector in lines of at most ``width``. If there are many, the first and last four.

    >>> vector(np.arange(3) / 4, 40)
    '[0.   0.25 0.5 ]'
    >>> vector(np.zeros(30), 40)
    '[0. 0. 0. 0. ... 0. 0. 0. 0.] (30 in all)'
    """
    text = np.array2string(
        np.asarray(values), max_line_width=width, precision=6, threshold=_MOST_ENTRIES, edgeitems=4
    )
    count = f" ({len(values)} in all)" if len(values) > _MOST_ENTRIES else ""
    return text + count


def as_json(value: Any) -> str:
    """A tree of dicts, lists, arrays and numbers as JSON. NaN and infinite numbers become null.

    >>> as_json({"q": np.array([1.0, np.nan])})
    '{"q": [1.0, null]}'
    """
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

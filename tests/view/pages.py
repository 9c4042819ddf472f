"""What is in a page, read without the code that wrote it; and a solution to look at."""

from __future__ import annotations

import base64
import functools
import json
import re
from typing import Any

import numpy as np

import genalpha as ga
from conftest import problem


@functools.cache
def crank() -> ga.Solution:
    return problem("slider-crank").solve(t_end=0.4)


def rod(t, q):
    """The connecting rod of the slider crank, as a function with NumPy."""
    return q[3:5], q[5]


def disk() -> ga.Solution:
    """A disk that rolls, on R³×SO(3)."""
    found = ga.problems.get("rolling-disk", space="R3xSO3")
    return found.solve(t_end=1.0)


def scene(text: str) -> dict[str, Any]:
    """The data in a page."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found)


def numbers(text: str, width: int) -> np.ndarray:
    """An array (K, width) of single precision."""
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(-1, width)


def times(data: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(data["times"]), "<f8")


def item(data: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [x for x in data["items"] if x["name"] == name]
    return found

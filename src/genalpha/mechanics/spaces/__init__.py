"""Configuration spaces: the set of all q, and how a velocity changes q."""

from __future__ import annotations

import ast
import re

from genalpha.mechanics.spaces._base import Space
from genalpha.mechanics.spaces.euclidean import Euclidean
from genalpha.mechanics.spaces.product import Product
from genalpha.mechanics.spaces.rotations import SE3, SO3, R3xSO3
from genalpha.mechanics.spaces.states import States

__all__ = ["SE3", "SO3", "Euclidean", "Product", "R3xSO3", "Space", "States", "named"]

_KNOWN: dict[str, type[Space]] = {
    "SE3": SE3,
    "SO3": SO3,
    "Euclidean": Euclidean,
    "Product": Product,
    "R3xSO3": R3xSO3,
    "States": States,
}


_WRITTEN = re.compile(rf"((?:{'|'.join(_KNOWN)})\(|n=(?:\d{{1,9}}|None)|\)|, )+")


def named(text: str | None) -> Space | None:
    """The space whose ``repr`` is ``text``; None if it is not a space of this package.

    Nothing in the text is executed. A text with any other characters or names is rejected.

    >>> named("Product(R3xSO3(), Euclidean(n=2))") == Product(R3xSO3(), Euclidean(2))
    True
    >>> named("Product(open('file'))") is None
    True
    """

    def made(node: ast.expr) -> Space:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _KNOWN):
            raise ValueError
        options = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg}
        return _KNOWN[node.func.id](*map(made, node.args), **options)

    if not isinstance(text, str) or not _WRITTEN.fullmatch(text):
        return None
    try:
        return made(ast.parse(text, mode="eval").body)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        return None

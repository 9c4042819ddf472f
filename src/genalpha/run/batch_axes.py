"""Finds out which arrays of a batch vary from member to member."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from genalpha.mechanics.system import Args, System
from genalpha.run import arguments


def member(values: Any, axes: Any, i: int) -> Any:
    """The part of ``values`` that belongs to member ``i``."""
    return jax.tree.map(lambda x, varies: x[i] if varies else x, values, axes)


def varied(args: Args, axes: Any) -> dict[str, np.ndarray]:
    """The numbers in ``args`` that vary from member to member (B,), by names such as ``args.0.mass``."""
    leaves, flags = jax.tree_util.tree_leaves_with_path(args), jax.tree.leaves(axes)
    name = lambda path: "args." + jax.tree_util.keystr(path, simple=True, separator=".")
    numbers = (
        (path, x) for (path, x), varies in zip(leaves, flags, strict=True) if varies and np.ndim(x) == 1
    )
    return {name(path): np.asarray(x) for path, x in numbers}


def find_axes(system: System, t: float, q: Any, v: Any, args: Args, chosen: Any) -> tuple[Any, int]:
    """Which leaves of args vary, as a tree of booleans, and the number of members."""
    leaves, structure = jax.tree.flatten(args)
    names = [f"args{jax.tree_util.keystr(path)}" for path, _ in jax.tree_util.tree_leaves_with_path(args)]
    sizes = {name: len(x) for name, x in (("q0", q), ("v0", v)) if x.ndim == 2}
    refused: list[Exception] = []
    if isinstance(chosen, str):
        if chosen != "auto":
            raise ValueError(f'args_axes must be "auto" or a tree of 0 and None, got {chosen!r}')
        candidates = {n: len(x) for n, x in zip(names, leaves, strict=True) if np.ndim(x)}
        possible = list(dict.fromkeys((sizes or candidates).values()))
        if len(possible) == 1 or not sizes:
            for count in possible:
                flags = [np.ndim(x) > 0 and len(x) == count for x in leaves]
                for choice in _choices(flags):
                    axes = jax.tree.unflatten(structure, choice)
                    one = member((q, v, args), (q.ndim == 2, v.ndim == 2, axes), 0)
                    if _fits(system, t, one, refused):
                        return axes, count
        sizes |= candidates
    else:
        flags = _flags(args, chosen)
        sizes |= {n: len(x) for n, x, varies in zip(names, leaves, flags, strict=True) if varies}
        if len(set(sizes.values())) == 1:
            return jax.tree.unflatten(structure, flags), next(iter(sizes.values()))
    if not sizes:
        raise ValueError(
            "nothing varies over the batch: give q0, v0 or an array in args a leading axis, or use ga.solve"
        )
    if refused and len(set(sizes.values())) == 1:
        error = refused[0]
        raise ValueError(
            "the functions of the system do not accept one member of the batch: "
            f"{type(error).__name__}: {error}. Compare args with the arguments of the functions, and name "
            "the arrays that vary with args_axes"
        ) from error
    listed = ", ".join(f"{name} {size}" for name, size in sizes.items())
    raise ValueError(
        f"the leading axes of the batch have the lengths {listed}. All that vary must have the same length, "
        "and the functions of the system must accept the part of one member: name the arrays that vary with "
        "args_axes, or try one member with ga.solve"
    )


def _choices(flags: list[bool]) -> Iterator[list[bool]]:
    """First all arrays that can vary do; then all but one, which may have this length by chance."""
    yield flags
    for i in itertools.compress(range(len(flags)), flags):
        yield [f and k != i for k, f in enumerate(flags)]


def _fits(system: System, t: float, one: Any, refused: list[Exception]) -> bool:
    """Whether the functions accept the (q, v, args) of one member. If not, the error goes to ``refused``."""
    try:
        arguments.trace(system, t, *one)
    except Exception as error:  # any error of the user's functions
        refused.append(error)
        return False
    return True


def _flags(args: Args, chosen: Any) -> list[bool]:
    """One boolean for each leaf, from a tree of 0 and None, one of which may stand for a whole subtree."""
    flags: list[bool] = []

    def one(axis: Any, part: Any) -> None:
        if axis not in (0, None) or isinstance(axis, bool):
            raise ValueError(
                f"args_axes must hold 0 for an array that varies and None for the others, got {axis!r}"
            )
        for leaf in jax.tree.leaves(part):
            if axis == 0 and np.ndim(leaf) == 0:
                raise ValueError("args_axes has 0 for a number, which has no axis: pass None")
            flags.append(axis == 0)

    try:
        jax.tree.map(one, chosen, args, is_leaf=lambda x: x is None)
    except (TypeError, ValueError) as error:
        if "args_axes" in str(error):
            raise
        raise ValueError(f"args_axes does not match args: {error}") from error
    return flags

"""Inputs of linear equations and actuators: forces along given directions, or entries of args."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.step import floating
from genalpha.backends.rowwise import Rowwise
from genalpha.numerics.derivatives import jacobian
from genalpha.sensitivity import names_of, places_of
from genalpha.statics.variation import StatePoint
from genalpha.statics.whole import WholeSystem


def speed_names(whole: WholeSystem) -> list[str]:
    """Names of entries of v: those of the system, or such as ``v[2]``."""
    return list(whole.system.labels.v) or [f"v[{i}]" for i in range(whole.dims.n)]


def increment_names(whole: WholeSystem) -> list[str]:
    """Names (n,) of increments of q: those of q in a flat space, else of integrals of velocities.

    First-order states have their own names.
    """
    size, moved = whole.dims.size, whole.moved
    if size == moved.sum():
        places = iter(whole.system.labels.q or [f"q[{i}]" for i in range(size)])
        return [
            next(places) if moves else name for name, moves in zip(speed_names(whole), moved, strict=True)
        ]
    integral = lambda name: name[:-1] if name.endswith("'") else f"∫ {name}"
    return [integral(name) if moves else name for name, moves in zip(speed_names(whole), moved, strict=True)]


def read(whole: WholeSystem, given: Any, what: str) -> dict[str, Any]:
    """Inputs by name.

    ``given`` lists names of args or numbers of entries of v, or is a dict with names of inputs: a direction
    (n,), several (n, k), a function (t, q, *args) that returns one, a number of an entry of v, or a name of
    args.
    """
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, str | int | np.integer):
        given = [given]
    if not isinstance(given, Sequence | np.ndarray):
        raise TypeError(f"{what} must be a dict, or a list of names or numbers, got {given!r}")
    n = whole.dims.n
    known = speed_names(whole)
    found: dict[str, Any] = {}
    for x in given:
        if not isinstance(x, str | int | np.integer):
            raise TypeError(f"{what} lists {x!r}: pass names of args, numbers of velocities, or a dict")
        found[x if isinstance(x, str) else known[_checked(x, n, what)]] = x
    return found


def forces(
    whole: WholeSystem, at: StatePoint, given: dict[str, Any], what: str
) -> tuple[list[str], np.ndarray, list[int]]:
    """Names (k) and generalized forces (n, k) per unit of each input, and how many columns each has."""
    n = whole.dims.n
    names, columns = [], [np.zeros((n, 0))]
    for name, value in given.items():
        if isinstance(value, int | np.integer):
            found = np.eye(n)[:, [_checked(value, n, what)]]
        elif isinstance(value, str):
            found = _by_args(whole, at, value, what)
        else:
            raw = value(at.t, at.q, *whole.args) if callable(value) else value
            found = np.asarray(raw, dtype=float)
            found = found[:, None] if found.ndim == 1 else found
            if found.ndim != 2 or found.shape[0] != n:
                raise ValueError(
                    f"{what}: {name!r} must be a direction of shape ({n},), or several of shape ({n}, k), "
                    f"got {np.shape(raw)}"
                )
        count = found.shape[1]
        names += [str(name)] if count == 1 else [f"{name}[{i}]" for i in range(count)]
        columns.append(found)
    return names, np.hstack(columns), [x.shape[1] for x in columns[1:]]


def feedthrough(
    whole: WholeSystem, at: StatePoint, given: dict[str, Any], widths: list[int], function: Callable[..., Any]
) -> list[np.ndarray]:
    """The change (rows, width) of a function (t, q, v, *args) with each input that is an entry of args.

    Other inputs have no rows.
    """
    of = lambda t, q, v, a, lam, psi, args: jnp.ravel(jnp.asarray(function(t, q, v, *args), float))
    return [
        _change(whole, at, value, "inputs", of) if isinstance(value, str) else np.zeros((0, width))
        for value, width in zip(given.values(), widths, strict=True)
    ]


def _checked(number: Any, n: int, what: str) -> int:
    if not -n <= number < n:
        raise ValueError(f"{what}: there is no velocity {number}, they are 0 to {n - 1}")
    return int(number)


def _by_args(whole: WholeSystem, at: StatePoint, name: str, what: str) -> np.ndarray:
    """The change (n, k) of the forces with an entry of args."""
    system, n = whole.system, whole.dims.n

    def rows(t: Any, q: Any, v: Any, a: Any, lam: Any, psi: Any, args: Any) -> Any:
        force = system.f(t, q, v, lam, psi, args) - system.M(t, q, args) @ a
        return jnp.concatenate([force, system.g(t, q, args), system.k(t, q, v, args)])

    found = _change(whole, at, name, what, rows)
    if np.abs(found[n:]).max(initial=0.0) > 0:
        raise ValueError(
            f"{what}: {name!r} moves constraints, so its rates would be inputs as well. Inputs must act by "
            "forces"
        )
    return found[:n]


def _change(
    whole: WholeSystem, at: StatePoint, name: str, what: str, function: Callable[..., Any]
) -> np.ndarray:
    """The derivative (rows, k) of ``function(*at, args)`` with respect to an entry of args, flattened."""
    paths, _ = jax.tree_util.tree_flatten_with_path((at.q, at.v, whole.args))
    known = [names_of(path) if path[0].idx == 2 else set() for path, _ in paths]
    leaves = jax.tree.leaves(whole.args)
    number = places_of(known, [name], what)[name] - 2
    if leaves[number].dtype.kind != "f":
        raise TypeError(f"{what}: {name!r} holds integers, which have no derivatives: pass floating numbers")
    place = sum(leaf.dtype.kind == "f" for leaf in leaves[:number])
    doubles, rebuild, _ = floating(whole.args)

    def change(t: Any, q: Any, v: Any, a: Any, lam: Any, psi: Any, x: list[Any]) -> Any:
        def with_leaf(leaf: Any) -> Any:
            args = rebuild([*x[:place], leaf.reshape(x[place].shape), *x[place + 1 :]])
            return function(t, q, v, a, lam, psi, args)

        return jacobian(with_leaf, jnp.ravel(x[place]))

    given = (np.float64(at.t), *at[1:], doubles)
    return np.asarray(Rowwise("inputs", change, given).one(given))

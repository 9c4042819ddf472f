"""``ga.sensitivity``: a solution and its derivatives with respect to named parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.engine.steps import MOST_TRACED
from genalpha.mechanics.system import System
from genalpha.results.solution import Solution
from genalpha.run.arguments import Numbers
from genalpha.solve import solve

_ROWS = ("q", "v", "a", "lam", "psi")


@dataclass(frozen=True)
class Sensitivity:
    """A solution, and derivatives (K, ...) of its rows by the names of parameters; None if not asked for."""

    solution: Solution
    q: dict[str, np.ndarray] | None = None
    v: dict[str, np.ndarray] | None = None
    a: dict[str, np.ndarray] | None = None
    lam: dict[str, np.ndarray] | None = None
    psi: dict[str, np.ndarray] | None = None


def sensitivity(
    system: System,
    t_span: tuple[float, float],
    q0: Numbers,
    v0: Numbers,
    *,
    wrt: str | Sequence[str],
    of: Sequence[str] = ("q", "v"),
    args: Sequence[Any] = (),
    **options: Any,
) -> Sensitivity:
    """Integrate a system, and differentiate the rows of the solution with respect to parameters.

    system, t_span, q0 (size,), v0 (n,), args, options : as in :func:`solve`.
    wrt : names of parameters: "q0", "v0", "args[0]" for an argument, or a key such as "k" of a dict in args.
    of : the quantities to differentiate, among "q", "v", "a", "lam" and "psi".

    Returns a :class:`Sensitivity` s. ``s.solution`` is what :func:`solve` returns. ``s.q["k"]`` are the
    derivatives of ``s.solution.q`` (K, size) with respect to k, (K, size, *shape of k). They are those of
    ``jax.jacfwd`` of ``solve`` (docs/fitting.md): use that for parameters on which q0 or v0 depend, and
    ``jax.grad`` for one number with many parameters.

    A mass on a spring with k/m = 4 moves by cos(2 t), so its derivative with respect to k is −t sin(2 t) / 4:

    >>> import jax.numpy as jnp, genalpha as ga
    >>> spring = ga.System(jnp.eye(1), lambda t, q, v, p: -p["k"] * q)
    >>> s = ga.sensitivity(spring, (0.0, 1.0), [1.0], [0.0], wrt=["k", "v0"], args=({"k": 4.0},), h=1e-3)
    >>> s.q["k"].shape, s.q["k"][-1].round(4).tolist()
    ((1001, 1), [-0.2273])
    >>> s.q["v0"][-1].round(4).tolist()  # sin(2 t) / 2
    [[0.4546]]
    """
    names = [wrt] if isinstance(wrt, str) else list(wrt)
    for name in set(of) - set(_ROWS):
        raise ValueError(f"of = {list(of)}: {name!r} has no derivatives. Choose among {', '.join(_ROWS)}")
    given = (jnp.asarray(q0, float), jnp.asarray(v0, float), tuple(args))
    paths, structure = jax.tree_util.tree_flatten_with_path(given)
    leaves, places = (
        [leaf for _, leaf in paths],
        places_of([names_of(path) for path, _ in paths], names, "wrt"),
    )
    solution = solve(system, t_span, q0, v0, args=args, **options)
    if len(solution.t) > MOST_TRACED and options.get("h") is None:  # room for all rows of error control
        options.setdefault("max_steps", 2 ** len(solution.t).bit_length())

    def rows(values: dict[str, Any]) -> dict[str, Any]:
        changed = list(leaves)
        for name, value in values.items():
            changed[places[name]] = value
        q, v, inner = jax.tree.unflatten(structure, changed)
        sol = solve(system, t_span, q, v, args=inner, **options)
        return {name: getattr(sol, name)[: len(solution.t)] for name in of}

    found = jax.jacfwd(rows)({name: jnp.asarray(leaves[i], float) for name, i in places.items()})
    return Sensitivity(solution, **jax.tree.map(np.asarray, found))


def names_of(path: Any) -> set[str]:
    """What a leaf of (q0, v0, args) may be called."""
    first = path[0].idx
    if first < 2:
        return {("q0", "v0")[first]}
    keys = {str(key.key) for key in path[2:] if isinstance(key, jax.tree_util.DictKey)}
    return keys | ({f"args[{path[1].idx}]"} if len(path) == 2 else set())


def places_of(known: list[set[str]], names: list[str], what: str) -> dict[str, int]:
    """The numbers of the leaves with these names. ``what`` is the argument that has them, for messages."""
    found = {}
    for name in names:
        where = [i for i, each in enumerate(known) if name in each]
        if len(where) != 1:
            every = ", ".join(sorted(set().union(*known)))
            reason = "names several parameters" if where else f"is unknown. Known: {every}"
            raise ValueError(f"{what}: {name!r} {reason}")
        found[name] = where[0]
    return found

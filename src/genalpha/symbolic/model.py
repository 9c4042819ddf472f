"""The system that `from_sympy` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy
from jax import Array

from genalpha.compiler import scalars
from genalpha.compiler.scalars import Scalars
from genalpha.errors import hint
from genalpha.mechanics.spaces import Euclidean
from genalpha.mechanics.system import System
from genalpha.symbolic import constraints, equations, kinematics, statement
from genalpha.symbolic.formulas import Formulas
from genalpha.symbolic.given import TimeFunctions, read


def make(source: Any, parameters: Mapping[Any, Any], specified: Mapping[Any, Any]) -> SymbolicSystem:
    stated = statement.state(source)
    numbers, given = _numbers(parameters), read(specified, stated)
    solved = kinematics.solve(stated, given.expressions, numbers)
    formulas = solved.formulas
    mass, force = equations.form(stated, solved)
    found = constraints.recognise(stated, solved, numbers)
    unknown = [name for name in numbers if name not in formulas.parameters]
    if unknown:
        known = sorted(formulas.parameters)
        raise ValueError(f"unknown parameter {unknown[0]!r}: {hint(unknown[0], known, 'there are')}")
    given.check()
    nodes = {
        "mass": mass,
        "force": force,
        "holonomic": found.holonomic,
        "nonholonomic": found.nonholonomic,
        "speeds": solved.speeds,
    }
    names = _names(stated, solved, found)
    return SymbolicSystem(formulas, nodes, numbers, given, names, stated)


def _numbers(parameters: Mapping[Any, Any]) -> dict[str, Any]:
    if not isinstance(parameters, Mapping):
        raise TypeError(
            f"parameters must be a dict from symbols or names to numbers, got {type(parameters).__name__}"
        )
    found = {}
    for key, value in parameters.items():
        if np.shape(value) != ():
            raise ValueError(f"parameter {key} has shape {np.shape(value)}: a number is needed")
        found[str(key)] = float(value)
    return found


def _names(
    stated: statement.Statement, solved: kinematics.Kinematics, found: constraints.Recognised
) -> dict[str, list[str]]:
    q = [_name(x) for x in stated.coordinates] + [f"∫{_name(stated.speeds[k])}" for k in solved.extra]
    v = [f"{name}'" for name in q]
    for speed, node in zip(stated.speeds, solved.speeds.tolist(), strict=False):
        if node in solved.formulas.v and not isinstance(speed, sympy.Derivative):
            v[solved.formulas.v.tolist().index(node)] = _name(speed)
    return {"q": q, "v": v, **{key: names for key, names in found.names.items() if names}}


def _name(function: Any) -> str:
    if isinstance(function, sympy.Derivative):
        return f"{_name(function.expr)}" + "'" * int(function.derivative_count)
    return str(function.func)


class SymbolicSystem(System):
    """A system whose functions are expressions of SymPy. ``ga.from_sympy`` makes it.

    ``coordinates`` and ``speeds`` are the names of q and u, ``bodies`` those of the bodies. ``parameters``
    are the numbers by name that are used unless args are given, ``missing`` the names without a number.
    """

    coordinates: tuple[str, ...]
    speeds: tuple[str, ...]
    bodies: tuple[str, ...]
    parameters: Mapping[str, float]

    def __init__(
        self,
        formulas: Formulas,
        nodes: Mapping[str, np.ndarray],
        parameters: Mapping[str, float],
        given: TimeFunctions,
        names: Mapping[str, list[str]],
        stated: statement.Statement,
    ) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)
        put("_parts", (formulas, nodes, parameters, given, names, stated))
        put("_formulas", formulas)
        put("_given", given)
        put("parameters", MappingProxyType(dict(parameters)))
        put("coordinates", tuple(names["q"]))
        put("speeds", tuple(map(_name, stated.speeds)) or tuple(names["v"]))
        put("bodies", tuple(str(body.name) for body in stated.bodies))
        put("_scalars", {name: formulas.scalars(part) for name, part in nodes.items()})
        used = set(formulas.graph.reachable(np.concatenate([x.reshape(-1) for x in nodes.values()]).tolist()))
        put("_used", used & set(formulas.inputs))
        put("_needed", {name for name, node in formulas.parameters.items() if node in used})
        count = len(formulas.q)
        rest = lambda t, q, *args: self._apply("mass", t, q, jnp.zeros(count), args).reshape(count, count)
        still = lambda t, q, *args: self._apply("holonomic", t, q, jnp.zeros(count), args)
        moving = lambda name: lambda t, q, v, *args: self._apply(name, t, q, v, args)
        super().__init__(
            rest,
            moving("force"),
            still if len(nodes["holonomic"]) else None,
            moving("nonholonomic") if len(nodes["nonholonomic"]) else None,
            None,
            Euclidean(count),
            names,
        )

    _parts: tuple[Any, ...]
    _formulas: Formulas
    _given: TimeFunctions
    _scalars: dict[str, Scalars]
    _used: set[int]  # inputs of the functions
    _needed: set[str]  # names of the parameters among them

    def __reduce__(self) -> tuple[Any, ...]:
        return SymbolicSystem, self._parts

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the parameters without a number."""
        return tuple(name for name in self._formulas.parameters if name in self._needed - {*self.parameters})

    def __repr__(self) -> str:
        q = ", ".join(self.coordinates)
        p = ", ".join(name for name in self._formulas.parameters if name in self._needed)
        return f"SymbolicSystem(coordinates {q}; parameters {p or 'none'})"

    # --- functions ------------------------------------------------------------------------------

    def _apply(self, name: str, t: Any, q: Array, v: Array, args: tuple[Any, ...]) -> Array:
        numbers = [jnp.asarray(x, float) for x in self._values_of(args)]
        given = self._given.values(self._formulas, jnp.asarray(t, float), self._used)
        a = jnp.zeros(len(self._formulas.a))
        parts = [jnp.asarray(t, float)[None], q, v, a, *(jnp.reshape(x, (1,)) for x in (*numbers, *given))]
        return scalars.apply(self._scalars[name], jnp.concatenate(parts))

    def _values_of(self, args: tuple[Any, ...]) -> list[Any]:
        """The numbers of all parameters, in order."""
        changed = args[0] if args else {}
        if len(args) > 1 or not isinstance(changed, Mapping):
            raise TypeError(
                "a system from SymPy takes args=({name: number, ...},): one dict of parameters in a tuple"
            )
        changed = {str(key): value for key, value in changed.items()}
        known = self._formulas.parameters
        for name in changed:
            if name not in known:
                raise ValueError(f"unknown parameter {name!r} in args: {hint(name, known, 'there are')}")
        numbers = {**self.parameters, **changed}
        missing = [name for name in known if name in self._needed and name not in numbers]
        if missing:
            raise ValueError(
                f"missing parameters: {', '.join(missing)}. Give numbers as parameters= of from_sympy, or in "
                "args=({...},)"
            )
        return [numbers.get(name, np.nan) for name in known]  # those that are not needed may be missing

    # --- numbers --------------------------------------------------------------------------------

    def start(
        self, q: Any, u: Any = None, t: float = 0.0, args: tuple[Any, ...] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """q (n,) and v = q' (n,) from coordinates and speeds, each a dict by symbol or name, or an array.

        Speeds that are not given are zero. q' follows from the kinematic equations; if they leave it open, it
        is the smallest.
        """
        count, known = len(self._formulas.q), len(self._parts[5].coordinates)
        place = np.concatenate(
            [_listed(q, self.coordinates[:known], "coordinates", True), np.zeros(count - known)]
        )
        speeds = _listed(u if u is not None else {}, self.speeds, "speeds", False)
        formulas, nodes = self._formulas, self._parts[1]["speeds"]
        both = np.column_stack([formulas.jacobian(nodes, formulas.v), nodes])
        row = self._rows(both, np.array([t]), place[None], np.zeros((1, count)), args=args)
        slopes, rest = np.split(formulas.numbers(both, row)[0], [count], axis=1)
        return place, np.linalg.lstsq(slopes, speeds - rest[:, 0], rcond=None)[0]

    def values(self, sol: Any, expressions: Any = None, args: tuple[Any, ...] = ()) -> Any:
        """Expressions of SymPy in every row of a solution: an array (N+1,), or a dict or list of such arrays.

        Without ``expressions`` these are the speeds u by name. Expressions may contain t, coordinates,
        speeds, their derivatives, parameters and specified functions. ``args`` must be those of the run.
        """
        if expressions is None:
            nodes = dict(zip(self.speeds, self._parts[1]["speeds"].tolist(), strict=True))
            return dict(zip(nodes, self._evaluated(list(nodes.values()), sol, args), strict=True))
        if isinstance(expressions, Mapping):
            found = self._evaluated(self._nodes(list(expressions.values())), sol, args)
            return dict(zip(expressions, found, strict=True))
        if isinstance(expressions, sympy.Basic):
            return self._evaluated(self._nodes([expressions]), sol, args)[0]
        return list(self._evaluated(self._nodes(list(expressions)), sol, args))

    def _nodes(self, expressions: Sequence[Any]) -> list[int]:
        parameters = self._formulas.parameters
        known, new = dict(parameters), []
        try:
            nodes = self._formulas.nodes(expressions, "the expression").tolist()
        finally:  # the inputs of the functions stay as they are
            new = [name for name in parameters if name not in known]
            for name in new:
                del parameters[name]
        if new:
            raise ValueError(f"the expression contains {', '.join(new)}, which the system does not")
        return nodes

    def _evaluated(self, nodes: list[int], sol: Any, args: tuple[Any, ...]) -> np.ndarray:
        """The values (nodes, N+1) of expressions in every row of a solution."""
        flat = np.array(nodes, dtype=np.int64)
        a = sol.a if self._formulas.depends(flat, self._formulas.a) else None
        return self._formulas.numbers(flat, self._rows(flat, sol.t, sol.q, sol.v, a, args)).T

    def _rows(
        self, nodes: np.ndarray, t: Any, q: Any, v: Any, a: Any = None, args: tuple[Any, ...] = ()
    ) -> np.ndarray:
        """All inputs of expressions, one row for each time."""
        times = np.asarray(t, float)
        needed = set(self._formulas.graph.reachable(nodes.reshape(-1).tolist()))
        given = jax.vmap(lambda t: self._given.values(self._formulas, t, needed))(times)
        still = np.zeros((len(times), len(self._formulas.a)))
        numbers = [np.full(len(times), float(x)) for x in self._values_of(args)]
        columns = [times, q, v, still if a is None else a, *numbers, *given]
        return np.column_stack([np.asarray(x) for x in columns])


def _listed(given: Any, names: Sequence[str], what: str, all_needed: bool) -> np.ndarray:
    """Numbers in the order of names, from a dict by symbol or name, or from an array."""
    if not isinstance(given, Mapping):
        found = np.asarray(given, dtype=float)
        if found.shape != (len(names),):
            raise ValueError(
                f"{what} have shape {found.shape}, and there are {len(names)}: {', '.join(names)}"
            )
        return found
    numbers = {key if isinstance(key, str) else _name(key): value for key, value in given.items()}
    for name in numbers:
        if name not in names:
            raise ValueError(f"{name!r} is none of the {what}: {hint(name, names, 'there are')}")
    left = [name for name in names if name not in numbers]
    if left and all_needed:
        raise ValueError(f"missing {what}: {', '.join(left)}")
    return np.array([float(numbers.get(name, 0.0)) for name in names])

"""SymPy's expressions as nodes of one graph, and what its symbols mean there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
from sympy.core.function import AppliedUndef
from sympy.physics.mechanics import dynamicsymbols

from genalpha.compiler import differentiate
from genalpha.compiler.graph import ONE, ZERO, Graph
from genalpha.compiler.primitives.arrays import product, total
from genalpha.compiler.scalars import Scalars
from genalpha.compiler.substitute import substitution
from genalpha.symbolic import functions

# What a node depends on, from what changes least often to what changes most. Products and sums are formed in
# this order, so that what depends on parameters alone is computed once a run.
_ORDERS = 4  # derivatives of given expressions that equations of motion may contain
_PARAMETER, _TIME, _POSITION, _VELOCITY, _ACCELERATION = range(1, 6)


class Formulas:
    """The graph of a system. Its inputs are t, q, v = q', a = q'', parameters and given functions of time.

    ``given`` holds the functions of time that the user gives by numbers: their nodes, by order of derivative.
    """

    def __init__(self, coordinates: Sequence[Any], extra: int = 0) -> None:
        self.graph = Graph()
        self.time = dynamicsymbols._t
        count = len(coordinates) + extra
        self.t = int(self.graph.inputs(1)[0])
        self.q, self.v, self.a = (self.graph.inputs(count) for _ in range(3))
        self.parameters: dict[str, int] = {}
        self.given: dict[Any, list[int]] = {}
        self._symbols: dict[str, Any] = {}
        self._meanings: dict[Any, int] = {self.time: self.t}
        self._known = dict(self._meanings)
        self._levels = {self.t: _TIME}
        for nodes, level in ((self.q, _POSITION), (self.v, _VELOCITY), (self.a, _ACCELERATION)):
            self._levels |= dict.fromkeys(nodes.tolist(), level)
        for k, q in enumerate(coordinates):
            self.state(q, self.q[k], self.v[k], self.a[k])

    # --- meanings -------------------------------------------------------------------------------

    def state(self, function: Any, *orders: int) -> None:
        """Let a function of time and its derivatives be these nodes."""
        for order, node in enumerate(orders):
            self._meanings[function.diff(self.time, order) if order else function] = int(node)
        self._known |= self._meanings

    def define(self, function: Any, expression: Any) -> None:
        """Let a function of time be an expression of time and parameters."""
        where = f"the expression given for {function}"
        orders = [self.node(sympy.diff(expression, self.time, k), where) for k in range(_ORDERS)]
        self.state(function, *orders)

    def forget(self, functions: Iterable[Any]) -> None:
        """Forget what functions of time are, and all expressions found so far."""
        for function in functions:
            self._meanings.pop(function, None)
        self._known = dict(self._meanings)

    def give(self, function: Any) -> None:
        """Let a function of time be one that the user gives by numbers."""
        self.given[function] = nodes = self.graph.inputs(_ORDERS).tolist()
        self._levels |= dict.fromkeys(nodes, _TIME)

    # --- expressions ----------------------------------------------------------------------------

    def nodes(self, expressions: Iterable[Any], where: str) -> np.ndarray:
        """The nodes of expressions; ``where`` says in messages what they are."""
        return np.array([self.node(x, where) for x in expressions], dtype=np.int64)

    def node(self, expression: Any, where: str) -> int:
        expression = sympy.sympify(expression)
        stack, known = [expression], self._known
        while stack:
            one = stack[-1]
            if one in known:
                stack.pop()
                continue
            leaf = self._leaf(one, where)
            if leaf is not None:
                known[one] = leaf
                continue
            missing = [x for x in functions.children(one) if x not in known]
            if missing:
                stack += missing
            else:
                known[one] = self._operation(one, where)
        return known[expression]

    def _leaf(self, x: Any, where: str) -> int | None:
        """The node of an expression without parts, or None."""
        if isinstance(x, sympy.Symbol):
            return self._parameter(x, where)
        if isinstance(x, AppliedUndef | sympy.Derivative):
            return self._function(x, where)
        if x in (sympy.true, sympy.false):
            return self.graph.flag(bool(x))
        if getattr(x, "is_number", False):
            found = functions.number(x)
            if found is None:
                raise ValueError(f"{where} contains {x}, which is no finite real number")
            return self.graph.constant(found)
        if not isinstance(x, sympy.Expr | sympy.logic.boolalg.Boolean) or not hasattr(x, "args"):
            raise TypeError(f"{where} contains {x!r}, a {type(x).__name__}: scalar expressions are needed")
        return None

    def _parameter(self, symbol: Any, where: str) -> int:
        name = symbol.name
        other = self._symbols.setdefault(name, symbol)
        if other != symbol:
            raise ValueError(
                f"{where} contains a symbol {name!r} that is not the {name!r} found elsewhere: "
                "they have different assumptions, so SymPy tells them apart. Make it once"
            )
        if name not in self.parameters:
            self.parameters[name] = node = int(self.graph.inputs(1)[0])
            self._levels[node] = _PARAMETER
        return self.parameters[name]

    def _function(self, x: Any, where: str) -> int:
        """A function of time, or a derivative of one with respect to time."""
        function, order = (x.expr, x.derivative_count) if isinstance(x, sympy.Derivative) else (x, 0)
        times = set(x.variables) <= {self.time} if order else True
        if not isinstance(function, AppliedUndef) or not times:
            raise ValueError(
                f"{where} contains the unevaluated derivative {x}: call .doit(), or state what it is"
            )
        if function.args != (self.time,):
            raise ValueError(
                f"{where} contains {function}, a function that is not known: give its expression"
            )
        if function in self.given and order < _ORDERS:
            return self.given[function][order]
        if function in self._known or function in self.given:
            what = f"the derivative {x}" if order else str(x)
            raise ValueError(
                f"{where} contains {what}: equations of motion have q, q', speeds u, and no more"
            )
        raise ValueError(
            f"{where} contains {function}, which is no coordinate and no speed: "
            f"give it as specified={{{function}: ...}}, or name it among the coordinates"
        )

    def _operation(self, x: Any, where: str) -> int:
        graph, at = self.graph, [self._known[part] for part in functions.children(x)]
        if isinstance(x, sympy.Add):
            return total(graph, sorted(at, key=self._level))
        if isinstance(x, sympy.Mul):
            return self._product(x, at)
        if isinstance(x, sympy.Pow):
            return functions.power(graph, at[0], x.exp, at[1])
        make = functions.FUNCTIONS.get(x.func.__name__)
        if make is None:
            raise ValueError(
                f"{where} contains {x.func.__name__}(...), which genalpha does not know: rewrite {x} with "
                "elementary functions, or give it as a function of time in specified"
            )
        return make(graph, *at)

    def _product(self, x: Any, at: Sequence[int]) -> int:
        """A product, with factors of negative powers below the line."""
        graph = self.graph
        over, under = [], []
        for part, node in zip(x.args, at, strict=True):
            if isinstance(part, sympy.Pow) and part.exp.is_number and part.exp.is_negative:
                base = self._known[part.base]
                exponent = graph.constant(float(-part.exp))
                under.append(functions.power(graph, base, -part.exp, exponent))
            else:
                over.append(node)
        above = product(graph, sorted(over, key=self._level))
        if not under:
            return above
        return graph.div(above, product(graph, sorted(under, key=self._level)))

    def _level(self, node: int) -> int:
        levels, stack = self._levels, [node]
        while stack:
            i = stack[-1]
            needed = [j for j in self.graph.nodes[i].inputs if j not in levels]
            if i in levels or not needed:
                inputs = self.graph.nodes[i].inputs
                levels.setdefault(i, max((levels[j] for j in inputs), default=0))
                stack.pop()
            else:
                stack += needed
        return levels[node]

    # --- derivatives ----------------------------------------------------------------------------

    def rate(self, nodes: np.ndarray, accelerated: bool = False) -> np.ndarray:
        """The time derivatives of expressions of t, q and v. Without ``accelerated``, v is held."""
        moving, by = [self.t, *self.q], [ONE, *self.v]
        if accelerated:
            moving, by = [*moving, *self.v], [*by, *self.a]
        for orders in self.given.values():
            moving, by = [*moving, *orders[:-1]], [*by, *orders[1:]]
        slopes = differentiate.along(self.graph, nodes.reshape(-1), np.array(moving), np.array(by))
        return slopes.reshape(nodes.shape)

    def jacobian(self, nodes: np.ndarray, variables: np.ndarray) -> np.ndarray:
        """The derivatives (..., variables) of expressions (...)."""
        found = differentiate.jacobian(self.graph, nodes.reshape(-1), variables)
        return found.reshape(*nodes.shape, len(variables))

    def pulled(self, node: int, variables: np.ndarray) -> np.ndarray:
        """The derivatives (variables,) of one expression."""
        one = np.array([ONE], dtype=np.int64)
        return differentiate.pulled_back(self.graph, np.array([node]), variables, one)

    def depends(self, nodes: np.ndarray, variables: np.ndarray) -> list[int]:
        """Which of the variables occur in expressions, by position."""
        found = set(self.graph.reachable(nodes.reshape(-1).tolist()))
        return [k for k, i in enumerate(variables.tolist()) if i in found]

    def at_rest(self, nodes: np.ndarray, variables: np.ndarray) -> np.ndarray:
        """The expressions with zeros for ``variables``."""
        put = substitution(self.graph, dict.fromkeys(variables.tolist(), ZERO))
        return put(nodes.reshape(-1)).reshape(nodes.shape)

    # --- arithmetic of arrays of nodes ----------------------------------------------------------

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """a (I, J) times b (J, K) or (J,)."""
        graph, columns = self.graph, b.reshape(len(b), -1).T.tolist()
        rows = [
            [total(graph, [graph.mul(x, y) for x, y in zip(row, column, strict=True)]) for column in columns]
            for row in a.tolist()
        ]
        return np.array(rows, dtype=np.int64).reshape(len(a), *b.shape[1:])

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
        return np.array([self.graph.add(x, y) for x, y in pairs], dtype=np.int64).reshape(a.shape)

    def negative(self, a: np.ndarray) -> np.ndarray:
        return np.array([self.graph.neg(x) for x in a.reshape(-1).tolist()], dtype=np.int64).reshape(a.shape)

    # --- numbers --------------------------------------------------------------------------------

    @property
    def inputs(self) -> list[int]:
        """All inputs: t, q, v, a, parameters, given functions with their derivatives."""
        given = [i for orders in self.given.values() for i in orders]
        return [
            self.t,
            *self.q.tolist(),
            *self.v.tolist(),
            *self.a.tolist(),
            *self.parameters.values(),
            *given,
        ]

    def scalars(self, nodes: np.ndarray) -> Scalars:
        """Expressions as a function of all inputs."""
        return Scalars.of(self.graph, self.inputs, nodes.reshape(-1).tolist())

    def numbers(self, nodes: np.ndarray, points: np.ndarray) -> np.ndarray:
        """The values (K, ...) of expressions (...) at K points, rows of all inputs."""
        return self.scalars(nodes).evaluate(points).reshape(len(points), *nodes.shape)

    def samples(self, count: int, parameters: Mapping[str, float]) -> np.ndarray:
        """Points for tests (count, inputs): parameters as far as they are known, all others at random."""
        draw = np.random.default_rng(0)
        points = draw.uniform(-1.0, 1.0, (count, len(self.inputs)))
        first = 1 + 3 * len(self.q)
        for k, name in enumerate(self.parameters):
            points[:, first + k] = parameters.get(name, draw.uniform(0.5, 1.5))
        return points

"""Scalar expressions, each stored once: constants folded, zeros dropped, common subexpressions shared.

Values are those of IEEE arithmetic with three exceptions, as in XLA. A product with the constant zero, and
zero divided by something, is always zero. Division by a constant is multiplication by its inverse. The sign
of a zero is not kept. Integers are doubles, exact up to 2⁵³.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from genalpha.compiler.arithmetic import COMPARISONS, FUNCTIONS, LOGIC, SEARCHES, operate
from genalpha.compiler.evaluate import evaluator
from genalpha.compiler.stated import Rule
from genalpha.numerics.host import HostCall

ZERO, ONE, FALSE, TRUE = 0, 1, 2, 3
# What needs no code, and does not count as an operation.
_FREE = ("input", "constant", "flag")
# Up to this number of entries, choices cost less than a table.
FEW = 8


class Unsupported(Exception):  # not an error: another backend is used then
    """Why a function cannot become a scalar program."""


class CallsHost(Unsupported):
    """A program calls Python functions, so it cannot run in lanes or on a GPU."""

    def __init__(self, call: HostCall) -> None:
        super().__init__(f"{call.name} runs in Python, which has no form for lanes or a GPU")


class Node(NamedTuple):
    """An operation on earlier nodes; ``kind`` is "f" (doubles, integers), "b" (booleans) or "t" (tables).

    The results of a call of a Python function ("host") are a table too.
    """

    op: str
    inputs: tuple[int, ...]
    kind: str


class Graph:
    """A growing collection of nodes. Elsewhere, a scalar is the number of its node."""

    def __init__(self, limit: int | None = None) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[int, float | bool] = {}
        self.contents: dict[int, np.ndarray] = {}  # the numbers of tables that are known
        self.hosts: dict[int, HostCall] = {}  # the calls of Python functions
        self.limit, self.operations = limit, 0
        self.resets: list[int] = []  # how many nodes were left by each
        self._known: dict[tuple[object, ...], int] = {}
        self._lent: dict[tuple[object, ...], int] = {}  # operations that others stand for
        self.rules: dict[int, Rule] = {}
        self.turned: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}  # see `turned`
        self.turns: set[int] = set()
        self.made: dict[tuple[object, ...], Any] = {}
        self.seek: Callable[..., Any] | None = None  # finds rotations that are computed elsewhere
        self.given: dict[tuple[object, ...], Any] = {}  # what is known of them
        for value in (0.0, 1.0):
            self.constant(value)
        for flag in (False, True):
            self.flag(flag)

    def reset(self, count: int) -> None:
        """Forget all nodes but the first ``count``."""
        del self.nodes[count:]
        self._known = {key: i for key, i in self._known.items() if i < count}
        self.constants = {i: value for i, value in self.constants.items() if i < count}
        self.contents = {i: numbers for i, numbers in self.contents.items() if i < count}
        self.hosts = {i: call for i, call in self.hosts.items() if i < count}
        self.rules = {i: rule for i, rule in self.rules.items() if i < count}
        self.turned = {p: made for p, made in self.turned.items() if max(p) < count}
        self.made.clear()
        self.turns = {i for i in self.turns if i < count}
        self.operations = sum(node.op not in _FREE for node in self.nodes)
        self.resets.append(count)

    def kept(self) -> Callable[[], bool]:
        """A function that says whether no reset has forgotten a node of the present graph."""
        count, resets = len(self.nodes), len(self.resets)
        return lambda: all(left >= count for left in self.resets[resets:])

    # --- making nodes ---------------------------------------------------------------------------

    def _new(self, key: tuple[object, ...], op: str, inputs: tuple[int, ...], kind: str) -> int:
        found = self._known.get(key)
        if found is None:
            found = len(self.nodes)
            self.operations += op not in _FREE
            if self.limit is not None and self.operations > self.limit:
                raise Unsupported(f"the function needs more than {self.limit} scalar operations")
            self.nodes.append(Node(op, inputs, kind))
            self._known[key] = found
        return found

    def constant(self, value: float) -> int:
        value = float(value)
        sign = math.copysign(1.0, value) if value == 0 or value != value else 0.0
        node = self._new(("constant", "nan" if value != value else value, sign), "constant", (), "f")
        self.constants[node] = value
        return node

    def flag(self, value: bool) -> int:
        node = self._new(("flag", bool(value)), "flag", (), "b")
        self.constants[node] = bool(value)
        return node

    def inputs(self, shape: int | tuple[int, ...]) -> np.ndarray:
        """New independent variables."""
        first = len(self.nodes)
        count = int(np.prod(shape))
        self.nodes += [Node("input", (), "f")] * count
        return np.arange(first, first + count).reshape(shape)

    def stopped(self, a: int) -> int:
        """A copy of ``a`` whose derivatives are zero."""
        return a if a in self.constants else self._new(("stop", a), "stop", (a,), self.nodes[a].kind)

    def lend(self, a: int, make: Callable[[], int]) -> bool:
        """Let another node stand for the operation ``a`` from now on. False if it is no operation."""
        op, inputs, _ = self.nodes[a]
        key = (op, *inputs)
        if not inputs or self._known.get(key) != a:
            return False
        self._lent[key] = a
        self._known[key] = make()
        return True

    def take_back(self) -> None:
        """Let all operations stand for themselves again."""
        self._known |= self._lent
        self._lent = {}

    def stated(self, a: int, rule: Rule, key: tuple[object, ...] | None = None) -> int:
        """A copy of ``a`` with this derivative. Other expressions that equal ``a`` keep their own.

        Copies with one ``key`` are the same.
        """
        copy = self._new(
            ("copy", a, len(self.nodes)) if key is None else key, "copy", (a,), self.nodes[a].kind
        )
        self.rules.setdefault(copy, rule)
        return copy

    # --- arithmetic -----------------------------------------------------------------------------

    def apply(self, op: str, *inputs: int) -> int:
        """The function ``op`` of doubles, without simplification."""
        constants = self.constants
        if all(i in constants for i in inputs):
            return self.constant(FUNCTIONS[op](*(constants[i] for i in inputs)))
        return self._new((op, *inputs), op, inputs, "f")

    def add(self, a: int, b: int) -> int:
        constants = self.constants
        if a in constants:
            if b in constants:
                return self.constant(constants[a] + constants[b])
            if constants[a] == 0:
                return b
        elif b in constants:
            if constants[b] == 0:
                return a
        else:
            if self.nodes[b].op == "neg":
                return self.sub(a, self.nodes[b].inputs[0])
            if self.nodes[a].op == "neg":
                return self.sub(b, self.nodes[a].inputs[0])
        if a > b:
            a, b = b, a
        return self._new(("add", a, b), "add", (a, b), "f")

    def sub(self, a: int, b: int) -> int:
        constants = self.constants
        if b in constants:
            if a in constants:
                return self.constant(constants[a] - constants[b])
            if constants[b] == 0:
                return a
        elif self.nodes[b].op == "neg":
            return self.add(a, self.nodes[b].inputs[0])
        if a in constants and constants[a] == 0:
            return self.neg(b)
        if a not in constants and self.nodes[a].op == "neg":
            return self.neg(self.add(self.nodes[a].inputs[0], b))
        return self._new(("sub", a, b), "sub", (a, b), "f")

    def neg(self, a: int) -> int:
        if a in self.constants:
            return self.constant(-self.constants[a])
        node = self.nodes[a]
        if node.op == "neg":
            return node.inputs[0]
        if node.op == "sub":
            known = self._known.get(("sub", node.inputs[1], node.inputs[0]))
            if known is not None:
                return known
        return self._new(("neg", a), "neg", (a,), "f")

    def mul(self, a: int, b: int) -> int:
        constants = self.constants
        if b in constants:
            a, b = b, a
        if a in constants:
            factor = constants[a]
            if b in constants:
                return self.constant(factor * constants[b])
            if factor == 0:
                return ZERO
            if factor == 1:
                return b
            if factor == -1:
                return self.neg(b)
            op, inner, _ = self.nodes[b]
            if op == "mul" and inner[0] in constants:
                both = factor * constants[inner[0]]
                if 1e-100 < abs(both) < 1e100:  # far from overflow and underflow
                    return self.mul(self.constant(both), inner[1])
        if a not in constants and self.nodes[a].op == "neg":
            return self.neg(self.mul(self.nodes[a].inputs[0], b))
        if self.nodes[b].op == "neg":
            return self.neg(self.mul(a, self.nodes[b].inputs[0]))
        if a not in constants and a > b:
            a, b = b, a
        return self._new(("mul", a, b), "mul", (a, b), "f")

    def div(self, a: int, b: int) -> int:
        constants = self.constants
        if b in constants:
            if a in constants:
                return self.constant(FUNCTIONS["div"](constants[a], constants[b]))
            divisor = constants[b]
            inverse = 1 / divisor if divisor else math.inf
            if math.isfinite(inverse) and abs(inverse) > np.finfo(float).tiny:
                return self.mul(a, self.constant(inverse))
        if a == ZERO:
            return ZERO
        if a not in constants and self.nodes[a].op == "neg":
            return self.neg(self.div(self.nodes[a].inputs[0], b))
        if self.nodes[b].op == "neg":
            return self.neg(self.div(a, self.nodes[b].inputs[0]))
        return self._new(("div", a, b), "div", (a, b), "f")

    def power(self, a: int, exponent: int) -> int:
        """An integer power by repeated squaring."""
        if exponent < 0:
            return self.div(ONE, self.power(a, -exponent))
        result, square = ONE, a
        while exponent:
            if exponent & 1:
                result = self.mul(result, square)
            exponent >>= 1
            if exponent:
                square = self.mul(square, square)
        return result

    def largest(self, values: Iterable[int], op: str = "max") -> int:
        """The largest of one or more scalars by a balanced tree; NaN if one of them is."""
        values = list(dict.fromkeys(values))
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=False)
            values = [self.extreme(op, a, b) for a, b in pairs] + values[len(values) & ~1 :]
        return values[0]

    def extreme(self, op: str, a: int, b: int) -> int:
        """The larger ("max") or smaller ("min") of two scalars; NaN if one of them is."""
        if a == b:
            return a
        if self.nodes[a].kind == "b":
            return self.logic("or" if op == "max" else "and", a, b)
        return self.apply(op, *sorted((a, b)))

    # --- booleans -------------------------------------------------------------------------------

    def compare(self, op: str, a: int, b: int) -> int:
        """lt, le, eq or ne. With NaN all are false except ne."""
        constants = self.constants
        if self.nodes[a].kind == "b":
            if op in ("lt", "le"):  # false comes before true
                return self.logic("and" if op == "lt" else "or", self.logic("not", a), b)
            differ = self.logic("xor", a, b)
            return differ if op == "ne" else self.logic("not", differ)
        if a in constants and b in constants:
            return self.flag(COMPARISONS[op](constants[a], constants[b]))
        return self._new((op, a, b), op, (a, b), "b")

    def logic(self, op: str, a: int, b: int | None = None) -> int:
        if b is None:
            if a in self.constants:
                return self.flag(not self.constants[a])
            if self.nodes[a].op == "not":
                return self.nodes[a].inputs[0]
            return self._new(("not", a), "not", (a,), "b")
        if a in self.constants and b in self.constants:
            return self.flag(LOGIC[op](self.constants[a], self.constants[b]))
        if b in self.constants:
            a, b = b, a
        if a in (TRUE, FALSE):
            if op == "and":
                return b if a == TRUE else FALSE
            if op == "or":
                return TRUE if a == TRUE else b
            return self.logic("not", b) if a == TRUE else b
        if a == b:
            return FALSE if op == "xor" else a
        a, b = sorted((a, b))
        return self._new((op, a, b), op, (a, b), "b")

    def select(self, condition: int, yes: int, no: int) -> int:
        if yes == no:
            return yes
        if condition in self.constants:
            return yes if self.constants[condition] else no
        if self.nodes[condition].op == "not":
            return self.select(self.nodes[condition].inputs[0], no, yes)
        if (yes, no) == (TRUE, FALSE):
            return condition
        if (yes, no) == (FALSE, TRUE):
            return self.logic("not", condition)
        return self._new(("select", condition, yes, no), "select", (condition, yes, no), self.nodes[yes].kind)

    # --- tables ---------------------------------------------------------------------------------

    def table(self, *entries: int) -> int:
        """A table of doubles, which is read by :meth:`take`."""
        if all(i in self.constants for i in entries):
            return self.known_table(np.array([self.constants[i] for i in entries], dtype=float))
        return self._new(("table", *entries), "table", entries, "t")

    def known_table(self, numbers: np.ndarray) -> int:
        """A table of constants. They are no nodes, since there may be many."""
        node = self._new(("table", numbers.tobytes()), "table", (), "t")
        self.contents[node] = numbers
        return node

    def take(self, table: int, index: int) -> int:
        """An entry of a table. The index must be an integer within the table."""
        numbers = self.contents.get(table)
        if numbers is not None and (numbers == numbers[0]).all():
            return self.constant(numbers[0])
        if index not in self.constants or table in self.hosts:
            return self._new(("take", table, index), "take", (table, index), "f")
        at = int(self.constants[index])
        return self.nodes[table].inputs[at] if numbers is None else self.constant(numbers[at])

    def host(self, call: HostCall, *inputs: int) -> int:
        """The results of a call of a Python function, as a table."""
        if all(i in self.constants for i in inputs):
            return self.known_table(call([self.constants[i] for i in inputs]))
        node = self._new(("host", call, *inputs), "host", inputs, "t")
        self.hosts[node] = call
        return node

    def search(self, op: str, table: int, x: int) -> int:
        """Where ``x`` belongs in a sorted table, as `jnp.searchsorted` finds it."""
        if table in self.contents and x in self.constants:
            return self.constant(operate(op, self.contents[table], self.constants[x]))
        return self._new((op, table, x), op, (table, x), "f")

    def make(self, op: str, *inputs: int) -> int:
        """Any operation, by its name."""
        if op in SEARCHES:
            return self.search(op, *inputs)
        if op in ("add", "sub", "mul", "div", "neg", "select", "table", "take"):
            return getattr(self, op)(*inputs)
        if op in COMPARISONS:
            return self.compare(op, *inputs)
        if op in LOGIC:
            return self.logic(op, *inputs)
        if op in ("max", "min"):
            return self.extreme(op, *inputs)
        if op in ("stop", "copy"):
            return self.stopped(*inputs) if op == "stop" else inputs[0]
        return self.apply(op, *inputs)

    # --- questions ------------------------------------------------------------------------------

    def reachable(self, outputs: Iterable[int], stop: Container[int] = ()) -> list[int]:
        """The nodes that ``outputs`` depend on, in order, down to those in ``stop``."""
        seen, stack = set[int](), list(outputs)
        while stack:
            i = stack.pop()
            if i not in seen:
                seen.add(i)
                if i not in stop:
                    stack.extend(self.nodes[i].inputs)
        return sorted(seen)

    def evaluate(self, outputs: Sequence[int], values: dict[int, Any]) -> list[Any]:
        """Numbers for ``outputs``, given those of inputs or other nodes."""
        return evaluator(self, outputs, values)(values)

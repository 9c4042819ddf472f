"""Products that sums and differences take in: one operation with one rounding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from genalpha.compiler.graph import Node
from genalpha.compiler.program import Kernel


class Fusions:
    """The products that sums and differences of a kernel take in, if nothing else needs them.

    If a compiler decides this, results depend on how far it optimizes.
    """

    def __init__(self, nodes: Sequence[Node], kernel: Kernel) -> None:
        uses = Counter(j for i in kernel.body for j in nodes[i].inputs)
        uses.update(i for _, i in kernel.stores)
        alone = {i for i in kernel.body if nodes[i].op == "mul" and uses[i] == 1}
        self._nodes = nodes
        self._product: dict[int, int] = {}
        for i in kernel.body:
            op, inputs, _ = nodes[i]
            taken = next((j for j in inputs if j in alone), None) if op in ("add", "sub") else None
            if taken is not None:
                self._product[i] = taken
        self._absorbed = set(self._product.values())

    def text(self, i: int, name: Callable[[int], str], kind: str, suffix: str) -> list[str] | None:
        """Lines for node i; none if another node takes it in, None if it is no part of a fusion."""
        product = self._product.get(i)
        if product is None:
            return [] if i in self._absorbed else None
        (op, (a, b), _), lines = self._nodes[i], []
        x, y, other = (name(j) for j in (*self._nodes[product].inputs, b if product == a else a))
        if op == "sub":  # x y - other, or other - x y
            lines.append(f"  %m{i} = fneg {kind} {other if product == a else x}")
            x, other = (x, f"%m{i}") if product == a else (f"%m{i}", other)
        return [*lines, f"  %n{i} = call {kind} @llvm.fma.{suffix}({kind} {x}, {kind} {y}, {kind} {other})"]

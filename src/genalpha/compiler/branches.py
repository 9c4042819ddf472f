"""Choices as branches: what only one side of a choice needs is computed only if that side is taken.

A scalar program computes both sides of every choice. This is good for cheap operations. For expensive ones,
such as sines and square roots, a branch is faster.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from genalpha.compiler.arithmetic import SEARCHES
from genalpha.compiler.graph import Node

# Rough costs of operations; all others cost one.
_COSTS = {"div": 8, "sqrt": 8, "fmod": 15, "cbrt": 20, "pow": 40}
_COSTS |= dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "atan2"), 25)
_COSTS |= dict.fromkeys(("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"), 25)
_COSTS |= dict.fromkeys(("exp", "exp2", "expm1", "log", "log1p", "erf", "erfc", *SEARCHES), 20)
_COSTS["host"] = 1000
# A side that costs less is always computed: a wrong branch prediction costs as much.
WORTHWHILE = 30


_ALWAYS = -1  # stands for a user that needs a node whatever is chosen


class Branch(NamedTuple):
    """Run one of two bodies. ``results`` are the choices (nodes "select") with this condition."""

    condition: int
    yes: Body
    no: Body
    results: tuple[int, ...]


Body = tuple["int | Branch", ...]


def structured(nodes: Sequence[Node], body: Iterable[int], outputs: Iterable[int]) -> Body:
    """The nodes of ``body`` in an order in which they can be computed, some of them inside branches.

    ``outputs`` are always needed, whatever is chosen.
    """
    inside = sorted(body)
    ops = {nodes[i].op for i in inside}
    if "select" not in ops or ops.isdisjoint(_COSTS):
        return tuple(inside)
    known = set(inside)
    users: dict[int, list[int]] = {}
    choices: dict[int, list[int]] = {}
    for i in inside:
        op, inputs, kind = nodes[i]
        for j in inputs:
            users.setdefault(j, []).append(i)
        if op == "select" and kind == "f":
            choices.setdefault(inputs[0], []).append(i)
    # Nodes that are computed elsewhere belong to no side.
    users = {i: found for i, found in users.items() if i in known}
    users |= {i: [*users.get(i, []), _ALWAYS] for i in outputs}
    groups: list[Branch] = []
    taken: set[int] = set()
    for condition, made in sorted(choices.items(), key=lambda c: -c[1][-1]):  # outer ones first
        group = _group(nodes, users, condition, _independent(nodes, inside, made, taken), taken)
        if group is not None:
            groups.append(group)
            taken |= set(_members(group))
    while groups:
        order = _ordered(nodes, inside, groups)
        if order is not None:
            return order
        groups.pop()  # two branches that need each other's results
    return tuple(inside)


def _independent(nodes: Sequence[Node], inside: list[int], made: list[int], taken: set[int]) -> list[int]:
    """Choices on one condition that do not depend on each other."""
    made = [i for i in made if i not in taken]
    if len(made) < 2:
        return made
    first, last = bisect_left(inside, made[0]), bisect_left(inside, made[-1])
    wanted, found, reached = set(made), [], set()
    for i in inside[first : last + 1]:
        if any(j in reached for j in nodes[i].inputs):
            reached.add(i)
        elif i in wanted:
            found.append(i)
            reached.add(i)
    return found


def _group(
    nodes: Sequence[Node],
    users: dict[int, list[int]],
    condition: int,
    choices: list[int],
    taken: set[int],
) -> Branch | None:
    """The branch on one condition; None if it does not pay."""
    sides: list[Body] = []
    for side in (1, 2):
        cone = _cone(nodes, users, choices, side) - taken
        if sum(_COSTS.get(nodes[i].op, 1) for i in cone) < WORTHWHILE:
            sides.append(())
            continue
        ends = [nodes[c].inputs[side] for c in choices]
        sides.append(structured(nodes, cone, [e for e in ends if e in cone]))
    if not any(sides):
        return None
    return Branch(condition, sides[0], sides[1], tuple(choices))


def _cone(nodes: Sequence[Node], users: dict[int, list[int]], choices: list[int], side: int) -> set[int]:
    """The nodes that only one side of the choices needs."""
    chosen, cone = set(choices), set()

    def only_here(i: int, user: int) -> bool:
        if user in cone:
            return True
        if user not in chosen:
            return False
        inputs = nodes[user].inputs
        return inputs[side] == i and i not in (inputs[0], inputs[3 - side])

    # Later nodes first: all users of a node are decided before it.
    candidates = [-nodes[c].inputs[side] for c in choices]
    heapq.heapify(candidates)
    seen: set[int] = set()
    while candidates:
        i = -heapq.heappop(candidates)
        if i in seen or i in chosen or i not in users:
            continue
        seen.add(i)
        if all(only_here(i, user) for user in users[i]):
            cone.add(i)
            for j in nodes[i].inputs:
                heapq.heappush(candidates, -j)
    return cone


def _members(branch: Branch) -> Iterable[int]:
    yield from branch.results
    for body in (branch.yes, branch.no):
        for part in body:
            if isinstance(part, Branch):
                yield from _members(part)
            else:
                yield part


def _needs(nodes: Sequence[Node], part: int | Branch) -> Iterable[int]:
    """The nodes that a node or a branch needs from elsewhere."""
    if isinstance(part, int):
        return nodes[part].inputs
    members = set(_members(part))
    return sorted({j for i in members for j in nodes[i].inputs} - members)


def _ordered(nodes: Sequence[Node], inside: list[int], groups: list[Branch]) -> Body | None:
    """Nodes and branches, each after everything that it needs; None if this is impossible."""
    part_of = {i: g for g in groups for i in _members(g)}
    known = set(inside)
    result: list[int | Branch] = []
    state: dict[int, int] = {}  # by identity of the part: 1 begun, 2 done

    for root in inside:
        stack: list[tuple[int | Branch, bool]] = [(part_of.get(root, root), False)]
        while stack:
            part, finished = stack.pop()
            key = id(part) if isinstance(part, Branch) else -1 - part
            if finished:
                state[key] = 2
                result.append(part)
                continue
            if state.get(key) == 2:
                continue
            if state.get(key) == 1:
                return None
            state[key] = 1
            stack.append((part, True))
            for j in _needs(nodes, part):
                if j in known:
                    before = part_of.get(j, j)
                    before_key = id(before) if isinstance(before, Branch) else -1 - before
                    if state.get(before_key) == 1:
                        return None
                    if state.get(before_key) != 2:
                        stack.append((before, False))
    return tuple(result)


class StoreNode(NamedTuple):
    """Store a node in a slot."""

    slot: int
    node: int


def arranged(
    nodes: Sequence[Node], body: Body, loads: Iterable[int], stores: Sequence[StoreNode], read: Container[int]
) -> list[int | Branch | StoreNode]:
    """Loads, body and stores in an order in which few numbers wait: all that one store needs, then the next.

    With many numbers that wait, a compiler spends most of its time on their places. Slots in ``read`` are
    stored last. Nodes do not move past a branch: a compiler may contract operations on the same side of it,
    so results would change.
    """
    needs: dict[int, Sequence[int]] = dict.fromkeys(loads, ())  # what is not computed yet
    early, late = ([s for s in stores if (s.slot in read) == wanted] for wanted in (False, True))
    found: list[int | Branch | StoreNode] = []

    def compute(output: int) -> None:
        stack = [output]
        while stack:
            i = stack.pop()
            if i < 0:  # all that node −1 − i needs is there
                found.append(-1 - i)
                continue
            inputs = needs.pop(i, None)
            if inputs is not None:
                stack.append(-1 - i)
                stack += reversed(inputs)

    for apart, parts in itertools.groupby(body, lambda part: isinstance(part, Branch)):
        if apart:
            for branch in parts:
                for i in _needs(nodes, branch):
                    compute(i)
                found.append(branch)
            continue
        here = {i: nodes[i].inputs for i in parts if isinstance(i, int)}
        needs |= here
        for store in early:
            if store.node in here:
                compute(store.node)
                found.append(store)
        for i in here:  # for what follows, and tables that other kernels read
            compute(i)
        early = [store for store in early if store.node not in here]
    for store in early + late:
        compute(store.node)
    return found + early + late

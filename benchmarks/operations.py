"""How many XLA operations one step takes, counted in the compiled program."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import Any, NamedTuple

import genalpha as ga
from genalpha.backends.xla import given as xla

_TRIVIAL = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_OPCODE = re.compile(r" = .*? ([a-z][a-z\-]*)\(")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


class Instruction(NamedTuple):
    """One line of a compiled program: what it does, what it calls by role, and the line itself."""

    opcode: str
    calls: dict[str, list[str]]
    text: str


def operations(problem: ga.problems.Problem, **options: Any) -> dict[str, Any]:
    """Number of XLA operations in the compiled program of a block of steps; ``options`` as for a run.

    Fusions, products, calls of libraries, copies, loops and branches count one each; parameters, constants,
    tuples and bitcasts nothing. ``step`` are those executed once a step where the kept matrix serves (that
    is, in the loop over steps and once through the loop over matrices), ``correction`` those of one Newton
    correction (the innermost loop), ``jacobian`` those of a new matrix (the branch). Loops that XLA compiles
    into one function count one; other loops in the branch as often as they turn. ``kinds`` splits the
    numbers by operation.
    """
    computations, entry = _computations(_compiled(problem, options))
    counts: dict[str, Counter[str]] = {part: Counter() for part in ("step", "correction", "jacobian")}
    for instruction in computations[entry]:
        if instruction.opcode == "while":
            _count(computations, instruction, "step", counts)
    return {part: counter.total() for part, counter in counts.items()} | {
        "kinds": {part: dict(counter.most_common()) for part, counter in counts.items()}
    }


def _compiled(problem: ga.problems.Problem, options: dict[str, Any]) -> str:
    """The compiled program of a block of steps, as text, for the inputs it gets in a run."""
    _run(problem, options)
    programs = problem.system._programs
    blocks = {key: program for key, program in programs.items() if key[0] == "block"}
    called: list[tuple[Any, tuple[Any, ...]]] = []

    def record(block: Any, *inputs: Any) -> Any:
        called.append((block, inputs))
        return block(*inputs)

    try:
        programs.update({key: partial(record, block) for key, block in blocks.items()})
        _run(problem, options)
    finally:
        programs.update(blocks)
    block, inputs = called[0]
    return block.lower(*inputs).compile().as_text()


def _run(problem: ga.problems.Problem, options: dict[str, Any]) -> None:
    """One block of steps."""
    problem.solve(t_end=problem.t_span[0] + xla.BLOCK * problem.h, backend="xla", **options)


def _computations(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """The instructions of every computation that do something, and the name of the first one to run."""
    found: dict[str, list[Instruction]] = {}
    entry = name = ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            name = header[2]
            entry = name if header[1] else entry
            found[name] = []
        elif name and (opcode := _OPCODE.search(line)) and opcode[1] not in _TRIVIAL:
            found[name].append(Instruction(opcode[1], _calls(line), line))
    return found, entry


def _calls(line: str) -> dict[str, list[str]]:
    """Names of the computations that an instruction calls, by role."""
    roles = {"body": "body", "condition": "body", "to_apply": "call", "branch_computations": "branch"}
    roles |= {"true_computation": "branch", "false_computation": "branch"}
    calls: dict[str, list[str]] = {"body": [], "call": [], "branch": []}
    for key, names in re.findall(r"(\w+)=(\{%[^}]*\}|%[\w.\-]+)", line):
        if key in roles:
            calls[roles[key]] += re.findall(r"%([\w.\-]+)", names)
    return calls


def _count(
    computations: dict[str, list[Instruction]],
    instruction: Instruction,
    part: str,
    counts: dict[str, Counter[str]],
    times: int = 1,
) -> None:
    """Count what an instruction of a part calls, each thing in the part it belongs to."""
    calls = instruction.calls
    if instruction.opcode == "call" and "xla_cpu_small_call" not in instruction.text:
        inner = [(name, part, times) for name in calls["call"]]
    elif instruction.opcode == "while" and part == "jacobian":
        trips = _TRIPS.search(instruction.text)
        inner = [(name, part, times * int(trips[1] if trips else 1)) for name in calls["body"]]
    else:
        inner = [(name, part, times) for name in calls["body"]]
        inner += [(name, "jacobian", times) for name in calls["branch"]]
    for name, into, often in inner:
        for each in computations[name]:
            loop = each.opcode == "while" and into == "step"
            below = "correction" if loop and not _has_loop(computations, each) else into
            if each.opcode != "call" or "xla_cpu_small_call" in each.text:
                counts[into][each.opcode] += often
            _count(computations, each, below, counts, often)


def _has_loop(computations: dict[str, list[Instruction]], loop: Instruction) -> bool:
    """Whether a loop contains another one outside of branches."""
    return any(each.opcode == "while" for name in loop.calls["body"] for each in computations[name])

"""``genalpha list``: the named problems and methods."""

from __future__ import annotations

import argparse
from typing import Any

from genalpha import methods, problems
from genalpha.cli.text import as_json, table
from genalpha.run import arguments

_METHODS = {
    "soi2": "the default: all constraints, second order (JN08 (13))",
    "hht-soi2": "soi2 with HHT coefficients (JN08 (17))",
    "index3": "position constraints; velocity residual O(h²) (ACB15 (3))",
    "hht-i3": "index3 with HHT coefficients",
    "stabilized": "index3 with velocity constraints too (ACB15 section 3)",
    "dae-alpha": "DAE α-method, position and velocity constraints (YPR98 (3.3))",
    "cs": "dae-alpha without multipliers, by splitting (YPR98 (3.6))",
    "cm": "cs with a simpler Newton matrix",
    "projected": "α-method on the underlying ODE, projected (YPR98 (2.5))",
    "generalized-alpha": "Chung & Hulbert's method, no constraints (JN08 (2))",
}


def run(options: argparse.Namespace) -> int:
    found = [_problem(problems.get(name)) for name in problems.names()]
    known = [{"name": name, "description": describe(name)} for name in methods.names()]
    if options.json:
        print(as_json({"problems": found, "methods": known}))
        return 0
    rows = [("problem", " n  m  p", "time", "what it is")]
    for p in found:
        start, end = p["t_span"]
        sizes = f"{p['n']:>2} {p['m']:>2} {p['p']:>2}"
        rows.append((p["name"], sizes, f"{start:g} to {end:.3g}", p["title"]))
    print(table(rows))
    print("\nn velocities, m holonomic and p nonholonomic constraints\n")
    print(table([("method", "what it does"), *((m["name"], m["description"]) for m in known)]))
    return 0


def describe(method: str) -> str:
    """A method in one line."""
    return _METHODS.get(method) or (type(methods.by_name(method, 0.8)).__doc__ or "").split("\n")[0]


def _problem(problem: problems.Problem) -> dict[str, Any]:
    args = arguments.arguments(problem.args)
    dims, _ = arguments.trace(problem.system, problem.t_span[0], problem.q0, problem.v0, args)
    return {
        "name": problem.name,
        "title": problem.title,
        **dims._asdict(),
        "t_span": problem.t_span,
        "coordinates": problem.coordinates,
        "reference": problem.reference.kind if problem.reference else None,
        "source": problem.source,
    }

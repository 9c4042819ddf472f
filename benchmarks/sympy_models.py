"""From SymPy's objects to motions: genalpha, and `solve_ivp` with SymPy's own right-hand side.

The model is a chain of n bars with both ends fixed, in angles from the horizontal or between neighbours.
Every n runs in a new process without a cache of compiled programs. The table is printed in Markdown:

    python -m benchmarks.sympy_models               # n = 2 to 20; SymPy's own equations up to n = 8
    python -m benchmarks.sympy_models --links 3 5 --most 5
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

SPAN, STEP, RTOL = 1.0, 1e-3, 1e-8
LINKS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20)


def genalpha_row(links: int, relative: bool) -> dict[str, float]:
    """Times of genalpha from SymPy's object, and what it keeps of constraints and energy."""
    from examples.sympy_models import chain, chain_start

    import genalpha as ga

    begin = time.perf_counter()
    method, numbers = chain(links, relative=relative)
    stated = time.perf_counter()
    system = ga.from_sympy(method, numbers)
    read = time.perf_counter()
    q0, v0 = system.start(chain_start(links, relative=relative))
    ga.solve(system, (0.0, 10 * STEP), q0, v0, h=STEP)
    first = time.perf_counter()
    runs = []
    for _ in range(3):
        start = time.perf_counter()
        sol = ga.solve(system, (0.0, SPAN), q0, v0, h=STEP)
        runs.append(time.perf_counter() - start)
    energy = system.values(sol, _energy(method))
    return {
        "object": stated - begin,
        "from_sympy": read - stated,
        "first": first - read,
        "run": min(runs),
        "drift": float(sol.residuals.position.max()),
        "energy": float(np.ptp(energy)),
    }


def sympy_row(links: int, relative: bool) -> dict[str, float]:
    """Times of SymPy and SciPy for the same motion, and what they keep of constraints and energy."""
    import sympy as sp
    from examples.sympy_models import chain, chain_start
    from scipy.integrate import solve_ivp

    method, numbers = chain(links, relative=relative)
    begin = time.perf_counter()
    method.form_lagranges_equations()
    q = list(method.q)
    symbols = [*numbers, *q, *(x.diff() for x in q)]
    names = {x: sp.Dummy() for x in symbols}
    call = lambda *parts: sp.lambdify(
        list(names.values()), [part.xreplace(names) for part in parts], cse=True
    )
    matrices = call(method.mass_matrix_full, method.forcing_full)
    formed = time.perf_counter()
    known = list(numbers.values())

    def rhs(t: float, state: np.ndarray) -> np.ndarray:
        left, right = matrices(*known, *state)
        return np.linalg.solve(left, right).ravel()[: 2 * links]

    start = np.concatenate([chain_start(links, relative=relative), np.zeros(links)])
    begun = time.perf_counter()
    sol = solve_ivp(rhs, (0.0, SPAN), start, rtol=RTOL, atol=RTOL)
    taken = time.perf_counter() - begun
    checks = call(sp.Matrix(method._hol_coneqs), sp.Matrix([_energy(method)]))
    rows = [checks(*known, *state) for state in sol.y.T]
    return {
        "formed": formed - begin,
        "solve_ivp": taken,
        "drift": max(float(np.abs(g).max()) for g, _ in rows),
        "energy": float(np.ptp([e for _, e in rows])),
    }


def _energy(method: Any) -> Any:
    """Kinetic minus potential energy is L; what is quadratic in rates is kinetic."""
    lagrangian = method._L[0]
    potential = -lagrangian.xreplace({x.diff(): 0 for x in method.q})
    return lagrangian + 2 * potential


def _in_new_process(kind: str, links: int, relative: bool) -> dict[str, float] | None:
    command = [sys.executable, "-m", "benchmarks.sympy_models", "--one", kind, str(links), str(int(relative))]
    done = subprocess.run(
        command, env=os.environ | {"GENALPHA_CACHE": "off"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def table(links: list[int], most: int) -> None:
    head = "| n | angles | object, s | from_sympy, s | first result, s | run, ms | drift | energy "
    print(head + "| SymPy forms, s | solve_ivp, s | drift | energy |")
    print("|---" * 12 + "|")
    for relative in (False, True):
        for n in links:
            ours = _in_new_process("genalpha", n, relative)
            theirs = _in_new_process("sympy", n, relative) if n <= most else None
            if ours is None:
                continue
            cells = [str(n), "relative" if relative else "absolute"]
            cells += [f"{ours[key]:.2f}" for key in ("object", "from_sympy", "first")]
            cells += [f"{1e3 * ours['run']:.1f}", f"{ours['drift']:.0e}", f"{ours['energy']:.0e}"]
            cells += (
                ["", "", "", ""]
                if theirs is None
                else [
                    f"{theirs['formed']:.2f}",
                    f"{theirs['solve_ivp']:.2f}",
                    f"{theirs['drift']:.0e}",
                    f"{theirs['energy']:.0e}",
                ]
            )
            print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--links", type=int, nargs="+", default=list(LINKS))
    parser.add_argument(
        "--most", type=int, default=8, help="SymPy's own equations up to this number of links"
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, links, relative = given.one
        row = {"genalpha": genalpha_row, "sympy": sympy_row}[kind](int(links), bool(int(relative)))
        print(json.dumps(row))
        return
    print(f"Motions of {SPAN:g} s; genalpha with h = {STEP:g}, solve_ivp with rtol = atol = {RTOL:g}.\n")
    table(given.links, given.most)


if __name__ == "__main__":
    main()

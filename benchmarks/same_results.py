"""Results of all named problems by all methods and backends, recorded and compared.

A change that must not change results is checked with it: record with the code before and after, compare. ::

    python -m benchmarks.same_results record before.npz
    python -m benchmarks.same_results compare before.npz after.npz

``--part 1/2`` records every second problem, so that two processes can share the work.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import genalpha as ga
from genalpha import methods

STEPS, RTOL, MEMBERS = 40, 1e-5, 3
ARRAYS = ("t", "q", "v", "a", "a_alpha", "t_alpha", "lam", "psi")
GROUPS = ("residuals", "reactions", "errors", "newton", "extra")


def numbers(sol: Any) -> dict[str, np.ndarray]:
    """All arrays of a solution, by name."""
    found = {name: getattr(sol, name) for name in ARRAYS}
    for group in GROUPS:
        value = getattr(sol, group)
        parts = value._asdict() if hasattr(value, "_asdict") else value or {}
        found |= {f"{group}.{name}": part for name, part in parts.items()}
    found |= {"status": sol.status, "t_end": sol.t_end, "steps": sol.stats.steps}
    found |= {"rejected": sol.stats.rejected, "iterations": sol.stats.newton_iterations}
    return {name: np.asarray(value) for name, value in found.items()}


def runs(backends: list[str], part: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """Names of runs, and functions that do them."""
    for name in ga.problems.names()[part[0] - 1 :: part[1]]:
        problem = ga.problems.get(name)
        t0, h = problem.t_span[0], problem.h
        span = (t0, t0 + STEPS * h)
        many = (problem.system, span, np.tile(problem.q0, (MEMBERS, 1)), problem.v0)
        for method in methods.names():
            for backend in backends:
                common: dict[str, Any] = {"method": method, "args": problem.args, "backend": backend}
                one = common | {"throw": False}
                where = f"{name}|{method}|{backend}"
                single = (problem.system, span, problem.q0, problem.v0)
                times = np.linspace(span[0], span[1], 7)
                if backend != "cuda":
                    yield f"{where}|h", lambda a=single, o=one, h=h: ga.solve(*a, h=h, **o)
                    yield f"{where}|rtol", lambda a=single, o=one: ga.solve(*a, rtol=RTOL, max_steps=300, **o)
                if backend != "xla":
                    shared = common | {"args_axes": None}
                    yield (
                        f"{where}|batch h",
                        lambda a=many, o=shared, h=h: ga.solve_batch(*a, h=h, save="all", **o),
                    )
                    yield (
                        f"{where}|batch t_eval",
                        lambda a=many, o=shared, t=times: ga.solve_batch(*a, rtol=RTOL, t_eval=t, **o),
                    )
        jax.clear_caches()


def record(path: str, backends: list[str], part: tuple[int, int]) -> None:
    found: dict[str, np.ndarray] = {}
    for name, run in runs(backends, part):
        try:
            found |= {f"{name}|{key}": value for key, value in numbers(run()).items()}
        except (ValueError, TypeError) as error:  # a method that does not apply, said in the same words
            found[f"{name}|refused"] = np.array(type(error).__name__)
        print(name, flush=True)
        np.savez(path, **found)  # type: ignore[arg-type]


def compare(before: str, after: str) -> int:
    """Print every run that differs, and how much; the number of those that took other steps."""
    old, new = np.load(before), np.load(after)
    names = sorted(set(old.files) | set(new.files))
    same, other, differ = 0, 0, {}
    for name in names:
        run, _, field = name.rpartition("|")
        if name not in old or name not in new:
            differ[run] = f"{field} only in one of them"
            other += 1
            continue
        a, b = old[name], new[name]
        if a.shape == b.shape and a.tobytes() == b.tobytes():
            same += 1
        elif a.shape != b.shape or a.dtype.kind in "Uib":
            differ[run] = f"{differ.get(run, '')} {field}: {a.shape} {b.shape}"
            other += field != "newton.rounding"
        else:
            size = np.nanmax(np.abs(a), initial=0.0)
            with np.errstate(invalid="ignore"):
                off = np.nanmax(np.abs(a - b), initial=0.0) / (size or 1.0)
            alike = bool((np.isnan(a) == np.isnan(b)).all())
            differ[run] = f"{differ.get(run, '')} {field}: {off:.1e}{'' if alike else ' NaN elsewhere'}"
    for run, text in differ.items():
        print(run, text)
    print(f"{same} arrays of {len(names)} the same to the last bit; {len(differ)} runs differ")
    print(f"{other} arrays of other shapes or counts")
    return other


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("files", nargs="+")
    parser.add_argument("--backends", nargs="+", default=["native", "xla"])
    parser.add_argument("--part", default="1/1")
    options = parser.parse_args()
    if options.what == "compare":
        raise SystemExit(bool(compare(*options.files)))
    first, count = map(int, options.part.split("/"))
    record(options.files[0], options.backends, (first, count))


if __name__ == "__main__":
    main()

"""General solvers of DAEs on the problems of the package, and how they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy_dae.integrate import solve_dae
from sksundae.ida import IDA

import genalpha as ga
from benchmarks.statements import Form

Array = np.ndarray
Problem = ga.problems.Problem

# An absolute tolerance that takes multipliers out of the error test.
_FREE = 1e6
SOLVERS = ("scipy_dae Radau", "scipy_dae BDF", "sksundae IDA")


class Path(NamedTuple):
    """What a run leaves: q (N+1, size) at its steps, and whether it reached the end."""

    q: Array
    success: bool


@dataclass(frozen=True)
class Peer:
    """A solver with everything settled but the tolerance."""

    solver: str
    detail: str
    run: Callable[[float], Path]


Forms = tuple[Form, Form, Form]


def forms(problem: Problem) -> Forms:
    """The statements of a problem that are tried: integrals of multipliers, as they are, of index 1."""
    return Form(problem, integrated=True), Form(problem), Form(problem, differentiated=True)


def peers(integrated: Form, direct: Form, differentiated: Form) -> list[Peer]:
    """All solvers in all variants that work, from consistent initial values.

    scipy_dae gets the statement of its own examples, with integrals of the multipliers; on the others its
    BDF fails or takes forever. IDA gets all of them, but index 2 without integrals only with the
    multipliers taken out of the error test, which they make fail.
    """
    found = []
    for stages in (3, 5):
        run = partial(_scipy_dae, integrated, {"method": "Radau", "stages": stages})
        found.append(Peer("scipy_dae Radau", f"{integrated.name} s{stages}", run))
    found.append(Peer("scipy_dae BDF", integrated.name, partial(_scipy_dae, integrated, {"method": "BDF"})))
    for form, tested in (
        (integrated, True),
        (integrated, False),
        (direct, False),
        (differentiated, True),
        (differentiated, False),
    ):
        detail = f"{form.name}{'' if tested else ' free'}"
        found.append(Peer("sksundae IDA", detail, partial(_ida, form, tested)))
    return found


def _scipy_dae(form: Form, options: dict[str, Any], tolerance: float) -> Path:
    span = form.problem.t_span
    found = solve_dae(
        form.values, span, form.y0, form.yp0, jac=form.matrices, rtol=tolerance, atol=tolerance, **options
    )
    return Path(found.y[: form.dims.size].T, bool(found.success))


def _ida(form: Form, tested: bool, tolerance: float) -> Path:
    atol = np.full(form.size, tolerance)
    if not tested:
        atol[form.free] = _FREE
    algebraic = None if form.integrated else list(range(form.size)[form.free])
    options: dict[str, Any] = {"rtol": tolerance, "atol": atol, "algebraic_idx": algebraic}
    solver = IDA(form.values_into, jacfn=form.mixed_into, max_num_steps=30_000, **options)
    found = solver.solve(form.problem.t_span, form.y0, form.yp0)
    return Path(found.y[:, : form.dims.size], bool(found.success))

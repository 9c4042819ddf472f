"""Problems in Exudyn: the pendulum, tops, Andrews' squeezing mechanism, the rolling disk, a flexible rod.

``models(name)`` lists the ways to run a problem, ``python -m benchmarks.exudyn_models`` prints errors and
times of all of them, or of the problems named behind it; ``taskset -c 1`` before it keeps it on one core.
Elements are Exudyn's own, none of them calls Python. Coordinates are of several kinds:

``pendulum``      ``"body"``: (x, y, θ) of the bar, held by two constraints, as in genalpha.
``andrews``       ``"bodies"``: (x, y, θ) of all seven bodies, 20 constraints. ``"arms"``: the four bodies on
                  fixed pivots have an angle only, 13 coordinates and 12 constraints. ``"trees"``: four open
                  chains in relative angles, 7 coordinates and 6 constraints, as in genalpha.
``rolling-disk``  ``"angles"``: the centre, heading, tilt and spin. ``"parameters"``: the centre and Euler
                  parameters. Axes are relabelled so that the plane is x = 0 and the disk turns about its z:
                  Exudyn's angles are then those of genalpha, singular with the disk flat on the plane only.
``heavy-top``     ``"vector"``, the Lie group node of :mod:`benchmarks.exudyn_top`; in ``heavy-top-angles``
                  ``"angles"``. Of q there is the position only.
``flexible-slider-crank``  ``"frame"``: the angle of the crank, the rod's floating frame, nodes of the rod and
                  the slider, 16 coordinates and 7 constraints.

The disk is the rigid one, ``sense=-1`` or ``space="R3xSO3"`` in genalpha. The printed one of J11 is no rigid
body and has no counterpart. Exudyn's joint holds all three velocities at the contact point, the vertical one
too, with either method: the height drifts by an error of second order.

The method is the generalized-α method with positions as constraints ("index 3"), or the trapezoidal rule with
velocities ("index 2"); ρ∞ is without effect on the latter. New matrices once a step are the fastest, but for
the flexible rod, whose matrices are costly: with ``"modified"`` it is up to twice as fast. So is the disk
with short steps, by little. Of the linear solvers Eigen's dense one is the fastest for Andrews' mechanism and
the flexible rod, and Exudyn's own for the others; the sparse one is behind both. With a tolerance of 1e-4 a
step is one iteration and takes a quarter to a third less, at errors that are still of second order and at
most about twice as great, but for the disk in Euler parameters. Left out are ``"modified"`` with such a
tolerance, and Euler parameters with "index 2", which do not converge then. No other setting of Exudyn makes
it faster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import genalpha as ga
from benchmarks.exudyn_bodies import Model, andrews, andrews_trees, disk, pendulum
from benchmarks.exudyn_crank import flexible_slider_crank
from benchmarks.exudyn_top import Array, Formulation, Newton, exudyn, in_angles, model, solve
from benchmarks.exudyn_top import settings as solver_settings
from benchmarks.measure import in_turns, plain

Problem = ga.problems.Problem

RHO_INF = 0.9
HEAD, REPEATS = ("variant", "h", "error", "µs", "iter.", "Jac."), 5
STEPS = {"pendulum": 500, "andrews": 750, "rolling-disk": 1000, "flexible-slider-crank": 2500}
POLICIES: tuple[tuple[Newton, float], ...] = (("step", 1e-8), ("step", 1e-4), ("modified", 1e-8))


class End(NamedTuple):
    """q at the end; Newton iterations and new matrices per step."""

    q: Array
    iterations: float
    jacobians: float


class Run(NamedTuple):
    """What is timed, q after it, and both with a look at the work; ``steps`` is their number."""

    solve: Callable[[], Any]
    q: Callable[[], Array]
    result: Callable[[], End]
    steps: int


@dataclass(frozen=True)
class Variant:
    """One way to run a problem; ``problem`` is the statement in genalpha whose q its results have."""

    problem: Problem
    coordinates: str
    index2: bool
    newton: Newton
    tolerance: float
    linear: str
    build: Callable[[Problem], Model]

    @property
    def settings(self) -> str:
        return f"{'index 2' if self.index2 else 'index 3'} {self.newton} {self.tolerance:.0e}"

    @property
    def name(self) -> str:
        return f"{self.problem.name} {self.coordinates} {self.settings}"

    def prepare(self, h: float, t_end: float, rho_inf: float = RHO_INF) -> Run:
        """Assemble it, to be run from 0 to ``t_end`` in equal steps of about ``h``."""
        steps = max(1, round(t_end / h))
        made = self.build(self.problem)
        chosen = solver_settings(steps, t_end, rho_inf, self.newton, self.index2, self.tolerance)
        chosen.linearSolver.solverType = getattr(exudyn().LinearSolverType, self.linear)

        def run() -> Any:
            return solve(made.system, chosen)

        def result() -> End:
            done = run().it
            return End(made.q(), done.newtonStepsCount / steps, done.newtonJacobiCount / steps)

        return Run(run, made.q, result, steps)


def top(problem: Problem, formulation: Formulation) -> Model:
    """The heavy top."""
    owner, system, body, _ = model(formulation)
    kind = exudyn().OutputVariableType.Position
    return Model(owner, system, lambda: np.array(system.GetObjectOutputBody(body, kind, [0.0, 0.0, 0.0])))


STATEMENTS: dict[str, dict[str, tuple[dict[str, Any], Callable[[Problem], Model]]]] = {
    "pendulum": {"body": ({}, pendulum)},
    "heavy-top": {"vector": ({}, partial(top, formulation="vector"))},
    "heavy-top-angles": {"angles": ({}, partial(top, formulation="angles"))},
    "andrews": {
        "arms": ({}, partial(andrews, arms=True)),
        "bodies": ({}, partial(andrews, arms=False)),
        "trees": ({}, andrews_trees),
    },
    "rolling-disk": {
        "angles": ({"sense": -1.0}, partial(disk, formulation="angles")),
        "parameters": ({"space": "R3xSO3"}, partial(disk, formulation="parameters")),
    },
    "flexible-slider-crank": {"frame": ({}, flexible_slider_crank)},
}  # for all kinds of coordinates, the fastest first, the parameters of the problem in genalpha, and the model


def models(name: str, fastest: bool = False) -> list[Variant]:
    """All ways to run one of the problems of ``STATEMENTS``, or those in its ``fastest`` coordinates."""
    linear = "EigenDense" if name in ("andrews", "flexible-slider-crank") else "EXUdense"
    return [
        Variant(_problem(name, parameters), coordinates, index2, newton, tolerance, linear, build)
        for coordinates, (parameters, build) in list(STATEMENTS[name].items())[: 1 if fastest else None]
        for index2, (newton, tolerance) in product((False, True), POLICIES)
        if (coordinates, index2, tolerance) != ("parameters", True, 1e-4)
    ]


def _problem(name: str, parameters: dict[str, Any]) -> Problem:
    return in_angles() if name == "heavy-top-angles" else ga.problems.get(name, **parameters)


def truth(problem: Problem) -> Array:
    """q at the end of the time span."""
    t_end = problem.t_span[1]
    return np.array(problem.reference(t_end).q if problem.reference else problem.published[t_end]["q"])


def lines(variants: Sequence[Variant], steps: int) -> list[tuple[str, ...]]:
    """For each variant and each number of steps the relative error of q and a step's best time in µs."""
    found, runs = [], []
    for variant in variants:
        t_end, true = variant.problem.t_span[1], truth(variant.problem)
        run = variant.prepare(t_end / steps, t_end)
        end = run.result()
        error = np.linalg.norm(end.q - true) / np.linalg.norm(true)
        found.append((variant.name, f"{t_end / steps:.2e}", f"{error:.1e}", end))
        runs.append(run)
    times = 1e6 / steps * np.array(in_turns([run.solve for run in runs], REPEATS)).min(axis=1)
    return [
        (name, h, error, f"{us:.2f}", f"{end.iterations:.2f}", f"{end.jacobians:.2f}")
        for (name, h, error, end), us in zip(found, times, strict=True)
    ]


def main() -> None:
    """Errors and times of all variants, from long steps to short ones."""
    for name in sys.argv[1:] or STEPS:
        rows = [row for k in (0, 2, 4) for row in lines(models(name), STEPS[name] * 2**k)]
        print(plain(HEAD, sorted(rows, key=lambda row: row[0])), end="\n\n", flush=True)


if __name__ == "__main__":
    main()

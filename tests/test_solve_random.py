"""Random systems: every run ends, and its result or its error is correct (see `judgement`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import genalpha as ga
from judgement import constraints, in_time, judge, methods, run, settings
from random_mechanisms import STRUCTURES
from random_systems import Structure, poly_accelerations, poly_member

NAMES = list(STRUCTURES)


def survey(structure: Structure, seeds: Sequence[int], wanted: Sequence[str], both: bool = True) -> None:
    """Judge a member for each seed, by one of the methods, with given steps and under error control."""
    faults, solved = [], 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        member, method = structure.draw(rng), wanted[seed % len(wanted)]
        for controlled in (False, True) if both else (bool(seed % 2),):
            options = settings(member, controlled, rtol=float(10 ** rng.uniform(-7, -2)))
            try:
                sol = run(structure, member, method=method, **options)
                if isinstance(sol, ga.Solution):
                    judge(structure, member, sol, method)
                    solved += 1
            except Exception as error:  # all of them count, and each is to be seen
                what = f"{type(error).__name__}: {error}"
                faults.append(f"seed {seed}, {method}, {member.trait}, {options}: {what}")
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults)
    assert solved or structure.m > structure.n


FAST = [
    ("poly-1-0-0", "generalized-alpha"),
    ("poly-2-1-0", "soi2"),
    ("broken", "dae-alpha"),
]
SLOW = [
    pytest.param(*case, marks=pytest.mark.slow) for case in (("jumping-held", "index3"), ("suslov", "soi2"))
]


@pytest.mark.parametrize(("name", "method"), [*FAST, *SLOW])
def test_a_few(name: str, method: str) -> None:
    survey(STRUCTURES[name], range(16), [method], both=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many(name: str) -> None:
    known = methods(STRUCTURES[name])
    survey(STRUCTURES[name], range(1000, 1080), ["soi2", known[NAMES.index(name) % len(known)]])


@pytest.mark.slow
@pytest.mark.parametrize("method", methods(STRUCTURES["crank"]))
@pytest.mark.parametrize("name", ["poly-2-1-0", "crank"])
def test_every_method(name: str, method: str) -> None:
    survey(STRUCTURES[name], range(2000, 2040), [method])


def nearly_dependent(structure: Structure, seeds: Sequence[int], method: str) -> None:
    """Small steps make rounding larger there: a run fails, or is right."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        member = poly_member(rng, structure.n, structure.m, structure.p, "nearly dependent")
        sol = run(
            structure, member, method=method, **settings(member, True, float(10 ** rng.uniform(-7, -2)))
        )
        if isinstance(sol, ga.Solution):
            judge(structure, member, sol, method)
            assert sol.t[min(1, len(sol.t) - 1)] == 0 or sol.t[1] > 1e-15


@pytest.mark.slow
def test_nearly_dependent_rows() -> None:
    nearly_dependent(STRUCTURES["poly-4-2-1"], range(5000, 5060, 8), "soi2")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [("poly-2-2-0", "projected"), ("poly-4-2-1", "stabilized"), ("poly-6-3-0", "dae-alpha")],
)
def test_nearly_dependent_rows_of_many(name: str, method: str) -> None:
    nearly_dependent(STRUCTURES[name], range(5000, 5100), method)


# --- the same by both backends ------------------------------------------------------------------------------


def compare(structure: Structure, seeds: Sequence[int], method: str, controlled: bool) -> None:
    """Native code and XLA: the same verdict and, over the first steps, the same motion to rounding."""
    compared = 0
    for seed in seeds:
        member = structure.draw(np.random.default_rng(seed))
        options = settings(member, controlled)
        native, xla = (run(structure, member, method=method, backend=b, **options) for b in ("native", "xla"))
        if member.fate != "ends" and type(native) is not type(xla):
            # A matrix at the limit of being singular: refused at the start, or given up in the first step.
            assert all(isinstance(x, Exception) or x.stats.steps == 0 for x in (native, xla)), (seed, native)
            continue
        assert type(native) is type(xla), (seed, native, xla)
        if isinstance(native, Exception) or isinstance(xla, Exception):
            assert str(native) == str(xla)
            continue
        judge(structure, member, xla, method)
        if member.fate != "ends":  # where a step fails may be a question of rounding
            continue
        compared += 1
        assert native.status == xla.status
        rows = min(30, len(native.t), len(xla.t))
        # Rounding may decide when a matrix is renewed, and error estimates are made with that matrix.
        other_matrix = np.flatnonzero(native.newton.jacobians[: rows - 1] != xla.newton.jacobians[: rows - 1])
        if controlled and other_matrix.size:
            rows = int(other_matrix[0]) + 1
            size = np.abs(native.q).max() + 1e-3 * member.length
            np.testing.assert_allclose(
                native.q[-1], xla.q[-1], rtol=0, atol=0.01 * size, err_msg=f"seed {seed}"
            )
        for name, power in (("t", 0), ("q", 0), ("v", 0), ("lam", 1)):
            one, other = getattr(native, name)[:rows], getattr(xla, name)[:rows]
            size = np.abs(one).max(initial=0.0) + 1e-3 * member.length
            tolerance = 1e-8 * size * 1e3**power
            np.testing.assert_allclose(one, other, rtol=0, atol=tolerance, err_msg=f"{name}, seed {seed}")
    assert compared


def test_backends_agree() -> None:
    compare(STRUCTURES["poly-2-1-0"], range(8), "soi2", controlled=False)


@pytest.mark.slow
@pytest.mark.parametrize("controlled", [False, True])
@pytest.mark.parametrize("name", ["poly-2-1-0", "poly-4-2-1", "broken", "crank", "suslov", "tied"])
def test_backends_agree_on_many(name: str, controlled: bool) -> None:
    compare(STRUCTURES[name], range(40), "stabilized", controlled)


# --- against an independent solution ------------------------------------------------------------------------


def reference(structure: Structure, seed: int, trait: str, method: str) -> None:
    """Second order against Dormand & Prince on the motions that constraints allow, and error control."""
    n, m, p = structure.n, structure.m, structure.p
    member = poly_member(np.random.default_rng(seed), n, m, p, trait)
    args = member.args

    def rate(t: float, y: np.ndarray) -> np.ndarray:
        return np.concatenate([y[n:], poly_accelerations(t, y[:n], y[n:], args)])

    start = np.concatenate([member.q0, member.v0])
    exact = solve_ivp(rate, member.span, start, "DOP853", rtol=1e-12, atol=1e-13).y[:, -1]

    def error(**options: object) -> float:
        sol = ga.solve(
            structure.system, member.span, member.q0, member.v0, args=(args,), method=method, **options
        )
        return float(np.abs(np.concatenate([sol.q[-1], sol.v[-1]]) - exact).max() / (1 + np.abs(exact).max()))

    errors = np.array([error(h=h) for h in (0.02, 0.01, 0.005)])
    slopes = np.log2(errors[:-1] / errors[1:])
    assert errors[-1] < 1e-9 or (slopes > 1.6).all(), f"seed {seed}: orders {slopes}, errors {errors}"
    assert errors[-1] < 1e-3
    loose, tight = error(rtol=1e-4, atol=1e-5), error(rtol=1e-7, atol=1e-8)
    # A thousandth of the tolerance: by (docs/guide.md) a hundredth of the error, here with some room.
    assert tight < max(0.1 * loose, 1e-6), f"seed {seed}: {loose} became {tight}"
    assert tight < 1e-3


def test_order_of_a_few() -> None:
    for seed in range(4):
        reference(STRUCTURES["poly-2-1-0"], seed, "plain", "soi2")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("poly-1-0-0", "generalized-alpha"),
        ("poly-8-0-0", "soi2"),
        ("poly-2-1-0", "dae-alpha"),
        ("poly-3-0-1", "stabilized"),
        ("poly-4-2-1", "projected"),
        ("poly-6-3-0", "soi2"),
    ],
)
def test_order_of_many(name: str, method: str) -> None:
    for seed in range(25):
        reference(STRUCTURES[name], seed, ("plain", "linear")[seed % 2], method)


# --- redundant constraints ----------------------------------------------------------------------------------


def redundant(structure: Structure, seeds: Sequence[int], method: str) -> None:
    """Rows that follow from others are integrated; rows that contradict them are refused."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        member = poly_member(
            rng, structure.n, structure.m, structure.p, ("dependent", "contradictory")[seed % 3 == 0]
        )
        call = {"args": (member.args,), "h": member.h, "method": method, "redundant": "min_norm"}
        with in_time(60):
            if member.trait == "contradictory":
                with pytest.raises(ValueError, match="holonomic"):
                    ga.solve(structure.system, member.span, member.q0, member.v0, **call)
                continue
            sol = ga.solve(structure.system, member.span, member.q0, member.v0, **call)
        assert sol.success
        assert {0, structure.m - 1} <= set(sol.not_unique), f"seed {seed}: {sol.not_unique}"
        constraints(structure, member, sol, method)


def test_redundant_rows() -> None:
    redundant(STRUCTURES["poly-4-2-1"], range(9), "soi2")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["poly-2-2-0", "poly-6-3-0", "poly-5-2-2"])
def test_redundant_rows_of_many(name: str) -> None:
    redundant(STRUCTURES[name], range(60), "stabilized")

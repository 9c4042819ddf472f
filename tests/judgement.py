"""Checks that every run of any system must pass, made with NumPy from the rows of a solution."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

import genalpha as ga
from random_systems import Member, Structure

CONSTRAINED = ["soi2", "hht-soi2", "index3", "hht-i3", "stabilized", "dae-alpha", "projected"]
SPLIT = ["cs", "cm"]
NO_VELOCITY = ("index3", "hht-i3")  # methods that let velocities break the constraints by O(h²)
# The tolerance that the guide names for the start, here relative to what cancels in a constraint, and for the
# rows of successful runs. (Newton's own is 1e-12, or what rounding leaves.)
RESIDUAL = 1e-8
EQUATIONS = 1e-9
EPS = float(np.finfo(float).eps)
NAMED = ("holonomic", "mass", "force", "q0", "matrix", "constraint", "step", "Newton", "max_step", "turned")


def methods(structure: Structure) -> list[str]:
    """All methods that take a structure."""
    if not structure.m and not structure.p:
        return ["generalized-alpha", *CONSTRAINED]
    return CONSTRAINED + (SPLIT if not structure.p else [])


@contextmanager
def in_time(seconds: int) -> Iterator[None]:
    """A run that takes longer is stopped, and fails."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"not finished after {seconds} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def settings(member: Member, controlled: bool, rtol: float = 1e-4) -> dict[str, Any]:
    """Steps of one size, or error control with limits."""
    if not controlled:
        return {"h": member.h}
    return {"rtol": rtol, "atol": 1e-2 * rtol * member.length, "max_steps": 30_000}


def run(structure: Structure, member: Member, seconds: int = 60, **options: Any) -> ga.Solution | Exception:
    """The solution, or the exception, which must be an expected one with a useful message."""
    with in_time(seconds), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="mass ")  # some members have odd ones
        try:
            args = (member.args,)
            sol = ga.solve(
                structure.system, member.span, member.q0, member.v0, args=args, throw=False, **options
            )
        except member.refused as error:
            refusal = error
        else:
            refusal = None
    if refusal is not None:
        assert any(word in str(refusal) for word in NAMED), f"says nothing: {refusal!r}"
        return refusal
    assert member.fate != "refused", f"was not refused, status {sol.status}"
    return sol


def judge(structure: Structure, member: Member, sol: ga.Solution, method: str) -> None:
    """Times, numbers, constraints and equations of motion of a solution with a row for each step."""
    t0, t1 = member.span
    assert sol.t[0] == t0
    assert np.all(np.diff(sol.t) > 0), "times do not increase"
    for name in ("q", "v", "a", "lam", "psi", "a_alpha"):
        rows = getattr(sol, name)
        assert len(rows) == len(sol.t), f"{name} has {len(rows)} rows for {len(sol.t)} times"
        assert np.isfinite(rows).all(), f"{name} is not finite in a row that was kept"
    assert sol.stats.steps == len(sol.t) - 1
    assert sol.success == (sol.status <= 0)
    if sol.success:
        assert sol.t[-1] == t1
        assert sol.message == "reached the end of the time span"
    else:
        assert sol.t[-1] < t1
        assert f"stopped after t = {sol.t[-1]:.9g} (step {len(sol.t) - 1})" in sol.message
        assert any(word in sol.message for word in NAMED), f"says nothing: {sol.message}"
    assert sol.success or member.fate != "ends", sol.message
    if sol.success:
        constraints(structure, member, sol, method)
    equations(structure, member, sol)


def constraints(structure: Structure, member: Member, sol: ga.Solution, method: str) -> None:
    """Residuals in units of the terms that cancel in them, and that the solution tells the same."""
    if not structure.m and not structure.p:
        return
    args, zero = member.args, np.zeros(structure.n)
    still = np.array([structure.g_dot(t, q, zero, args) for t, q in zip(sol.t, sol.q, strict=True)])
    G = np.array([structure.G(t, q, args) for t, q in zip(sol.t, sol.q, strict=True)])
    K = np.array([structure.K(*row, args) for row in zip(sol.t, sol.q, sol.v, strict=True)])
    position = np.array([structure.g(t, q, args) for t, q in zip(sol.t, sol.q, strict=True)])
    velocity = np.array([structure.g_dot(*row, args) for row in zip(sol.t, sol.q, sol.v, strict=True)])
    rolling = np.array([structure.k(*row, args) for row in zip(sol.t, sol.q, sol.v, strict=True)])
    moved, where = _sizes(member, sol)
    rows_g, rows_k = np.abs(G).sum(axis=2).max(axis=0), np.abs(K).sum(axis=2).max(axis=0)
    late = 4 * EPS * np.abs(sol.t)[:, None] * np.abs(still)
    size = rows_g * where[:, None]
    _within("position", position, RESIDUAL * size + late, sol)
    _told(sol.residuals.position, position, size, late)
    size = rows_g * moved[:, None] + np.abs(still).max(axis=0)
    if method not in NO_VELOCITY:
        _within("velocity", velocity, RESIDUAL * size, sol)
    _told(sol.residuals.velocity, velocity, size + rows_g * where[:, None], late)
    size = rows_k * moved[:, None]
    _within("nonholonomic", rolling, RESIDUAL * size, sol)
    _told(sol.residuals.nonholonomic, rolling, size, late)


def _sizes(member: Member, sol: ga.Solution) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of velocities and of positions in each row, as Newton's unknowns make them in a step."""
    steps = np.diff(sol.t, prepend=sol.t[0])
    largest = lambda x: np.abs(x).max(axis=1)
    a = np.maximum(largest(sol.a), np.maximum(largest(sol.a_alpha), largest(np.roll(sol.a_alpha, 1, axis=0))))
    rate = largest(np.diff(sol.q, axis=0, prepend=sol.q[:1])) / np.where(steps > 0, steps, 1.0)
    moved = np.maximum(largest(sol.v), rate) + steps * a
    where = largest(sol.q) + steps * moved
    # Motions that are nothing beside the size of the system and the span may be rounding.
    return moved + 1e-6 * member.length, where + 1e-6 * member.length


def _told(told: np.ndarray, rows: np.ndarray, size: np.ndarray, late: np.ndarray) -> None:
    """The residuals of a solution agree with those of NumPy up to rounding."""
    rounding = 1e3 * EPS * (size.max(initial=0.0) + 1.0) + late.max(initial=0.0)
    np.testing.assert_allclose(told, np.abs(rows).max(axis=1, initial=0.0), rtol=1e-6, atol=rounding)


def _within(name: str, values: np.ndarray, allowed: np.ndarray, sol: ga.Solution) -> None:
    wrong = np.argwhere(~(np.abs(values) <= allowed + 1e-300))
    wrong = wrong[wrong[:, 0] > 0]  # those of the start are the caller's
    if len(wrong):
        i, j = wrong[np.argmax(np.abs(values[*wrong.T]) / (allowed[*wrong.T] + 1e-300))]
        raise AssertionError(
            f"{name}[{j}] = {values[i, j]:.2e} in row {i} at t = {sol.t[i]:.6g}, "
            f"allowed {allowed[i, j]:.1e}, {len(wrong)} entries of {values.size}, status {sol.status}, "
            f"rounding {sol.stats.rounding_limited} of {sol.stats.steps}"
        )


def equations(structure: Structure, member: Member, sol: ga.Solution) -> None:
    """M a = f − Gᵀλ − Kᵀψ in every row, if M is not singular, in units of the terms that cancel."""
    args = member.args
    for i, (t, q, v) in enumerate(zip(sol.t, sol.q, sol.v, strict=True)):
        M, G, K = structure.mass(np, t, q, args), structure.G(t, q, args), structure.K(t, q, v, args)
        if np.linalg.cond(M) > 1e12:
            return
        f = structure.force(np, t, q, v, args)
        left = f - M @ sol.a[i] - G.T @ sol.lam[i] - K.T @ sol.psi[i]
        size = (
            np.abs(f)
            + np.abs(M) @ np.abs(sol.a[i])
            + np.abs(G).T @ np.abs(sol.lam[i])
            + np.abs(K).T @ np.abs(sol.psi[i])
        )
        stiff = np.abs(args["K"]) @ np.abs(q) if "K" in args else 0.0
        rounding = stiff + np.abs(sol.lam[i]).sum()  # gradients that vanish are rounding of numbers like one
        wrong = np.abs(left) > EQUATIONS * size.max() + 1e3 * EPS * rounding
        assert not wrong.any(), f"M a − f = {left} of {size} in row {i}, t = {t:.6g}"

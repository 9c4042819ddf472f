"""Combinations of options of ``solve``: every pair occurs, and the rows are those of the plain run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genalpha as ga
from random_mechanisms import STRUCTURES, broken_member, spin_member
from random_systems import Member

CHOICES: dict[str, tuple[Any, ...]] = {
    "steps": ("given", "controlled"),
    "backend": ("native", "xla"),
    "events": ("none", "seen", "reset", "terminal"),
    "rows": ("all", 3, "final", ("q", "lam"), "t_eval", "t_eval, q"),
    "dense": (False, True),
    "callback": ("none", "counts", "stops"),
    "pieces": (1, 2),
    "checkpoint": (False, True),
    "redundant": ("raise", "min_norm"),
}
SPAN, MIDDLE, HAPPENS, ENDS, STOPS = (0.0, 1.0), 0.5, 0.4321, 0.8765, 0.7
T_EVAL = np.array([0.0, 0.05, 0.3, 0.317, 0.6, 0.8, 0.99])
BETWEEN = np.array([0.013, 0.2222, 0.41, 0.45, 0.66])  # times between the steps

SEEN = ga.Event(lambda t, q, v, a: t - HAPPENS)
RESET = ga.Event(lambda t, q, v, a: t - HAPPENS, reset=lambda t, q, v, a: -0.5 * v)
TERMINAL = ga.Event(lambda t, q, v, a: t - ENDS, terminal=True)
EVENTS = {"none": None, "seen": SEEN, "reset": RESET, "terminal": TERMINAL}


def pairs() -> list[dict[str, Any]]:
    """Combinations of choices in which every two choices of different kinds meet, found greedily."""
    names = list(CHOICES)
    couples = lambda one: set(itertools.combinations(zip(names, map(str, one), strict=True), 2))
    every = [(one, couples(one)) for one in itertools.product(*CHOICES.values())]
    left = set().union(*(found for _, found in every))
    chosen = []
    while left:
        best, found = max(every, key=lambda pair: len(pair[1] & left))
        chosen.append(dict(zip(names, best, strict=True)))
        left -= found
    return chosen


PAIRS = pairs()


def members() -> dict[str, Member]:
    rng = np.random.default_rng(7)
    pendulum = next(x for x in iter(lambda: broken_member(rng, True), None) if x.trait == "nothing")
    body = next(x for x in iter(lambda: spin_member(rng, "free"), None) if x.trait == "plain")
    return {"broken-held": pendulum, "spin": body}


MEMBERS = members()


def call(name: str, span: tuple[float, float], choice: dict[str, Any], **more: Any) -> ga.Solution:
    member = MEMBERS[name]
    options: dict[str, Any] = {"h": 0.02} if choice["steps"] == "given" else {"rtol": 1e-5, "atol": 1e-6}
    options |= {"backend": choice["backend"], "events": EVENTS[choice["events"]], "args": (member.args,)}
    if "state" not in more:
        options |= {"q0": member.q0, "v0": member.v0}
    return ga.solve(STRUCTURES[name].system, span, **options, **more)


def kept(choice: dict[str, Any], span: tuple[float, float], first: bool) -> dict[str, Any]:
    """The arguments that say what is kept."""
    rows = choice["rows"]
    options: dict[str, Any] = {"dense_output": True} if choice["dense"] else {}
    if isinstance(rows, str) and rows.startswith("t_eval"):
        options["t_eval"] = np.array([t for t in T_EVAL if (span[0] - first) < t <= span[1]])
        rows = ["q"] if "q" in rows.split(", ") else "all"
    if rows != "all":
        options["save"] = list(rows) if isinstance(rows, tuple) else rows
    return options


def whole(choice: dict[str, Any]) -> bool:
    """Whether a part of the run takes the same steps as the whole."""
    same_grid = choice["steps"] == "given" and choice["events"] != "reset"
    return choice["pieces"] == 1 or same_grid


# XLA, which compiles a program for every kind of rows, takes some seconds for each.
FAST = {i for i, c in enumerate(PAIRS) if c["backend"] == "native"}
FAST |= {[i for i, c in enumerate(PAIRS) if (c["backend"], c["steps"]) == ("xla", "given")][-1]}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, i, marks=() if name == "broken-held" and i in FAST else pytest.mark.slow)
        for name in ("broken-held", "spin")
        for i in range(len(PAIRS))
    ],
)
def test_options_together(name: str, number: int, tmp_path: Path) -> None:
    choice = PAIRS[number]
    calls: list[float] = []

    def callback(state: Any) -> bool:
        calls.append(float(state.t))
        return choice["callback"] == "stops" and state.t >= STOPS

    plain = call(name, SPAN, choice)
    spans = [SPAN] if choice["pieces"] == 1 else [(SPAN[0], MIDDLE), (MIDDLE, SPAN[1])]
    found: list[ga.Solution] = []
    for i, span in enumerate(spans):
        more = kept(choice, span, i == 0) | ({"state": found[0].state} if found else {})
        more |= {"callback": callback} if choice["callback"] != "none" else {}
        more |= {"checkpoint": tmp_path / f"{i}.ckpt"} if choice["checkpoint"] else {}
        if choice["redundant"] == "min_norm":
            forbidden = {"events": choice["events"] != "none"} | dict.fromkeys(more, True)
            forbidden = {key for key, value in forbidden.items() if value} - {"t_eval", "callback"}
            more["redundant"] = "min_norm"
            if forbidden:
                with pytest.raises(ValueError, match="min_norm.*(" + "|".join(forbidden) + ")"):
                    call(name, span, choice, **more)
                return
        calls.clear()
        found.append(call(name, span, choice, **more))
        if choice["callback"] != "none":
            assert len(calls) == found[-1].stats.steps
        if choice["checkpoint"]:
            again = call(name, span, choice, **more)
            np.testing.assert_array_equal(again.q, found[-1].q)
            assert again.status == found[-1].status
    for sol in found:
        judged(choice, plain, sol)
    stopped = choice["callback"] == "stops"
    assert found[-1].status == (-2 if stopped else -1 if choice["events"] == "terminal" else 0)
    assert all(sol.status == 0 for sol in found[:-1])
    if choice["events"] in ("seen", "reset"):
        assert [len(sol.t_events[0]) for sol in found] == [1, 0][: len(found)]
        np.testing.assert_allclose(found[0].t_events[0], HAPPENS, atol=1e-12)


def judged(choice: dict[str, Any], plain: ga.Solution, sol: ga.Solution) -> None:
    """The rows of a solution are rows of the plain run, or lie between them."""
    tolerance = 1e-11 if whole(choice) else 2e-3
    rows = choice["rows"]
    names = {
        "all": ("q", "v", "lam"),
        3: ("q", "v", "lam"),
        "final": ("q", "v", "lam"),
        "t_eval": ("q", "v", "lam"),
    }
    for name in ("q", "v", "a", "lam", "psi"):
        wanted = name in (rows if isinstance(rows, tuple) else ("q",) if rows == "t_eval, q" else (name,))
        assert (getattr(sol, name) is not None) == wanted, name
    assert rows != "final" or len(sol.t) == 1
    for name in names.get(rows, ("q",)):
        for t, value in zip(sol.t, getattr(sol, name), strict=True):
            there = np.abs(plain.t - t) <= 1e-12
            if there.any():  # both sides of an event have the same time
                gap = np.abs(getattr(plain, name)[there] - value).max(axis=1, initial=0.0).min()
            else:
                gap = np.abs(getattr(plain(t), name) - value).max(initial=0.0)
            assert gap <= tolerance * (1e3 if name == "lam" else 1.0), (
                f"{name} at t = {t} is off by {gap:.1e}"
            )
    if str(rows).startswith("t_eval"):
        assert sol.t.tolist() == [t for t in T_EVAL if sol.t[0] <= t <= sol.t[-1]]
    if not choice["dense"] and rows != "all":
        with pytest.raises(ValueError, match="dense_output=True"):
            sol(BETWEEN[0])
        return
    ends = sol.nodes.t if sol.nodes is not None else sol.t
    times = [t for t in BETWEEN if ends[0] < t < ends[-1]]
    np.testing.assert_allclose(sol(times).q, plain(times).q, rtol=0, atol=tolerance)


def test_every_pair_is_there() -> None:
    for one, other in itertools.combinations(CHOICES, 2):
        met = {(str(c[one]), str(c[other])) for c in PAIRS}
        assert len(met) == len(CHOICES[one]) * len(CHOICES[other])
    assert len(PAIRS) < 40

"""The error that ``accuracy`` claims, against an independent integrator, on random systems."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from exact_motion import motion, multipliers
from genalpha.mechanics.system import Dims
from random_mechanisms import STRUCTURES

SMOOTH = [name for name in STRUCTURES if not name.startswith(("jumping", "broken")) and name != "poly-2-3-0"]
ACCURACIES = (1e-4, 1e-6, 1e-8, 1e-10)
LONGER = 4.0  # times the spans of the structures


class Claim(NamedTuple):
    """True errors, estimated ones, and those of the reference, all relative. Some may be NaN."""

    name: str
    seed: int
    accuracy: float
    true: float
    estimate: float
    reference: float
    true_forces: float
    forces: float


def size(x):
    largest = np.abs(x).max(axis=0)
    return np.maximum(largest, 0.01 * np.sqrt(np.mean(largest**2))) + 1e-300


def claims(names, count, accuracies=ACCURACIES):
    """Runs that report success."""
    found, tried = [], 0
    for name in names:
        structure, seed, taken = STRUCTURES[name], 0, 0
        while taken < count:
            member = structure.draw(np.random.default_rng(seed))
            seed += 1
            if member.fate != "ends":
                continue
            taken += 1
            for accuracy in accuracies:
                tried += 1
                claim = judged(structure, member, seed - 1, accuracy)
                found += [claim] if claim is not None else []
    return found, tried


def judged(structure, member, seed, accuracy):
    """The claim of one run; None if it failed, or there is no reference."""
    system, args = structure.system, (member.args,)
    t0, t1 = member.span
    span = (t0, t0 + LONGER * (t1 - t0))
    sol = ga.solve(system, span, member.q0, member.v0, args=args, accuracy=accuracy, throw=False)
    if not sol.success:
        return None
    dims = Dims(len(member.q0), len(member.v0), structure.m, structure.p)
    rows = np.unique(np.linspace(0, len(sol.t) - 1, 12).astype(int))
    start, at = (member.q0, member.v0), sol.t[rows]
    runs = [motion(system, dims, span, start, args, rtol, 0.1 * rtol, t_eval=at) for rtol in (1e-13, 1e-12)]
    if not all(run.success for run in runs):
        return None
    exact, other = (np.split(run.y.T, [dims.size], axis=1) for run in runs)
    difference = jax.vmap(system.space.difference)
    q, v = jnp.asarray(sol.q[rows]), sol.v[rows]
    sizes = np.concatenate([size(np.asarray(jax.vmap(system.space.magnitude)(q))), size(sol.v)])

    def norm(q, v, of):
        move = np.asarray(difference(jnp.asarray(q), jnp.asarray(of[0])))
        moved = np.concatenate([move, of[1] - v], axis=1)
        return np.sqrt(np.mean((moved / sizes) ** 2, axis=1)).max()

    forces = [np.nan, np.nan]
    if structure.m + structure.p:
        right = np.stack([multipliers(system, dims)(*state, args) for state in zip(at, *exact, strict=True)])
        own = np.concatenate([sol.lam[rows], sol.psi[rows]], axis=1)
        told = np.concatenate([sol.error.lam[rows], sol.error.psi[rows]], axis=1)
        forces = [np.abs(right - own).max() / np.abs(own).max(), told.max() / np.abs(own).max()]
    estimate = accuracy * sol.error.norm[rows].max()
    return Claim(structure.name, seed, accuracy, norm(q, v, exact), estimate, norm(*exact, other), *forces)


def honest(found, accuracy):
    """Claims of this accuracy whose reference is good enough, and true errors in units of the accuracy."""
    good = [c for c in found if c.accuracy == accuracy and c.reference < 0.1 * accuracy]
    return good, np.array([c.true / c.accuracy for c in good])


def test_a_few():
    found, _ = claims(["poly-2-1-0"], 3, (1e-8,))
    assert len(found) == 3
    for claim in found:
        assert claim.true < 2 * claim.accuracy + 3 * claim.reference, claim
        assert claim.true < 5 * claim.estimate + 3 * claim.reference, claim


@pytest.mark.slow
def test_many():
    """At least 200 systems: at most the accuracy in 95 %, at most 3 times it in 99.5 %, never 20 times it."""
    found, tried = claims(SMOOTH, 13)
    assert tried >= 4 * 200
    assert len(found) > 0.95 * tried
    for accuracy in ACCURACIES:
        good, ratios = honest(found, accuracy)
        print(f"{accuracy:g}: {len(good)} counted, largest {ratios.max():.2g}")
        assert np.mean(ratios <= 1) >= 0.95
        assert np.mean(ratios <= 3) >= 0.995
        assert ratios.max() < 20
        told = np.array([c.forces / c.true_forces for c in good if c.true_forces > 30 * c.reference])
        assert np.mean(told > 1 / 3) > 0.95
        assert told.min() > 1 / 20

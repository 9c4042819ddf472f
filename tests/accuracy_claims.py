"""What ``accuracy`` claims, against an independent integrator, on random systems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import genalpha as ga
from exact_motion import motion, multipliers
from genalpha.mechanics.system import Dims
from random_mechanisms import STRUCTURES
from random_systems import Member, Structure

SMOOTH = [name for name in STRUCTURES if not name.startswith(("jumping", "broken")) and name != "poly-2-3-0"]
ACCURACIES = (1e-4, 1e-6, 1e-8, 1e-10)
LONGER = 4.0  # times the spans of the structures
ROWS = 12  # at which motions are compared
AT_REST, NO_REFERENCE = "nothing moves", "no reference"


class Claim(NamedTuple):
    """True errors, estimated ones, and those of the reference, all relative. Some may be NaN.

    ``failed`` is empty, the message of a run that failed, or says why there is nothing to compare with.
    """

    name: str
    seed: int
    accuracy: float
    failed: str = ""
    true: float = np.nan
    estimate: float = np.nan
    reference: float = np.nan
    true_forces: float = np.nan
    forces: float = np.nan
    reference_forces: float = np.nan


def size(x: np.ndarray) -> np.ndarray:
    largest = np.abs(x).max(axis=0)
    return np.maximum(largest, 0.01 * np.sqrt(np.mean(largest**2))) + 1e-300


def claims(names: Sequence[str], count: int, accuracies: Sequence[float] = ACCURACIES) -> Iterator[Claim]:
    """One claim for each accuracy and each of the first ``count`` members of a structure that can end."""
    for name in names:
        structure, seed, taken = STRUCTURES[name], 0, 0
        while taken < count:
            member = structure.draw(np.random.default_rng(seed))
            seed += 1
            if member.fate != "ends":
                continue
            taken += 1
            for accuracy in accuracies:
                yield judged(structure, member, seed - 1, accuracy)


def judged(structure: Structure, member: Member, seed: int, accuracy: float) -> Claim:
    """The claim of one run."""
    system, args = structure.system, (member.args,)
    t0, t1 = member.span
    span = (t0, t0 + LONGER * (t1 - t0))
    sol = ga.solve(system, span, member.q0, member.v0, args=args, accuracy=accuracy, throw=False)
    claim = Claim(structure.name, seed, accuracy)
    if not sol.success:
        return claim._replace(failed=sol.message)
    if np.abs(sol.v).max() * (span[1] - span[0]) < 1e-14 * np.abs(sol.q).max():
        return claim._replace(failed=AT_REST)  # there are no relative errors
    dims = Dims(len(member.q0), len(member.v0), structure.m, structure.p)
    rows = np.unique(np.linspace(0, len(sol.t) - 1, ROWS).astype(int))
    start, at = (member.q0, member.v0), sol.t[rows]
    runs = [motion(system, dims, span, start, args, rtol, 0.1 * rtol, t_eval=at) for rtol in (1e-13, 1e-12)]
    if not all(run.success for run in runs):
        return claim._replace(failed=NO_REFERENCE)
    exact, other = (np.split(run.y.T, [dims.size], axis=1) for run in runs)
    difference = jax.vmap(system.space.difference)
    q, v = jnp.asarray(sol.q[rows]), sol.v[rows]
    sizes = np.concatenate([size(np.asarray(jax.vmap(system.space.magnitude)(q))), size(sol.v)])

    def norm(q: Any, v: Any, of: Any) -> float:
        move = np.asarray(difference(jnp.asarray(q), jnp.asarray(of[0])))
        moved = np.concatenate([move, of[1] - v], axis=1)
        return float(np.sqrt(np.mean((moved / sizes) ** 2, axis=1)).max())

    claim = claim._replace(
        true=norm(q, v, exact),
        estimate=float(accuracy * sol.error.norm[rows].max()),
        reference=norm(*exact, other),
    )
    if not structure.m + structure.p:
        return claim
    right, less_right = (
        np.stack([multipliers(system, dims)(*state, args) for state in zip(at, *of, strict=True)])
        for of in (exact, other)
    )
    own = np.concatenate([sol.lam[rows], sol.psi[rows]], axis=1)
    told = np.concatenate([sol.error.lam[rows], sol.error.psi[rows]], axis=1)
    parts = (np.abs(right - own), told, np.abs(right - less_right))
    largest = np.abs(own).max()
    if not largest:
        return claim  # there are no relative errors of forces
    forces = [float(x.max() / largest) for x in parts]
    return claim._replace(true_forces=forces[0], forces=forces[1], reference_forces=forces[2])


def honest(found: Sequence[Claim], accuracy: float) -> tuple[list[Claim], np.ndarray]:
    """Claims of this accuracy whose reference is good enough, and true errors in units of the accuracy."""
    good = [c for c in found if c.accuracy == accuracy and c.reference < 0.1 * accuracy]
    return good, np.array([c.true / c.accuracy for c in good])


def broken(found: Sequence[Claim]) -> list[str]:
    """Promises that the claims break.

    At most the accuracy in 95 %, at most 3 times it in 99.5 %, never 20 times it. Estimates for λ and ψ are
    at least a third of the true errors in 95 %, and always at least a twentieth.
    """
    done = [not c.failed for c in found if c.failed != AT_REST]
    kept = [("more than 95 % of the runs succeed", np.mean(done) > 0.95)]
    for accuracy in sorted({c.accuracy for c in found}):
        good, ratios = honest(found, accuracy)
        told = np.array([c.forces / c.true_forces for c in good if c.true_forces > c.reference_forces])
        kept += [
            (f"{accuracy:g}: errors of 95 % are as asked", np.mean(ratios <= 1) >= 0.95),
            (f"{accuracy:g}: errors of 99.5 % are below 3 times that", np.mean(ratios <= 3) >= 0.995),
            (f"{accuracy:g}: all errors are below 20 times that", ratios.max() < 20),
            (
                f"{accuracy:g}: 95 % of the estimates of forces are a third or more",
                np.mean(told > 1 / 3) > 0.95,
            ),
            (f"{accuracy:g}: all estimates of forces are a twentieth or more", told.min() > 1 / 20),
        ]
    return [what for what, is_kept in kept if not is_kept]

"""Monitors all constraints of a run that integrates only some of them, and computes all multipliers."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from genalpha.mechanics import start_errors
from genalpha.numerics import codes
from genalpha.results.records import Residuals
from genalpha.run.redundant import rank
from genalpha.run.redundant.constraints import Constraints, Seen
from genalpha.run.redundant.rank import Kept, Relation

# The largest violation of a constraint that was left out, as a distance relative to 1 + |q| or as a velocity
# relative to 1 + |v|.
BROKEN = 1e-6
# The largest part of its gradient that is not a combination of the others, relative to the largest so far.
INDEPENDENT = 1e-5
# Rows kept whose smallest singular value is below this are dependent.
DEPENDENT = 1e-8
# Gradients below this fraction of the largest are rounding.
_NOTHING = 1e-13
# Factors between rows below this are rounding.
_NO_FACTOR = 1e-8
_TOGETHER = 2**21  # numbers in the gradients that are examined at a time


class LegVerdict(NamedTuple):
    """How many rows of a leg are good, and what to do next.

    The first ``good`` rows are good. ``status`` and ``detail`` describe the error in the next one. If
    ``kept`` is given, the run continues from the last good row with these constraints instead.
    """

    good: int
    status: int = codes.SUCCESS
    detail: str = ""
    kept: Kept | None = None


class Share(NamedTuple):
    """All constraints at N rows: multipliers (N, m) and (N, p), residuals, and −Gᵀλ (N, n).

    ``shared`` (1, m + p) says which multipliers are not unique.
    """

    lam: np.ndarray
    psi: np.ndarray
    residuals: Residuals
    holonomic_force: np.ndarray
    shared: np.ndarray


class _Judged(NamedTuple):
    """The judgement of N rows for a choice of r constraints, of which d are left out.

    ``weak`` (N,) marks rows in which the chosen ones are nearly dependent. ``wrong`` (N,) marks rows in which
    one left out does not follow from them. ``factors`` (N, d, r), ``mismatch`` and ``rest`` (N, d) belong to
    those left out.
    """

    factors: np.ndarray
    mismatch: np.ndarray
    rest: np.ndarray
    weak: np.ndarray
    wrong: np.ndarray


class ConstraintMonitor:
    """All constraints, and the largest gradients so far.

    ``lengths`` (m + p,) are the lengths of the rows of (G; K), scaled by the mass matrix. ``reach`` (m + p,)
    are the largest entries of the rows. A constraint divided by its reach is a distance.
    """

    def __init__(self, full: Constraints, start: Seen) -> None:
        self.full = full
        self.lengths, self.reach = np.zeros(len(full.names)), np.zeros(len(full.names))
        self._notice(start)

    def _notice(self, seen: Seen) -> None:
        sizes = np.linalg.norm(seen.scaled, axis=2), np.abs(seen.gradients).max(axis=2)
        self.lengths, self.reach = (
            np.maximum(old, new.max(axis=0, initial=0.0, where=np.isfinite(new)))
            for old, new in zip((self.lengths, self.reach), sizes, strict=True)
        )

    def rows(self, seen: Seen) -> np.ndarray:
        """(G; K) (N, m + p, n) scaled by the mass matrix, divided by ``lengths``; NaN becomes zero."""
        rows = seen.scaled / _or(self.lengths, np.inf)[:, None]
        return np.where(np.isfinite(rows), rows, 0.0)

    def factors(self, relation: Relation, kept: Kept) -> np.ndarray:
        """The factors (N, d, r) by which gradients left out are combinations of those kept, unscaled."""
        others = rank.left_out(kept, len(self.lengths))
        # Two constraints are related if their factor is not rounding in at least one of the N rows.
        related = np.abs(relation.factors).max(axis=0, initial=0.0) > _NO_FACTOR
        return relation.factors * related * self.lengths[others][:, None] / self.lengths[list(kept)]

    def mismatch(
        self, seen: Seen, q: np.ndarray, v: np.ndarray, kept: Kept, factors: np.ndarray
    ) -> np.ndarray:
        """The deviations (N, d) of constraints left out from the combination of those kept.

        If those kept do not hold exactly (velocities of "index3"), the others do not either, so only the
        deviation counts. It is a distance relative to 1 + |q| or a velocity relative to 1 + |v|.
        """
        left, base = rank.left_out(kept, len(self.lengths)), list(kept)
        reach, dims = _or(self.reach, 1.0)[left], self.full.dims
        size = lambda x: reach * (1 + np.abs(x).max(axis=1, keepdims=True))
        off = lambda x: np.abs(x[:, left] - np.einsum("nij,nj->ni", factors, x[:, base]))
        positions = off(np.pad(seen.g, [(0, 0), (0, dims.p)])) * (np.array(left) < dims.m)
        return np.maximum(positions / size(q), off(seen.rates) / size(v))

    def examine(
        self, t: np.ndarray, q: np.ndarray, v: np.ndarray, multipliers: np.ndarray, kept: Kept
    ) -> tuple[Share, LegVerdict]:
        """Examine N rows with the constraints ``kept`` and their multipliers (N, r), up to a bad row."""
        count, parts = max(1, _TOGETHER // (len(self.lengths) * v.shape[1])), []
        for first in range(0, len(t), count):
            here = slice(first, first + count)
            seen = self.full.look(t[here], q[here], v[here])
            self._notice(seen)
            judged = self._judged(seen, q[here], v[here], kept)
            parts.append(self._share(seen, multipliers[here], kept, judged.factors))
            bad = judged.weak | judged.wrong
            bad[0] &= first > 0  # the start has been judged before
            if bad.any():
                i = int(bad.argmax())
                verdict = self._verdict(i, t[here], q[here], v[here], seen, kept, judged)
                break
            verdict = LegVerdict(len(bad))
        share = jax.tree.map(lambda *blocks: np.concatenate(blocks), *parts)
        return share, verdict._replace(good=first + verdict.good)

    def _judged(self, seen: Seen, q: np.ndarray, v: np.ndarray, kept: Kept) -> _Judged:
        relation = rank.relation(self.rows(seen), kept)
        factors = self.factors(relation, kept)
        mismatch = self.mismatch(seen, q, v, kept, factors)
        finite = np.isfinite(seen.gradients).all(axis=(1, 2)) & np.isfinite(mismatch).all(axis=1)
        weak = rank.worst(relation.factors, kept, self.full.dims.m) > rank.WORST
        weak |= relation.smallest < DEPENDENT
        wrong = ~(mismatch <= BROKEN) | ~(relation.rest <= INDEPENDENT)
        return _Judged(factors, mismatch, relation.rest, weak & finite, wrong.any(axis=1) | ~finite)

    def _share(self, seen: Seen, of_kept: np.ndarray, kept: Kept, factors: np.ndarray) -> Share:
        m, left, base = self.full.dims.m, rank.left_out(kept, len(self.lengths)), list(kept)
        every = np.empty((len(of_kept), len(self.lengths)))
        every[:, base], every[:, left] = rank.minimum_norm(factors, of_kept)
        largest = lambda x: np.abs(x).max(axis=1, initial=0.0)
        shared = np.ones((1, len(self.lengths)), dtype=bool)
        shared[0, base] = (factors != 0).any(axis=(0, 1))
        return Share(
            lam=every[:, :m],
            psi=every[:, m:],
            residuals=Residuals(largest(seen.g), largest(seen.g_dot), largest(seen.k)),
            holonomic_force=-np.einsum("ni,nij->nj", every[:, :m], seen.gradients[:, :m]),
            shared=shared,
        )

    def _verdict(
        self, i: int, t: np.ndarray, q: np.ndarray, v: np.ndarray, seen: Seen, kept: Kept, judged: _Judged
    ) -> LegVerdict:
        """What to do about the bad row i: continue with other constraints from the row before or from row i,
        or fail."""
        if not judged.weak[i]:
            return LegVerdict(i, codes.REDUNDANT, self._told(t[i], judged.mismatch[i], judged.rest[i], kept))
        other = rank.choose(self.rows(seen)[i], self.full.dims.m, DEPENDENT, self._counts(kept))
        if len(other) < len(kept) or other == kept:
            return LegVerdict(i, codes.SINGULAR, _fallen(t[i], len(kept), len(other)))
        again = self._judged(seen, q, v, other)
        if again.wrong[i]:
            return LegVerdict(i, codes.REDUNDANT, self._told(t[i], again.mismatch[i], again.rest[i], other))
        return LegVerdict(i if i and not again.weak[i - 1] else i + 1, kept=other)

    def _counts(self, kept: Kept) -> tuple[int, int]:
        holonomic = sum(i < self.full.dims.m for i in kept)
        return holonomic, len(kept) - holonomic

    def _told(self, t: float, mismatch: np.ndarray, rest: np.ndarray, kept: Kept) -> str:
        """A message that names the constraint which makes a row bad."""
        left = rank.left_out(kept, len(self.lengths))
        off = np.where(np.isfinite(mismatch), mismatch, np.inf)
        i = int(off.argmax() if off.max() > BROKEN else rest.argmax())
        by = f"it is off by {off[i]:.1e}" if off[i] > BROKEN else "its gradient is no combination of others"
        by = by if np.isfinite(off[i]) else "it is NaN or infinite"
        return (
            f"{self.full.names[left[i]]} followed from others at the start and was left out, but at "
            f"t = {t:.9g} {by}. It is not redundant, or the start was a kinematic singularity"
        )

    def ahead(self, t: float, q: np.ndarray, v: np.ndarray, h: float, kept: Kept) -> Kept | str | None:
        """What to do after a failed step h from here, from the constraints at its end.

        Returns other rows to keep, a message that the constraints lose their rank there, or None.
        """
        here, t = self.full.look_once(t, q, v), t + h
        row = self.rows(self.full.look_once(t, self.full.moved(q, h * v), v))[0]
        relation = rank.relation(row, kept)
        worst = rank.worst(relation.factors, kept, self.full.dims.m)
        if worst <= rank.WELL and relation.smallest > start_errors.NEARLY:
            return None
        other = rank.choose(row, self.full.dims.m, start_errors.NEARLY, self._counts(kept))
        if len(other) < len(kept):
            return _fallen(t, len(kept), len(other))
        usable = other != kept and not self._judged(here, q[None], v[None], other).weak[0]
        return other if usable else None


def _or(sizes: np.ndarray, other: float) -> np.ndarray:
    """Sizes of gradients. Those that are only rounding are replaced by another number."""
    return np.where(sizes > _NOTHING * sizes.max(initial=0.0), sizes, other)


def _fallen(t: float, before: int, now: int) -> str:
    return (
        f"Near t = {t:.9g} the rank of all constraints falls from {before} to {now}: this is a kinematic "
        "singularity, and no other choice of independent constraints helps"
    )

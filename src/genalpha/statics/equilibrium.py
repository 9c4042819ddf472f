"""Static equilibria under constraints, and whether they are stable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from genalpha.backends.sparse.equations import AtState
from genalpha.errors import EquilibriumNotFound
from genalpha.mechanics.system import System
from genalpha.run import arguments
from genalpha.run.arguments import Numbers
from genalpha.statics import positions
from genalpha.statics.stability import Stability, judged
from genalpha.statics.tangent import DENSE, Constrained
from genalpha.statics.whole import WholeSystem

# A step is small if it is shorter than this, times 1 + |q|. Forces that then stop to shrink are rounding.
_SMALL = 1e-6
# Newton's matrix gets this part of its size more, so that it exists where a motion needs no force.
_ADDED = 1e-9
_ROUNDED = 1e-14  # forces that are left, relative to those that act
_MOST_LEFT = 8  # how often an unstable equilibrium is left
_LONGEST = 0.5  # the first steps, times 1 + |q|
_FEW = 8  # turns in which a step must come back onto the constraints
_SHAKEN = (1e-3, 1e-2, 3e-2, 0.1, 0.3)  # random changes of a guess that cannot be closed, times 1 + |q|
_PUSHED = "small changes do not reduce the force that is left"
_FAR = 1e6  # positions that are that many times 1 + |q| away have no bound


@dataclass(frozen=True)
class Equilibrium:
    """A static equilibrium: t, q (size,), multipliers lam (m,) and psi (p,), and whether it is stable.

    v and a (n,) are zero, so it is a state for :func:`linearize`; first-order states are at the end of v.
    ``stable`` is True or False, or None if the linear equations do not decide. ``curvatures`` are the
    smallest eigenvalues of the stiffness relative to the mass, squares of frequencies without damping.
    ``force`` is the largest force that is not balanced, ``step`` the last change of q. ``found`` says whether
    it is an equilibrium, ``message`` what was found.
    """

    t: float
    q: np.ndarray
    lam: np.ndarray
    psi: np.ndarray
    stable: bool | None
    curvatures: np.ndarray
    force: float
    step: float
    iterations: int
    found: bool
    message: str
    v: np.ndarray = field(repr=False)
    a: np.ndarray = field(repr=False)


def equilibrium(
    system: System,
    q_guess: Numbers,
    *,
    t: float = 0.0,
    args: Sequence[Any] = (),
    find: str = "stable",
    tol: float = 1e-10,
    max_iterations: int = 200,
    throw: bool = True,
) -> Equilibrium:
    """A static equilibrium near a guess: forces and reactions balance, and the constraints are satisfied.

    system, args : as in :func:`solve`. Constraints may be redundant; multipliers then have the least norm.
    q_guess : (size,), a rough guess. It need not satisfy the constraints. With first-order states it may be a
        pair (q, z). Otherwise they start from zero.
    t : the time at which forces and constraints are frozen.
    find : "stable" moves downhill from the guess and leaves unstable equilibria. "nearest" is Newton's method
        on the forces, and finds equilibria of any kind.
    tol : the size of the last step, relative to 1 + |q|, and to 1 + |z| for states.
    throw : raise :class:`EquilibriumNotFound` if there is none. Otherwise see ``found``.

    Nonholonomic constraints restrict the way that it moves, and hold it by ψ. First-order states rest, too:
    their rates are zero. Such systems have no potential, so ``find`` is "nearest" for them.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> pendulum = ga.System(
    ...     mass=jnp.eye(2),
    ...     force=lambda t, q, v: jnp.array([0.0, -9.81]),
    ...     holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
    ... )
    >>> rest = ga.equilibrium(pendulum, [0.3, 0.8])
    >>> (rest.q + 0.0).round(6).tolist(), rest.lam.round(6).tolist(), rest.stable
    ([0.0, -1.0], [4.905], True)
    >>> top = ga.equilibrium(pendulum, [0.1, 0.9], find="nearest")
    >>> (top.q + 0.0).round(6).tolist(), top.stable
    ([0.0, 1.0], False)
    """
    arguments.is_system(system)
    if find not in ("stable", "nearest"):
        raise ValueError(f"find must be 'stable' or 'nearest', got {find!r}")
    q, v = _guess(system, q_guess)
    search = _Search(WholeSystem(system, t, q, v, args), float(t), tol, find == "stable")
    result = search.run(q, v, max_iterations)
    if throw and not result.found:
        raise EquilibriumNotFound(result.message, result)
    return result


def _guess(system: System, given: Any) -> tuple[np.ndarray, np.ndarray]:
    """q (size,) and v (n,) of a guess: velocities are zero, states as they are given."""
    pair = isinstance(given, tuple) and len(given) == 2 and np.ndim(given[0]) == 1
    q, z = given if pair else (given, None)
    q = np.asarray(arguments.point(system.space, arguments.vector("q_guess", q), "q_guess"))
    dim = system.space.dim
    v = np.zeros(len(q) if dim is None else dim)
    states = np.flatnonzero(~system.space.moved(len(v)))
    if z is not None:
        z = np.asarray(arguments.vector("z of q_guess", z))
        if len(z) != len(states):
            raise ValueError(f"z of q_guess must have shape ({len(states)},), got shape {z.shape}")
        v[states] = z
    return q, v


@dataclass
class _Place:
    """A position on the constraints: a (n,) is the acceleration from rest, zero in equilibrium."""

    at: AtState
    a: np.ndarray
    mult: np.ndarray
    solver: Constrained

    @property
    def push(self) -> np.ndarray:
        """The force (n,) that is not balanced."""
        return self.at.M @ self.a

    @property
    def acting(self) -> np.ndarray:
        """The sizes (n,) of all forces that act, with reactions."""
        return np.abs(self.at.applied) + abs(self.solver.L) @ np.abs(self.mult)

    @property
    def size(self) -> float:
        """The unbalanced force in units of √mass."""
        return float(np.sqrt(max(self.a @ self.push, 0.0)))


def _small(force: np.ndarray, part: float, sizes: np.ndarray) -> bool:
    """Whether forces (n,) are a small part of those that act, with ``sizes``; none of them counts as zero."""
    return bool((np.abs(force) <= part * np.maximum(sizes, _SMALL * sizes.max(initial=0.0))).all())


class _Search:
    """Levenberg's method: steps d with (K + μM) d = unbalanced force, on the tangent space.

    A step is taken if the force along it works: its mean times d is positive, so the energy falls.
    """

    def __init__(self, whole: WholeSystem, t: float, tol: float, downhill: bool) -> None:
        self.whole, self.t, self.tol, self.moved = whole, t, tol, whole.moved
        self.downhill = downhill = downhill and bool(self.moved.all())
        self.added = _ADDED if downhill or whole.dims.n > DENSE else 0.0
        self.radius, self.step = np.inf, np.inf
        self.iterations = 0

    def run(self, q: np.ndarray, v: np.ndarray, most: int) -> Equilibrium:
        start = self._closed(q, v)
        random = np.random.default_rng(0)
        for size in _SHAKEN if start.open else ():  # straight chains, for example, bend to neither side
            again = self._closed(
                self.whole.retract(q, size * (1 + np.abs(q).max()) * random.normal(size=len(v))), v
            )
            start = again if again.last < start.last else start
            if not start.open:
                break
        mult = np.zeros(self.whole.dims.m + self.whole.dims.p)
        if start.open:
            return self._failed(start.at, mult, self._open(start.at))
        fast = np.abs(start.at.k).max(initial=0.0)
        if fast > 1e-9:
            raise ValueError(
                f"the constraints on velocities forbid rest: k(t, q, 0) is {fast:.3g}. An equilibrium needs "
                "k(t, q, 0) = 0"
            )
        here = self._rest(start.at, mult)
        for _ in range(_MOST_LEFT):
            here, reason = self._descend(here, most)
            if reason:
                return self._failed(here.at, here.mult, reason, here)
            verdict = judged(self.whole, here.at, *self.whole.split(here.mult))
            if verdict.stable is not False or verdict.way is None or not self.downhill:
                return self._result(here, verdict)
            here = self._left(here, verdict.way)
        return self._failed(here.at, here.mult, "every equilibrium on the way was unstable", here)

    # --- one search ---------------------------------------------------------------------------------

    def _descend(self, here: _Place, most: int) -> tuple[_Place, str]:
        """The equilibrium that the steps lead to, or why there is none."""
        near, mu = 1 + np.abs(here.at.q).max(), 0.0
        self.radius, far = _LONGEST * near, _FAR * near
        if self._at_rest(here):
            self.step = 0.0
            return here, ""
        while self.iterations < most:
            self.iterations += 1
            K, M = self.whole.stiffness(here.at, *self.whole.split(here.mult)), here.at.M
            unit = np.asarray(here.at.scale.a)
            stiff = float(np.abs(K.diagonal() * unit**2).max(initial=0.0))
            for _ in range(60):
                there, mu, done = self._attempt(here, K, M, mu, stiff)
                if done:
                    here = there or here
                    return here, "" if self.downhill or self._balanced(here, K) else _PUSHED
                if there is not None:
                    break
            else:
                return here, "no step reduces the forces"
            here = there
            if not np.abs(here.at.q).max() < far:
                return here, "it moves away without bound: nothing holds it"
        return here, f"{most} iterations were not enough"

    def _attempt(
        self, here: _Place, K: Any, M: Any, mu: float, stiff: float
    ) -> tuple[_Place | None, float, bool]:
        """A place after one step, or None if it is refused; the next μ; and whether the search is over."""
        more = max(4 * mu, 0.1 * np.abs(here.a).max(initial=0.0) / self.radius, 1e-6 * stiff, 1e-300)
        try:
            d, _ = here.solver.solve(K + (mu + self.added * stiff) * M, here.push, not self.downhill)
        except np.linalg.LinAlgError:
            return None, more, False
        near = 1 + np.abs(here.at.q).max()
        size = np.abs(d * (near / self._sizes(here.at))).max(initial=0.0)
        gain, small = here.push @ d, min(size, self.radius) <= _SMALL * near
        if self.downhill and not small and not gain >= 0:
            return None, more, False
        if size > self.radius:
            d, gain = d * (self.radius / size), gain * (self.radius / size)
        moved = self._moved(here, d)
        there = None if moved.open else self._rest(moved.at, here.mult)
        step = min(size, self.radius)
        if size <= self.tol * near and mu <= 1e-3 * stiff:
            self.step = size
            return (there if there is not None and there.size <= here.size else here), mu, True
        if there is not None and np.isfinite(there.a).all():
            work = 0.5 * (here.push + there.push) @ d
            good = there.size < here.size if small or not self.downhill else work > 1e-3 * gain
            if good:
                self.step = step
                self.radius = (
                    min(2 * self.radius, _LONGEST * near) if step > 0.5 * self.radius else self.radius
                )
                easy = there.size < 0.5 * here.size or work > 0.25 * gain
                return there, (mu / 8 if mu > 1e-6 * stiff else 0.0) if easy else mu, False
            exact = self.downhill or size <= _SMALL * near
            if small and exact and mu <= 1e-3 * stiff and there.size <= 4 * here.size:  # rounding
                self.step = step
                return here, mu, True
        if not self.downhill:  # the same direction, shorter
            self.radius = 0.25 * step
            return None, mu, False
        self.radius = max(0.5 * step, self.tol * near)
        return None, more, False

    def _at_rest(self, here: _Place) -> bool:
        """Whether the forces balance up to rounding: then there is no way to go."""
        return _small(here.push, _ROUNDED, here.acting)

    def _balanced(self, here: _Place, K: Any) -> bool:
        """Whether small motions balance what is left of the forces, up to rounding of all that act."""
        if here.solver.sparse:
            return True
        d, mult = here.solver.solve(K, here.push, least=True)
        rest = here.push - K @ d - here.solver.L @ mult
        return _small(rest, _SMALL, here.acting + abs(K) @ self._sizes(here.at))

    def _left(self, here: _Place, way: np.ndarray) -> _Place:
        """A place beside an unstable equilibrium."""
        d = 0.02 * (1 + np.abs(here.at.q).max()) * way / np.abs(way).max()
        for _ in range(8):
            moved = self._moved(here, d)
            if not moved.open:
                return self._rest(moved.at, here.mult)
            d = d / 4
        return here

    # --- one position -------------------------------------------------------------------------------

    def _closed(self, q: np.ndarray, v: np.ndarray, most: int = positions.MOST_TURNS) -> positions.ClosedAt:
        at = lambda q: self.whole.at(q, v, self.t)
        return positions.closed(at, self.whole.retract, q, np.ones_like(v), most)

    def _moved(self, here: _Place, d: np.ndarray) -> positions.ClosedAt:
        """A position that is moved by d, which adds to states."""
        return self._closed(self.whole.retract(here.at.q, d), here.at.v + np.where(self.moved, 0.0, d), _FEW)

    def _sizes(self, at: AtState) -> np.ndarray:
        """1 + |q|, and 1 + |z| for states, (n,)."""
        return np.where(self.moved, 1 + np.abs(at.q).max(), 1 + np.abs(at.v).max())

    def _rest(self, at: AtState, mult: np.ndarray) -> _Place:
        """The acceleration from rest at frozen time, and the multipliers, by Newton's method from a guess."""
        a, mult, solver = self.whole.accelerations(at, mult, frozen=True)
        return _Place(at, a, mult, solver)

    # --- results --------------------------------------------------------------------------------------

    def _open(self, at: AtState) -> str:
        named = self.whole.system.labels.row
        rows = [f"{named('holonomic', i)}: {at.g[i]:.3g}" for i in np.argsort(-np.abs(at.g))[:4]]
        return (
            f"the holonomic constraints cannot be satisfied from q_guess; the largest that remain are "
            f"{', '.join(rows)}"
        )

    def _result(self, here: _Place, verdict: Stability) -> Equilibrium:
        return self._made(here.at, here.mult, verdict, here, True, verdict.message)

    def _failed(self, at: AtState, mult: np.ndarray, reason: str, here: _Place | None = None) -> Equilibrium:
        message = f"no equilibrium was found: {reason}."
        if here is not None:
            message += (
                f" After {self.iterations} iterations the unbalanced force is {np.abs(here.push).max():.3g}, "
                f"and the last step was {self.step:.3g}. Try another q_guess, or more max_iterations"
            )
        none = Stability(None, np.zeros(0), None, "")
        return self._made(at, mult, none, here, False, message)

    def _made(
        self, at: AtState, mult: np.ndarray, verdict: Stability, here: _Place | None, found: bool, text: str
    ) -> Equilibrium:
        lam, psi = self.whole.split(mult)
        force = np.nan if here is None else float(np.abs(here.push).max(initial=0.0))
        return Equilibrium(
            t=self.t,
            q=at.q,
            lam=lam,
            psi=psi,
            stable=verdict.stable,
            curvatures=verdict.curvatures,
            force=force,
            step=float(self.step),
            iterations=self.iterations,
            found=found,
            message=text,
            v=at.v,
            a=np.zeros_like(at.v),
        )

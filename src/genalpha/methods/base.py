"""The base class of methods, with the formulas that all α-methods on (t, q, v, a_α) share."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods.coefficients import Coefficients, chung_hulbert
from genalpha.methods.unknowns import Stage as Stage
from genalpha.methods.unknowns import Unknown as Unknown
from genalpha.numerics.data import Carry, Scale, State, StepConstants, StepOutput

StartValue = Literal["a0", "second-order", "perturbed"]


@dataclass(frozen=True)
class Method(ABC):
    """Base of the generalized-α methods, and of a method of your own (docs/own_method.md).

    A method is a frozen dataclass with fields that can be hashed. It contains no loops and no branches on
    values: all its functions are pure functions of arrays. Pass an object of it as ``method=``.

    It must define

    - ``name`` : the name in ``sol.method``;
    - ``unknowns(dims)`` : the :class:`Unknown` blocks of a step, in order;
    - ``weights(dims, scale, h)`` : the factors that scale the rows of the residual;
    - ``residual(system, s, dims, scale, x, args)`` : the equations of a step, one for each unknown;
    - ``finish(system, s, dims, scale, x, args)`` : the carry for the next step, and the output. The helper
      ``hand_over`` makes both.

    These have defaults:

    - ``check(system, dims)`` : raises an error if the method cannot integrate a system. Default: it accepts
      every system;
    - ``begin(system, dims, start, h, args)`` : the carry before the first step. Default: with
      a_α = a_0 + αh a_0';
    - ``prepare(system, carry, t, h, dims, scale, args)`` : the constants of a step. Default: ``known`` is
      zero, ``own`` is that of the carry;
    - ``own_at(system, t, q, scale, args)`` : the parts of ``own`` that are chosen for a configuration.
      Default: none;
    - ``reached(s, u)`` : the increment of q and the velocity at the end of a step, from its unknowns. Error
      control needs it. Default: from the unknown called "a";
    - ``extras(dims)``, ``first_extra(dims, start, h)`` : variables for ``sol.extra``. Default: none;
    - ``row_blocks(dims)`` : names of the rows of the residual, for messages. Default: numbers;
    - ``additive`` : whether the residual of a system made of parts is the sum of those of its parts. Then
      large assemblies are solved with sparse matrices. Default: it is not;
    - ``staged(dims)``, ``stages(dims)`` : a form whose equations can be solved in stages. Default: none;
    - ``alike`` : whether its stages follow one another in the unknowns and in the rows, have the same size,
      and matrices that hardly differ in short steps. Default: no;
    - ``exact_matrix``, ``linearized(...)`` : another Newton matrix than the derivative of the residual;
    - ``watches_velocity`` : whether error control checks velocities. Default: it does;
    - ``defect(...)`` : by how much the exact motion violates (13a) and (13c) of JN08, for error control. The
      default is right for every method whose positions and velocities come from ``increment`` and ``v1``.

    Further variables of a method, beyond q, v and a, are in ``own``: a dictionary of arrays in the carry, and
    another in the constants of a step. Its names must be the same in every step, with and without ``adjust``.

    Parameters
    ----------
    coefficients : (α_m, α_f, β, γ), default ``chung_hulbert(0.8)``.
    adjust : apply the adjusting formulas (14a), (14b) of JN08 at every change of the step size. Without
        them all components are of first order if the step size changes (docs/theory.md).
    start : ``"second-order"`` starts from a_α = a_0 + αh a_0' (from a_0 if this is not finite), ``"a0"``
        from a_α = a_0. Both give second order in q and v. With ``"a0"`` the first values of a, λ and ψ have
        an O(h) error that decays.
    """

    coefficients: Coefficients = field(default_factory=lambda: chung_hulbert(0.8))
    adjust: bool = True
    start: StartValue = "second-order"

    name: ClassVar[str] = "alpha"
    # Whether local errors of velocities can be estimated from the accelerations of a few steps.
    watches_velocity: ClassVar[bool] = True
    starts: ClassVar[tuple[StartValue, ...]] = ("a0", "second-order")
    # Whether its residual for a system made of parts is the sum of its residuals for the parts.
    additive: ClassVar[bool] = False
    # Whether the matrix of the last stage serves all of them in short steps.
    alike: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.coefficients, Coefficients):
            raise TypeError(
                f"coefficients must come from a family such as ga.chung_hulbert(0.8), "
                f"got {self.coefficients!r}"
            )
        if not isinstance(self.adjust, bool):
            raise TypeError(f"adjust must be True or False, got {self.adjust!r}")
        if self.start not in self.starts:
            raise ValueError(
                f"start of {self.name} must be one of {', '.join(self.starts)}, got {self.start!r}"
            )
        try:
            hash(self)
        except TypeError as error:
            raise TypeError(
                f"{self!r} cannot be hashed ({error}), but compiled programs are stored by method. All its "
                "fields must be numbers, strings or tuples; pass arrays as args of the system"
            ) from error

    @property
    def alpha(self) -> float:
        return self.coefficients.alpha

    # --- what a method must offer ---------------------------------------------------------------

    @abstractmethod
    def unknowns(self, dims: Dims) -> tuple[Unknown, ...]:
        """The blocks of unknowns of a step, in order."""

    @abstractmethod
    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        """The factors (N,) that scale the rows of the residual; in ``residual`` they are ``s.weights``."""

    @abstractmethod
    def residual(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        """The scaled equations (N,) of a step, for the scaled unknowns x (N,)."""

    @abstractmethod
    def finish(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> tuple[Carry, StepOutput]:
        """The carry for the next step, and the output of this one."""

    # --- what has defaults ----------------------------------------------------------------------

    def check(self, system: System, dims: Dims) -> None:
        """Raises an error if this method cannot integrate the system. Here it accepts every system."""
        self.blocks(dims)

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        """The blocks of rows of the residual, in order: their names, for messages, and sizes."""
        return {"row": sum(self.sizes(dims).values())}

    def adds_up(self, dims: Dims) -> bool:
        """Whether it is additive for systems of these sizes."""
        return self.additive

    def staged(self, dims: Dims) -> Method:
        """The same method with equations that can be solved in stages, if there is such a form."""
        return self

    def stages(self, dims: Dims) -> tuple[Stage, ...]:
        """What is solved one after the other in a correction. Here everything is solved at once."""
        return (
            Stage(tuple(self.sizes(dims)), tuple(name for name, n in self.row_blocks(dims).items() if n)),
        )

    def extras(self, dims: Dims) -> dict[str, int]:
        """The names and sizes of variables of this method only, in the order of ``StepOutput.extra``."""
        return {}

    def first_extra(self, dims: Dims, start: Beginning, h: Array) -> Array:
        """The variables named in ``extras`` before the first step of size h."""
        return np.zeros(sum(self.extras(dims).values()))  # type: ignore[return-value]

    @property
    def exact_matrix(self) -> bool:
        """Whether Newton's matrix is the derivative of ``residual``, not of ``linearized``."""
        return True

    def linearized(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        """A function with the values of the residual. Its derivative is the matrix of Newton's iteration."""
        return self.residual(system, s, dims, scale, x, args)

    def own_at(self, system: System, t: Array, q: Array, scale: Scale, args: Args) -> dict[str, Array]:
        """The parts of ``own`` that are chosen for a configuration, chosen for q."""
        return {}

    @property
    def needs_rate(self) -> bool:
        """Whether the start needs a_0'. With α = 0 only error estimates use it."""
        return self.start == "second-order" and (self.alpha != 0 or self.adjust)

    def begin(
        self, system: System, dims: Dims, start: Beginning, h: Array, args: Args
    ) -> tuple[Carry, Array]:
        """The carry before the first step, from consistent values and a_0', and the time of its a_α.

        The second-order start is a_0 + αh a_0', from the derivative of the consistent accelerations. It
        replaces JN08 (8), which couples a_α with the unknowns of the first step and would need equations for
        this step alone. a_0' follows from the consistent values by one linear solve, for every method. If
        a_0' is not finite (a force with a kink at the start), the start is a_0.
        """
        start = self.damped(system, start, h)
        state = start.state
        usable = jnp.all(jnp.isfinite(start.a_dot))
        a_dot = jnp.where(usable, start.a_dot, 0.0)
        shift = jnp.where(usable, self.alpha * h, 0.0) if self.needs_rate else jnp.zeros_like(h)
        a = state.a + shift * a_dot
        a_old, lag = self.before_start(start, h, shift, a)
        return Carry(state.q, state.v, a, h, a_old, lag), state.t + shift

    def damped(self, system: System, start: Beginning, h: Array) -> Beginning:
        """The start with smaller rates z' of first-order states that change much in a step of size h.

        A state with a time constant τ far below h that starts off its balance has a rate of size 1/τ. As a
        starting value of a_α it would move z by h/τ times its distance from the balance. Divided by
        1 + (h z''/z')², it moves z by a part of this distance, and it is exact to O(h²) if h is short.
        """
        moved = system.space.moved(start.a_dot.size)
        if moved.all():
            return start
        a = start.state.a
        change = h * start.a_dot / jnp.where(a == 0, 1.0, a)
        factor = jnp.where(moved | ~jnp.isfinite(change), 1.0, 1 / (1 + change**2))
        return start._replace(state=start.state._replace(a=factor * a), a_dot=factor * start.a_dot)

    def before_start(self, start: Beginning, h: Array, shift: Array, a: Array) -> tuple[Array, Array | None]:
        """a_α one step before the start, and the errors of a_α then and now.

        They are for a first step that is repeated with another size: from them, the adjusting formulas give
        the start for that size. Both values of a_α lie on the line through a_0 with slope a_0'.
        """
        finite = jnp.all(jnp.isfinite(start.a_dot))
        a_old = jnp.where(finite, a - h * start.a_dot, a) if self.needs_rate else a
        return a_old, -0.5 * jnp.stack([shift, shift - h]) ** 2 if self.adjust else None

    def prepare(
        self, system: System, carry: Carry, t: Array, h: Array, dims: Dims, scale: Scale, args: Args
    ) -> StepConstants:
        """The constants of a step from t with size h, with a_α adjusted to it."""
        a = self.adjusted(carry, h)
        lag, coast = self.lag(carry, h), self.coast(carry.v, a, h)
        known, weights = jnp.zeros_like(a), self.weights(dims, scale, h)
        return StepConstants(t, h, carry.q, *coast, a, known, weights, lag, carry.own)

    def reached(self, s: StepConstants, u: dict[str, Array]) -> tuple[Array, Array]:
        """The increment d (n,) with q_1 = q_0 ∘ exp(d), and v_1 (n,), from the unknowns of a step."""
        if "a" not in u:
            raise TypeError(f"{self.name} has no unknown called 'a' ({', '.join(u)}): define reached(s, u)")
        return self.increment(s, u["a"]), self.v1(s, u["a"])

    # --- formulas -------------------------------------------------------------------------------

    def adjusted(self, carry: Carry, h: Array) -> Array:
        """a_α for a step of size h, by (14a) if the step size changes."""
        if not self.adjusts:
            return carry.a
        assert carry.a_old is not None
        return carry.a + self.ahead(carry, h) * (carry.a - carry.a_old)

    @property
    def adjusts(self) -> bool:
        """Whether the adjusting formulas change anything."""
        return self.adjust and self.alpha != 0

    def ahead(self, carry: Carry, h: Array) -> Array:
        """By how much (14a) and (14b) extrapolate for a step of size h, in units of the last step."""
        return self.alpha * (h / carry.h - 1)

    def coast(self, v0: Array, a: Array, h: Array) -> tuple[Array, Array]:
        """The parts of (13a) and (13c) without a_{1+α}: h z_0 + h²(½ − β) a_α, and z_0 + h(1 − γ) a_α."""
        c = self.coefficients
        return h * v0 + (0.5 - c.beta) * h**2 * a, v0 + (1 - c.gamma) * h * a

    def increment(self, s: StepConstants, a1: Array) -> Array:
        """h z_0 + h²/2 ((1 − 2β) a_α + 2β a_{1+α}), the increment from y_0 to y_1 in (13a)."""
        return s.coast_q + self.coefficients.beta * s.h**2 * a1

    def v1(self, s: StepConstants, a1: Array) -> Array:
        """(13c): z_1 = z_0 + h ((1 − γ) a_α + γ a_{1+α})."""
        return s.coast_v + self.coefficients.gamma * s.h * a1

    def settled_lag(self, h: Array) -> Array:
        """The errors of :meth:`lag` after many steps of size h."""
        c = self.coefficients
        return jnp.full(2, 0.5 * self.alpha * (c.alpha_m + c.alpha_f - 1)) * h**2

    def lag(self, carry: Carry, h: Array) -> Array | None:
        """ε_1 and ε_0 in a_{1+α} = v'(t_{1+α}) + ε_1 v''' and a_α = v'(t_α) + ε_0 v''', for a step of size h.

        (14a) extrapolates a_α along a line. The mixing of accelerations, with v' at t_0 and t_1, gives
        (1 − α_m)ε_1 + α_m ε_0 = ½α(α_m + α_f − 1)h². Errors from much longer steps before belong to another
        v''', so ε_0 is limited to ±4h².
        """
        if carry.lag is None:
            return None
        c, ahead = self.coefficients, self.alpha * (h - carry.h)
        before = carry.lag[0] + ahead * ((carry.lag[0] - carry.lag[1]) / carry.h - 0.5 * (ahead + carry.h))
        before = jnp.clip(before, -4 * h**2, 4 * h**2)
        after = self.settled_lag(h)[0] - c.alpha_m * before
        return jnp.stack([after / (1 - c.alpha_m), before])

    def defect(
        self, bracket: Callable[[Array, Array], Array], carry: Carry, s: StepConstants, a1: Array
    ) -> tuple[Array, Array]:
        """By how much the exact motion violates (13a) and (13c), (n,) each: the source of the local error.

        With v'' and v''' from divided differences of a_{n+α}, and ε_0 and ε_1 of :meth:`lag`::

            δq = (½α + β − 1/6) h³v'' − h³/12 [v, v'],
            δv = ((½(1 − γ)α² + ½γ(1 + α)² − 1/6) h³ + (1 − γ)h ε_0 + γh ε_1) v'''.

        The bracket is that of a Lie group (ACB15 below (8)).
        """
        c, alpha, h, h_old = self.coefficients, self.alpha, s.h, carry.h
        assert carry.a_old is not None
        assert carry.lag is not None
        assert s.lag is not None
        span = (1 + alpha) * h - alpha * h_old  # between the times of a_{n+α} and a_{n+1+α}
        old, last = jnp.clip(carry.lag[1], -4 * h**2, 4 * h**2), jnp.clip(carry.lag[0], -4 * h**2, 4 * h**2)
        bend = lambda old, last, new: 2 * ((new - last) / span - (last - old) / h_old) / (span + h_old)
        # The divided difference is v''' times this factor: one, and the divided difference of the lags.
        seen = jnp.maximum(1 + bend(old, last, s.lag[0]), 0.1)
        rest = 0.5 * ((1 - c.gamma) * alpha**2 + c.gamma * (1 + alpha) ** 2) - 1 / 6
        of_v = rest * h**3 + h * ((1 - c.gamma) * s.lag[1] + c.gamma * s.lag[0])
        of_q = (0.5 * alpha + c.beta - 1 / 6) * h**2
        drift = bracket(carry.v, a1) * (h**3 / 12)
        return of_q * (a1 - s.a) - drift, (of_v / seen) * bend(carry.a_old, carry.a, a1)

    # --- helpers --------------------------------------------------------------------------------

    def hand_over(
        self,
        system: System,
        s: StepConstants,
        reached: tuple[Array, Array],
        a1: Array,
        multipliers: tuple[Array, Array],
        own: dict[str, Array] | None = None,
        extra: Array | None = None,
    ) -> tuple[Carry, StepOutput]:
        """Carry and output of a step to ``reached`` = (d, v_1), with a_{1+α} and ``multipliers`` = (λ, ψ)."""
        d, v1 = reached
        carry = Carry(system.space.retract(s.q0, d), v1, a1, s.h, s.a, s.lag, own or {})
        extra = jnp.zeros(0) if extra is None else extra
        return carry, StepOutput(*multipliers, extra, system.space.turns(d))

    def equations(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        """The residual, with a check that it has one row for each unknown."""
        rows = self.residual(system, s, dims, scale, x, args)
        if rows.shape != x.shape:
            raise ValueError(
                f"the residual of {self.name} has shape {rows.shape}, but its unknowns "
                f"({', '.join(self.sizes(dims))}) have shape {x.shape}: return one row for each unknown"
            )
        return rows

    @functools.lru_cache(maxsize=256)  # noqa: B019  (methods are small, and few)
    def blocks(self, dims: Dims) -> tuple[Unknown, ...]:
        """The unknowns. Their names must differ, and their sizes fit to ``like`` and ``start``."""
        blocks = tuple(self.unknowns(dims))
        sizes = {"a": dims.n, "v_dot": dims.n, "lam": dims.m, "psi": dims.p}
        for name, count in Counter(u.name for u in blocks).items():
            if count > 1:
                raise ValueError(f"{self.name} has {count} unknowns called {name!r}: give each its own name")
        for u in blocks:
            for part, of in (("like", u.like), ("start", u.start)):
                if of is not None and u.size != sizes[of]:
                    raise ValueError(
                        f"the unknown {u.name!r} of {self.name} has size {u.size}, but {part}={of!r} needs "
                        f"size {sizes[of]}: change its size, or pass {part}=None"
                    )
        return blocks

    def sizes(self, dims: Dims) -> dict[str, int]:
        """The names and sizes of the unknowns that are not empty, in order."""
        return {u.name: u.size for u in self.blocks(dims) if u.size}

    def split(self, dims: Dims, scale: Scale, x: Array) -> dict[str, Array]:
        """The blocks of the scaled unknowns x, in physical units, by name."""
        blocks, at = {}, 0
        for u in self.blocks(dims):
            here = x[at : at + u.size]
            blocks[u.name] = here if u.like is None or not u.size else here * _unit(u, scale)
            at += u.size
        return blocks

    def first_guess(self, dims: Dims, scale: Scale, carry: Carry, state: State) -> Array:
        """The scaled unknowns (N,) before the first step, from the ``start`` of each block."""
        return jnp.concatenate(self.first_blocks(dims, scale, carry, state))

    def first_blocks(self, dims: Dims, scale: Scale, carry: Carry, state: State) -> list[Any]:
        """The blocks of ``first_guess``, arrays of the same kind as the given ones."""
        known = {"a": carry.a, "v_dot": state.a, "lam": state.lam, "psi": state.psi}
        first = lambda u: np.zeros(u.size) if u.start is None else known[u.start] / _unit(u, scale)
        return [first(u) for u in self.blocks(dims)]


def _unit(u: Unknown, scale: Scale) -> Any:
    return 1.0 if u.like is None else getattr(scale, u.like)

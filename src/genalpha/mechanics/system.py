"""Mechanical systems: the functions that the user gives, and what follows from them by differentiation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from genalpha.errors import warn
from genalpha.mechanics import labels
from genalpha.mechanics.along import force_of, matrix_of, rate_along
from genalpha.mechanics.host import HostFunction, automatic
from genalpha.mechanics.html import of_system
from genalpha.mechanics.labels import NO_LABELS, Labels, Listed
from genalpha.mechanics.programs import Programs
from genalpha.mechanics.reads import Reads
from genalpha.mechanics.spaces import Euclidean, Space
from genalpha.mechanics.user_errors import NotTraceable, explaining
from genalpha.numerics.derivatives import for_each, jacobian, left_to_reader, pulled_back
from genalpha.numerics.tracing import zeros

Args = tuple[Any, ...]
_MOST_READS = 64
_SYMMETRIC = 1e-8  # relative to the largest entry of a mass matrix
_FUNCTIONS = ("mass", "force", "holonomic", "nonholonomic", "reaction")


class Dims(NamedTuple):
    """Sizes of a system: stored coordinates, velocities, holonomic and nonholonomic constraints."""

    size: int
    n: int
    m: int
    p: int


@dataclass(frozen=True, eq=False)
class System:
    """A constrained mechanical system (JN08 (11)).

    ::

        M(t, q) v' = f(t, q, v, λ, ψ),    q' = v,
        0 = g(t, q)       and so 0 = g_t + G v,
        0 = k(t, q, v).

    All functions are written with ``jax.numpy`` and take the entries of ``args`` after their own arguments.
    One that is not, such as one written with NumPy, runs in Python, with a warning (see `ga.host`).

    Parameters
    ----------
    mass : (n, n) array, or callable (t, q, *args) -> (n, n).
    force : callable (t, q, v, *args) -> (n,), the applied forces.
    holonomic : callable (t, q, *args) -> (m,), optional.
    nonholonomic : callable (t, q, v, *args) -> (p,), optional.
    reaction : callable (t, q, v, lam, psi, *args) -> (n,), optional; the default is −Gᵀλ − Kᵀψ with
        G = ∂g/∂q and K = ∂k/∂v. It may be nonlinear in λ and ψ. f = force + reaction.
    space : configuration space of q, default ``Euclidean(n)``.
    names : dict with lists of strings for "q" (size,), "v" (n,), "holonomic" (m,) and "nonholonomic" (p,),
        each optional. Messages, solutions, tables and plots use them. In a Euclidean space the velocity of a
        coordinate x is called x' unless "v" is given.
    units : dict of the same form, with those of the multipliers for constraints, and "t" for that of time.

    Everything else follows by differentiation: ``G``, ``K``, the hidden velocity constraint ``g_dot`` and
    the hidden acceleration constraints ``g_ddot`` and ``k_dot``.

    Example
    -------
    A point mass on a circle, moving at unit speed:

    >>> import jax.numpy as jnp, genalpha as ga
    >>> pendulum = ga.System(
    ...     mass=jnp.eye(2),
    ...     force=lambda t, q, v: jnp.array([0.0, -9.81]),
    ...     holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
    ... )
    >>> q, v = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
    >>> pendulum.G(0.0, q).tolist()
    [[2.0, 0.0]]
    >>> pendulum.g_ddot(0.0, q, v, jnp.zeros(2)).tolist()  # g_qq(v, v)
    [2.0]
    """

    mass: Callable[..., ArrayLike] | ArrayLike
    force: Callable[..., ArrayLike]
    holonomic: Callable[..., ArrayLike] | None = None
    nonholonomic: Callable[..., ArrayLike] | None = None
    reaction: Callable[..., ArrayLike] | None = None
    space: Space = field(default_factory=Euclidean)
    names: Listed | None = None
    units: Mapping[str, Sequence[str] | str] | None = None
    labels: Labels = field(default=NO_LABELS, init=False, repr=False)
    # Compiled programs belong to the system, and are freed with it.
    _programs: Programs = field(default_factory=Programs, init=False, repr=False)
    _traced: dict[str, Callable[..., Array]] = field(default_factory=dict, init=False, repr=False)
    # What functions read from outside: those of the system (key 0), those of recent events (key: their id).
    _reads: dict[int, tuple[Any, Reads]] = field(default_factory=dict, init=False, repr=False)
    # Functions that JAX cannot trace, as functions that run in Python, by name and shapes of arguments; and
    # arguments to try functions with.
    _hosted: dict[tuple[str, Any], HostFunction] = field(default_factory=dict, init=False, repr=False)
    _examples: dict[str, tuple[Any, ...]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.space is None:
            object.__setattr__(self, "space", Euclidean())
        if not isinstance(self.space, Space):
            hint = ""
            if isinstance(self.space, type) and issubclass(self.space, Space):
                hint = f"; write {self.space.__name__}()"
            elif isinstance(self.space, tuple | list):
                hint = "; for several spaces write ga.Product(...)"
            raise TypeError(f"space must be a space such as ga.R3xSO3(), got {self.space!r}{hint}")
        object.__setattr__(self, "labels", labels.read(self.names, self.units, self.space))
        if not callable(self.mass):
            object.__setattr__(self, "mass", _constant_mass(self.mass))
        for name in _FUNCTIONS:
            function = getattr(self, name)
            if name == "mass" and not callable(function):
                continue
            if function is None and name != "force":
                continue
            if not callable(function):
                raise TypeError(
                    f"{name} must be a function {SIGNATURES[name]}, got {type(function).__name__}"
                )
            self._traced[name] = self._as_array_function(name, function)

    def forget_if_changed(self, others: tuple[Any, ...] = ()) -> None:
        """Forget all programs if a value that a function reads from outside has changed.

        The functions are those of the system and ``others``. Such values are closures, globals and
        attributes. They are constants of the compiled programs.
        """
        known, keys = self._reads, (0, *map(id, others))
        if any(key in known and known[key][1].changed() for key in keys):
            self._programs.clear()
            known.clear()
            for name in self._traced:
                self._traced[name] = self._as_array_function(name, getattr(self, name))
        if 0 not in known:
            known[0] = None, Reads(self.user_functions())
        for function in others:
            if id(function) not in known:
                known[id(function)] = function, Reads([function])
        while len(known) > _MOST_READS:
            del known[next(key for key in known if key)]

    def user_functions(self) -> list[Any]:
        """The functions that the user gave and that JAX traces."""
        hosted = {name for name, _ in self._hosted}
        return [getattr(self, name) for name in self._traced if name not in hosted]

    def _as_array_function(self, name: str, function: Callable[..., Any]) -> Callable[..., Array]:
        """The user's function in double precision. Its Python code runs once for each set of shapes.

        If JAX cannot trace it, it runs in Python at every call.
        """

        # No reference to the system, which is freed with its last user.
        hosted, examples, owner = self._hosted, self._examples, weakref.ref(self)

        def evaluate(*inputs: Any) -> Array:
            shapes = _shapes(inputs)
            if (name, shapes) not in hosted:
                try:
                    with explaining(name), left_to_reader(False):  # JAX reuses this trace for other purposes
                        return jnp.asarray(function(*inputs), dtype=float)
                except NotTraceable as reason:
                    example = examples.get(name)
                    example = None if _shapes(example) != shapes else example
                    hosted[name, shapes] = automatic(name, function, inputs, example, reason)
                    system = owner()
                    if system is not None:  # this function reads what it needs when it runs
                        system._reads[0] = None, Reads(system.user_functions())
            return jnp.asarray(hosted[name, shapes](*inputs))

        evaluate.__name__ = name
        return jax.jit(evaluate, inline=True)

    def settle(self, others: tuple[Any, ...] = ()) -> None:
        """Disregard values that the functions themselves have changed while they were traced."""
        for key in (0, *map(id, others)):
            self._reads[key][1].settle()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies hold what the user gave. They compile their own programs."""
        parts = (self.mass, self.force, self.holonomic, self.nonholonomic, self.reaction, self.space)
        return System, (*parts, self.names, self.units)

    def _repr_html_(self) -> str:
        return of_system(self)

    @property
    def constant_mass(self) -> bool:
        """Whether the mass matrix depends on nothing but args."""
        return not callable(self.mass)

    # --- what the user gave ---------------------------------------------------------------------

    def M(self, t: ArrayLike, q: Array, args: Args = ()) -> Array:
        """Mass matrix (n, n)."""
        if not callable(self.mass):
            return jnp.asarray(self.mass)
        return self._traced["mass"](t, q, *args)

    def applied(self, t: ArrayLike, q: Array, v: Array, args: Args = ()) -> Array:
        """Applied forces (n,)."""
        return self._traced["force"](t, q, v, *args)

    def g(self, t: ArrayLike, q: Array, args: Args = ()) -> Array:
        """Holonomic constraints (m,)."""
        if self.holonomic is None:
            return jnp.zeros(0)
        return self._traced["holonomic"](t, q, *args)

    def k(self, t: ArrayLike, q: Array, v: Array, args: Args = ()) -> Array:
        """Nonholonomic constraints (p,)."""
        if self.nonholonomic is None:
            return jnp.zeros(0)
        return self._traced["nonholonomic"](t, q, v, *args)

    # --- forces -----------------------------------------------------------------------------------

    def f(self, t: ArrayLike, q: Array, v: Array, lam: Array, psi: Array, args: Args = ()) -> Array:
        """All forces, applied and reaction (n,): the right side of M v' = f."""
        return self.applied(t, q, v, args) + self.reactions(t, q, v, lam, psi, args)

    def entries(self, kind: str, count: int) -> tuple[str, int, Callable[[int], range]]:
        """What a user counts in q ("q"), v ("v"), λ ("g") or ψ ("k"), how many there are, and where."""
        return "entry", count, lambda i: range(i, i + 1)

    def reactions(self, t: ArrayLike, q: Array, v: Array, lam: Array, psi: Array, args: Args = ()) -> Array:
        """Reaction forces (n,): −Gᵀλ − Kᵀψ, or what ``reaction`` returns."""
        if self.reaction is not None:
            return self._traced["reaction"](t, q, v, lam, psi, *args)
        return self.holonomic_force(t, q, lam, args) + self.nonholonomic_force(t, q, v, psi, args)

    def reactions_and_change(
        self, t: ArrayLike, q: Array, v: Array, lam: Array, psi: Array, mu: Array, nu: Array, args: Args = ()
    ) -> tuple[Array, Array]:
        """Reactions at (λ, ψ), and their change from (λ, ψ) to (λ + μ, ψ + ν), (n,) each."""
        if self.reaction is None:  # linear: the change is the reaction at (μ, ν)
            forces = lambda lam, psi: self.reactions(t, q, v, lam, psi, args)
            both = for_each(forces, jnp.stack([lam, mu]), jnp.stack([psi, nu]))
            return both[0], both[1]
        before = self.reactions(t, q, v, lam, psi, args)
        return before, self.reactions(t, q, v, lam + mu, psi + nu, args) - before

    def holonomic_force(self, t: ArrayLike, q: Array, lam: Array, args: Args = ()) -> Array:
        """−Gᵀλ (n,)."""
        if self.holonomic is None:
            return self.space.pull(q, jnp.zeros_like(q))
        return -force_of(self.space, lambda q: self.g(t, q, args), q, lam)

    def nonholonomic_force(self, t: ArrayLike, q: Array, v: Array, psi: Array, args: Args = ()) -> Array:
        """−Kᵀψ (n,)."""
        if self.nonholonomic is None:
            return zeros(*jnp.shape(v))
        return -pulled_back(lambda v: self.k(t, q, v, args), v, psi)

    # --- what follows by differentiation --------------------------------------------------------

    def G(self, t: ArrayLike, q: Array, args: Args = ()) -> Array:
        """Constraint matrix G = g_q with respect to the space's velocity, (m, n)."""
        return matrix_of(self.space, lambda q: self.g(t, q, args), q)

    def K(self, t: ArrayLike, q: Array, v: Array, args: Args = ()) -> Array:
        """Constraint matrix K = k_v, (p, n)."""
        return jacobian(lambda v: self.k(t, q, v, args), v)

    def g_and_dot(self, t: ArrayLike, q: Array, v: Array, args: Args = ()) -> tuple[Array, Array]:
        """g and the hidden velocity constraint g_t + G v, (m,) each."""
        return rate_along(self.space, lambda t, q: self.g(t, q, args), t, q, v)

    def g_dot(self, t: ArrayLike, q: Array, v: Array, args: Args = ()) -> Array:
        """Hidden velocity constraint g_t + G v, (m,)."""
        return self.g_and_dot(t, q, v, args)[1]

    def g_ddot(self, t: ArrayLike, q: Array, v: Array, a: Array, args: Args = ()) -> Array:
        """Hidden acceleration constraint g_tt + 2 g_tq v + g_qq(v, v) + G a, (m,)."""
        return self._along(lambda t, q, v: self.g_dot(t, q, v, args), t, q, v, a)

    def k_dot(self, t: ArrayLike, q: Array, v: Array, a: Array, args: Args = ()) -> Array:
        """Hidden acceleration constraint k_t + k_q v + k_v a, (p,)."""
        return self._along(lambda t, q, v: self.k(t, q, v, args), t, q, v, a)

    def _along(self, function: Callable[..., Array], t: ArrayLike, q: Array, v: Array, a: Array) -> Array:
        """Time derivative of a function of (t, q, v) along a motion with acceleration a."""
        return rate_along(self.space, function, t, q, v, (v, a))[1]


def _shapes(inputs: Any) -> tuple[Any, ...]:
    return tuple(jnp.shape(x) for x in jax.tree.leaves(inputs))


SIGNATURES = {
    "mass": "(t, q, *args) -> (n, n)",
    "force": "(t, q, v, *args) -> (n,)",
    "holonomic": "(t, q, *args) -> (m,)",
    "nonholonomic": "(t, q, v, *args) -> (p,)",
    "reaction": "(t, q, v, lam, psi, *args) -> (n,)",
}


def _constant_mass(mass: ArrayLike) -> ArrayLike:
    if isinstance(mass, jax.core.Tracer):
        return mass
    try:
        matrix = np.array(mass, dtype=float)  # a copy: traced programs contain these numbers
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"mass must be an (n, n) array or a function {SIGNATURES['mass']}: {error}"
        ) from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"mass must be a square matrix (n, n), got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("mass holds NaN or infinite entries: all must be finite")
    warn_of_mass(matrix, "")
    return matrix


def warn_of_mass(matrix: Any, where: str) -> None:
    """Warn of a mass matrix that no mechanical system has."""
    odd = odd_mass(np.asarray(matrix))
    if odd:
        warn(f"mass {odd}{where}. Check its signs and entries")


def odd_mass(matrix: np.ndarray) -> str:
    """What is unusual about a mass matrix; empty if it is symmetric without negative eigenvalues.

    >>> odd_mass(np.diag([1.0, -2.0]))
    'has the negative eigenvalue -2'
    """
    size = np.abs(matrix).max(initial=0.0)
    apart = np.abs(matrix - matrix.T)
    if apart.max(initial=0.0) > _SYMMETRIC * size:
        i, j = np.unravel_index(int(apart.argmax()), apart.shape)
        return f"is not symmetric: mass[{i}, {j}] = {matrix[i, j]:g}, mass[{j}, {i}] = {matrix[j, i]:g}"
    least = float(np.linalg.eigvalsh(matrix).min(initial=0.0))
    return f"has the negative eigenvalue {least:g}" if least < -_SYMMETRIC * size else ""

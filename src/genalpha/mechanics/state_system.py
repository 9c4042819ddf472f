"""Systems with first-order states beside q and v: currents, pressures, filters, controllers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from genalpha.mechanics.spaces import Euclidean, Product, Space, States
from genalpha.mechanics.system import System
from genalpha.numerics.tracing import is_traced


class StateSystem(System):
    """A mechanical system with n_states first-order states z.

    ::

        M(t, q) v' = f(t, q, v, z, λ, ψ),    q' = v,    z' = c(t, q, v, z),
        0 = g(t, q),    0 = k(t, q, v).

    A state is a velocity without a position, of mass one. So the system is a :class:`System` whose
    velocities are v and then z, in its space ``Product(space, States(n_states))``, and everything works for
    it: all methods, error control, events, batches, derivatives, files. ``ga.solve`` takes z0, and a solution
    has ``sol.z``. Wherever the whole system is meant (``sol.v``, ``sol.a``, resets, events, ``rtol`` of each
    component), the states follow the velocities.

    Parameters
    ----------
    mass : (n, n) array, or callable (t, q, *args) -> (n, n).
    force : callable (t, q, v, z, *args) -> (n,).
    states : callable (t, q, v, z, *args) -> (n_states,), the rates z'.
    n_states : the number of states.
    holonomic, nonholonomic : as in :class:`System`. They do not depend on z.
    reaction : callable (t, q, v, z, lam, psi, *args) -> (n,), optional.
    space : configuration space of q. The default is ``Euclidean(n)`` if mass is an array; for a mass that is
        a function write ``ga.Euclidean(n)``.
    names, units : as in :class:`System`; "v" lists those of the velocities and then those of the states.

    Example
    -------
    A mass that is pushed by a filtered signal, z' = (1 − z)/0.1:

    >>> import jax.numpy as jnp, genalpha as ga
    >>> pushed = ga.StateSystem(
    ...     mass=jnp.eye(1),
    ...     force=lambda t, q, v, z: z,
    ...     states=lambda t, q, v, z: (1.0 - z) / 0.1,
    ...     n_states=1,
    ... )
    >>> sol = ga.solve(pushed, (0.0, 0.1), [0.0], [0.0], z0=[0.0], h=1e-3)
    >>> sol.z[-1].round(4).tolist()  # 1 − 1/e
    [0.6321]
    """

    n_velocities: int
    n_states: int
    _given: tuple[Any, ...]

    def __init__(
        self,
        mass: Callable[..., ArrayLike] | ArrayLike,
        force: Callable[..., ArrayLike],
        states: Callable[..., ArrayLike],
        n_states: int,
        holonomic: Callable[..., ArrayLike] | None = None,
        nonholonomic: Callable[..., ArrayLike] | None = None,
        reaction: Callable[..., ArrayLike] | None = None,
        space: Space | None = None,
        **labels: Any,
    ) -> None:
        given = (mass, force, states, n_states, holonomic, nonholonomic, reaction, space)
        functions = {"force": force, "states": states, "nonholonomic": nonholonomic, "reaction": reaction}
        for name, function in functions.items():
            if not callable(function) and (function is not None or name in ("force", "states")):
                raise TypeError(f"{name} must be a function, got {type(function).__name__}")
        added = States(n_states)
        space = _with_dimension(space, mass)
        put = lambda name, value: object.__setattr__(self, name, value)
        put("_given", given)
        put("n_states", int(n_states))
        put("n_velocities", int(space.dim or 0))
        factors = space.factors if isinstance(space, Product) else (space,)
        super().__init__(
            self._mass if callable(mass) else self._joined_mass(mass),
            self._force,
            holonomic,
            None if nonholonomic is None else self._nonholonomic,
            None if reaction is None else self._reaction,
            Product(*factors, added),
            **labels,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(StateSystem, names=self.names, units=self.units), self._given

    def user_functions(self) -> list[Any]:
        return [part for part in self._given if callable(part) and not isinstance(part, Space)]

    def parts(self, v: Any) -> tuple[Any, Any]:
        """The velocities (..., n) and the states (..., n_states) in velocities of the whole system.

        It serves events and resets, and rows such as ``sol.a``.
        """
        return v[..., : self.n_velocities], v[..., self.n_velocities :]

    # --- functions of the whole system ------------------------------------------------------------

    def _shaped(self, name: str, found: Any, signature: str, *shape: int) -> Array:
        found = jnp.asarray(found, float)
        if found.shape != shape:
            raise ValueError(f"{name}{signature} must return shape {shape}, got {found.shape}")
        return found

    def _joined_mass(self, mass: Any) -> Any:
        shape = np.shape(mass)
        if shape != (self.n_velocities, self.n_velocities):
            raise ValueError(f"mass must have shape ({self.n_velocities}, {self.n_velocities}), got {shape}")
        np_: Any = jnp if is_traced(mass) else np
        n, more = self.n_velocities, self.n_states
        apart = np_.zeros((n, more))
        return np_.block([[np_.asarray(mass, float), apart], [apart.T, np_.eye(more)]])

    def _mass(self, t: Any, q: Any, *args: Any) -> Array:
        own = self._given[0](t, q, *args)
        return self._joined_mass(
            self._shaped("mass", own, "(t, q, *args)", self.n_velocities, self.n_velocities)
        )

    def _force(self, t: Any, q: Any, v: Any, *args: Any) -> Array:
        _, force, states, *_ = self._given
        at, by = (t, q, *self.parts(v), *args), "(t, q, v, z, *args)"
        first = self._shaped("force", force(*at), by, self.n_velocities)
        return jnp.concatenate([first, self._shaped("states", states(*at), by, self.n_states)])

    def _nonholonomic(self, t: Any, q: Any, v: Any, *args: Any) -> Any:
        return self._given[5](t, q, self.parts(v)[0], *args)

    def _reaction(self, t: Any, q: Any, v: Any, lam: Any, psi: Any, *args: Any) -> Array:
        own = self._given[6](t, q, *self.parts(v), lam, psi, *args)
        own = self._shaped("reaction", own, "(t, q, v, z, lam, psi, *args)", self.n_velocities)
        return jnp.append(own, jnp.zeros(self.n_states))


def _with_dimension(space: Space | None, mass: Any) -> Space:
    """The space of q, with a known dimension."""
    if space is None or (isinstance(space, Euclidean) and space.n is None):
        if callable(mass) or np.ndim(mass) != 2:
            raise ValueError(
                "the number of velocities is not known: pass space=ga.Euclidean(n), or mass as an array"
            )
        return Euclidean(len(mass))
    if not isinstance(space, Space) or space.dim is None:
        raise TypeError(f"space must be a space of known dimension such as ga.R3xSO3(), got {space!r}")
    return space


def with_states(system: Any, v0: Any, z0: Any) -> Any:
    """v0 with the states z0 at its end; each has one row, or a row for every member of a batch.

    Without z0, v0 must hold the states already.
    """
    if z0 is None:
        if isinstance(system, StateSystem) and v0 is not None and np.shape(v0)[-1:] == (system.n_velocities,):
            raise ValueError(
                f"z0 must be given: the system has {system.n_states} states. Pass z0, or v0 with the states "
                f"at its end, {system.n_velocities + system.n_states} entries"
            )
        return v0
    if not isinstance(system, StateSystem):
        raise ValueError("z0 is given, but the system has no states: make it by ga.StateSystem, or omit z0")
    if v0 is None:
        raise ValueError("z0 needs q0 and v0. To continue from a state leave out z0: a state contains it")
    widths = {"v0": system.n_velocities, "z0": system.n_states}
    for (name, width), given in zip(widths.items(), (v0, z0), strict=True):
        if np.ndim(given) not in (1, 2) or np.shape(given)[-1] != width:
            raise ValueError(f"{name} must have shape ({width},), got shape {np.shape(given)}")
        if not is_traced(given) and not np.isfinite(np.asarray(given, float)).all():
            raise ValueError(f"{name} holds NaN or infinite values: all must be finite")
    np_: Any = jnp if is_traced(v0, z0) else np
    parts = [np_.asarray(x, float) for x in (v0, z0)]
    rows = np.broadcast_shapes(*(x.shape[:-1] for x in parts))
    return np_.concatenate([np_.broadcast_to(x, (*rows, x.shape[-1])) for x in parts], axis=-1)

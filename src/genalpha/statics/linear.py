"""Linear equations of a system about a state: M, C, K, and the matrices A, B, C, D of control."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg

from genalpha.mechanics.system import System
from genalpha.run import arguments
from genalpha.statics import inputs as given_inputs
from genalpha.statics.tangent import DENSE
from genalpha.statics.variation import (
    Coordinates,
    Measure,
    StatePoint,
    Variation,
    is_steady,
    point,
    variation,
)
from genalpha.statics.whole import WholeSystem

# The largest error of constraints at the state, relative to 1 + |q| or 1 + |v|.
_BROKEN = 1e-6
_LOST = 1e-7  # the effect of ignored motions on outputs, relative to the largest slope


@dataclass(frozen=True)
class Linear:
    """Linear equations z' = A z + B u, outputs = C z + D u, with z = (x, y).

    x are r coordinates of positions on the holonomic constraints, y are s coordinates of velocities on all
    constraints, and first-order states. ``positions`` (n, r) and ``velocities`` (n, r + s) give the
    increments of q and the changes of v: d = positions x, w = velocities z. ``names`` are those of z,
    ``input_names`` and ``output_names`` those of u and of the outputs.

    mass (s, s), damping (s, s), stiffness (s, r) and forces (s, k): mass y' + damping y + stiffness x =
    forces u. At rest, without nonholonomic constraints and states, x' = y.

    ``steady`` says whether these matrices stay the same along the motion from this state. Only then do the
    eigenvalues tell how small disturbances grow.
    """

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    D: np.ndarray
    mass: np.ndarray
    damping: np.ndarray
    stiffness: np.ndarray
    forces: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray
    names: tuple[str, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    steady: bool
    state: StatePoint = field(repr=False)

    @property
    def state_space(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(A, B, C, D), as ``scipy.signal.StateSpace(*...)`` and ``control.ss(*...)`` take them."""
        return self.A, self.B, self.C, self.D

    @property
    def eigenvalues(self) -> np.ndarray:
        """The eigenvalues (r + s,) of A, in the order of their real parts, the largest first."""
        values = np.linalg.eigvals(self.A)
        return values[np.lexsort((values.imag, -values.real.round(9)))]

    def frequency_response(self, omega: Any) -> np.ndarray:
        """C (iω − A)⁻¹ B + D for ω in rad/s of any shape: (..., outputs, inputs), complex.

        By the Schur form of A, so many frequencies take little time. It is infinite at an undamped resonance.
        """
        omega = np.asarray(omega, dtype=float)
        if not self.B.shape[1]:
            raise ValueError("a frequency response needs inputs: pass inputs=... to linearize")
        T, U = scipy.linalg.schur(self.A, output="complex")
        right, left, eye = U.conj().T @ self.B, self.C @ U, np.eye(len(T))
        found = np.empty((omega.size, *self.D.shape), complex)
        for i, value in enumerate(omega.reshape(-1)):
            try:
                inside = scipy.linalg.solve_triangular(1j * value * eye - T, right)
                found[i] = left @ inside + self.D
            except np.linalg.LinAlgError:
                found[i] = np.inf
        return found.reshape(*omega.shape, *self.D.shape)

    def plot(self, omega: Any = None) -> Any:
        """A figure: eigenvalues, and the frequency response if there are inputs. Needs matplotlib."""
        from genalpha.statics.plots import of_linear

        return of_linear(self, omega)


def read_state(system: System, state: Any, args: Any) -> tuple[WholeSystem, StatePoint]:
    """A state of the user's with accelerations and multipliers, checked."""
    arguments.is_system(system)
    if not hasattr(state, "q"):
        if not isinstance(state, tuple) or len(state) not in (2, 3):
            raise TypeError(
                "state must have t, q and v, such as an equilibrium or ga.consistent(...), or be a tuple "
                f"(t, q) or (t, q, v), got {type(state).__name__}"
            )
        t, q, *speeds = state
    else:
        t, q, speeds = state.t, state.q, [state.v]
    q = np.asarray(arguments.point(system.space, arguments.vector("q", q), "q"))
    dim = system.space.dim
    v = np.asarray(arguments.vector("v", speeds[0])) if speeds else np.zeros(len(q) if dim is None else dim)
    if not speeds and not system.space.moved(len(v)).all():
        raise ValueError("state (t, q) has no first-order states: pass (t, q, v) with them at the end of v")
    whole = WholeSystem(system, t, q, v, args)
    here = whole.at(q, v, float(t))
    for name, rows, size in (
        ("holonomic constraints", here.g, q),
        ("constraints on velocities", np.concatenate([here.g_dot, here.k]), v),
    ):
        worst = np.abs(rows).max(initial=0.0)
        if worst > _BROKEN * (1 + np.abs(size).max(initial=0.0)):
            raise ValueError(
                f"the {name} are broken by {worst:.3g} at this state: use ga.equilibrium, or "
                "ga.project_position and ga.project_velocity first"
            )
    guess = np.concatenate([state.lam, state.psi]) if hasattr(state, "lam") else None
    if not whole.equations.linear and guess is None:
        guess = np.ones(whole.dims.m + whole.dims.p)
    return whole, point(whole, float(t), q, v, guess)


def linearize(
    system: System,
    state: Any,
    inputs: Any = (),
    outputs: Any = None,
    *,
    args: Sequence[Any] = (),
    coordinates: Callable[..., Any] | None = None,
    speeds: Callable[..., Any] | None = None,
) -> Linear:
    """The linear equations of a system about a state, on the motions that the constraints allow.

    system, args : as in :func:`solve`.
    state : an :class:`Equilibrium`, a :class:`State`, or a tuple (t, q) at rest or (t, q, v). Time is frozen.
    inputs : names of entries of args, such as "args[0]" or the key of a dict in args, and numbers of entries
        of v; or a dict with names: a direction (n,) of a generalized force, a function (t, q, *args) that
        returns one, a number, or a name of args.
    outputs : a function (t, q, v, *args), or a dict of them with names. By default all increments of q and
        changes of v. First-order states are at the end of v, here and in the state.
    coordinates, speeds : functions (t, q, *args) -> (r,) and (t, q, v, *args) -> (s,) that measure positions
        and velocities. By default x and y are entries of the increments of q and of v, as many as there are
        independent ones. Motions that change no coordinate are left out, if the equations do not depend on
        them. The default for speeds are the rates of the coordinates.

    The equations are exact at the state, also if it moves. See docs/linear.md on what eigenvalues mean then.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> pendulum = ga.System(
    ...     mass=jnp.eye(2),
    ...     force=lambda t, q, v, p: jnp.array([p["push"], -9.81]),
    ...     holonomic=lambda t, q, p: jnp.array([q @ q - 1.0]),
    ... )
    >>> linear = ga.linearize(pendulum, (0.0, [0.0, -1.0]), inputs=["push"], args=({"push": 0.0},))
    >>> linear.names, (linear.A + 0.0).round(6).tolist()
    (('q[0]', 'v[0]'), [[0.0, 1.0], [-9.81, 0.0]])
    >>> linear.B.round(6).tolist(), linear.stiffness.round(6).tolist()
    ([[0.0], [1.0]], [[9.81]])
    """
    if speeds is not None and coordinates is None:
        raise ValueError("speeds are given without coordinates: pass both")
    whole, at = read_state(system, state, args)
    if whole.dims.n > DENSE:
        raise ValueError(
            f"linearize has dense matrices, and the system has {whole.dims.n} velocities (at most {DENSE}): "
            "use ga.modes, which has sparse ones"
        )
    by = None if coordinates is None else Coordinates.of(whole, coordinates, speeds)
    found = variation(whole, at, by)
    listed = given_inputs.read(whole, inputs, "inputs")
    names, pushes, widths = given_inputs.forces(whole, at, listed, "inputs")
    output_names, C, D = _outputs(found, outputs, listed, widths)
    r = found.sizes[0]
    w = found.w[:, r:]
    mass = w.T @ found.M @ w
    B = found.B(pushes)
    return Linear(
        A=found.A,
        B=B,
        C=C,
        D=D,
        mass=mass,
        damping=-mass @ found.A[r:, r:],
        stiffness=-mass @ found.A[r:, :r],
        forces=mass @ B[r:],
        positions=found.d[:, :r],
        velocities=found.w,
        names=tuple(_state_names(found)),
        input_names=tuple(names),
        output_names=tuple(output_names),
        steady=is_steady(found, by),
        state=at,
    )


def _state_names(found: Variation) -> list[str]:
    r, s = found.sizes
    if found.places is None:
        return [f"coordinate {i}" for i in range(r)] + [f"speed {i}" for i in range(s)]
    positions, speeds = (
        given_inputs.increment_names(found.whole),
        given_inputs.speed_names(found.whole),
    )
    return [positions[i] for i in found.places[0]] + [speeds[i] for i in found.places[1]]


def _outputs(
    found: Variation, outputs: Any, inputs: dict[str, Any], widths: list[int]
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of outputs, C and D."""
    count = sum(widths)
    if outputs is None:
        moved = np.flatnonzero(found.whole.moved)
        positions = given_inputs.increment_names(found.whole)
        every = [positions[i] for i in moved] + given_inputs.speed_names(found.whole)
        return every, np.vstack([found.d[moved], found.w]), np.zeros((len(every), count))
    if callable(outputs):
        outputs = {"output": outputs}
    if not isinstance(outputs, Mapping):
        raise TypeError(f"outputs must be a function (t, q, v, *args) or a dict of them, got {outputs!r}")
    names: list[str] = []
    rows, direct = [np.zeros((0, found.d.shape[1]))], [np.zeros((0, count))]
    for name, function in outputs.items():
        values = Measure(found.whole, function, f"the output {name!r}", rates=False).at(found.at)
        size = len(values.value)
        lost = values.by_q @ found.ignored[0] + values.by_v @ found.ignored[1]
        if np.abs(lost).max(initial=0.0) > _LOST * np.abs(values.by_q).max(initial=0.0):
            raise ValueError(
                f"the output {name!r} depends on motions that change none of the coordinates: add coordinates"
            )
        rows.append(values.by_q @ found.d + values.by_v @ found.w)
        parts = given_inputs.feedthrough(found.whole, found.at, inputs, widths, function)
        filled = [x if len(x) else np.zeros((size, x.shape[1])) for x in parts]
        direct.append(np.hstack([np.zeros((size, 0)), *filled]))
        names += [name] if size == 1 else [f"{name}[{i}]" for i in range(size)]
    return names, np.vstack(rows), np.vstack(direct)

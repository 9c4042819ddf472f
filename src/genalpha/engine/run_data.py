"""The state of a run that can be continued."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha._version import __version__
from genalpha.engine import files
from genalpha.engine.controller import Pace
from genalpha.engine.describe import as_array, described
from genalpha.engine.events import Happened
from genalpha.engine.files import storable
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.step import Memory
from genalpha.mechanics.system import Dims
from genalpha.numerics.data import Carry, NewtonMemory, State, Times

# If the next step is longer than the last one by more than this factor, the run starts again from q and v.
_GROWTH = 2.0


@storable
class Fields(NamedTuple):
    """The data that a step needs from earlier steps, except the Newton matrix.

    ``parabola`` (3, N) are the last unknowns and their differences. ``pace`` is None for given steps.
    ``known`` (E,) are the values of the functions of events.
    """

    carry: Carry
    parabola: Any
    noise: Any
    pace: Any
    known: Any


@storable
class ExactNumbers(NamedTuple):
    """All numbers of a run on one backend. With them it continues as if it had not stopped.

    ``key`` identifies the code that they belong to. ``order`` is the order of pivots, ``orders`` are those
    that were tried, and ``changes`` is how often it changed (native only).
    """

    key: Any
    numbers: Any
    order: Any = None
    orders: Any = ()
    changes: int = 0


@storable
class Grid(NamedTuple):
    """The position of a run with one step size: after ``steps`` steps from t0.

    After an event the steps to the end are a little shorter. ``rest`` holds their times and sizes.
    """

    t0: float
    h: float
    steps: int
    rest: tuple[np.ndarray, np.ndarray] | None = None


@storable
class MethodText(NamedTuple):
    """A method in a form that files can hold: its name, and a text that is the same for equal methods.

    The field ``adjust`` is left out of the text, because it is switched off if all steps are equal.
    """

    name: str
    text: str

    @classmethod
    def of(cls, method: Any) -> MethodText:
        return cls(method.name, described(method, without="adjust"))


@storable
@dataclass(frozen=True, eq=False)
class RunState:
    """The state of a run between two steps. ``ga.solve(system, (t, t1), state=...)`` continues from it.

    ``t``, ``q`` (size,), ``v`` (n,), ``a`` (n,), ``lam`` (m,), ``psi`` (p,) are the motion at this time;
    ``a`` is the method's own a_{n+α}. With the same system, method, step size and backend the result is the
    same to the last bit as without the stop. Otherwise the run continues from whatever still applies, at
    least from q and v. ``args`` identifies the arguments that the run was given.
    """

    t: float
    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    lam: np.ndarray
    psi: np.ndarray
    method: MethodText
    dims: Dims
    start: Any
    row: np.ndarray
    t_alpha: float
    controlled: bool
    fields: Fields | None
    exact: ExactNumbers | None
    grid: Grid | None
    args: bytes = b""
    limits: tuple[float, float, float] | None = None  # longest and shortest step, longest of a quiet motion
    just: tuple[int, ...] = ()  # the events that happened at this very time
    system: bytes = b""  # fingerprint of its functions
    changed: list[np.ndarray] | None = None  # the leaves of its args if a reset has changed them

    def fits(self, method: Any, h: float | None) -> bool:
        """Whether a run with this method and step h can continue without a new start. None is error control.

        h must not be much longer than the last step: JN08 (14) adjusts a_α to the new step, and this
        multiplies the error of a_α by the ratio of the steps.
        """
        if self.fields is None or (h is None) != self.controlled:
            return False
        return MethodText.of(method) == self.method and (
            h is None or h <= _GROWTH * float(self.fields.carry.h)
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file without loss. :func:`genalpha.load_state` reads it back.

        The file is an .npz file of NumPy and holds data only: reading it runs no code. A write replaces the
        whole file or leaves it unchanged.

        >>> import tempfile, jax.numpy as jnp, genalpha as ga
        >>> spring = ga.System(mass=jnp.eye(1), force=lambda t, q, v: -q)
        >>> half = ga.solve(spring, (0.0, 1.0), [1.0], [0.0], h=0.01)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     half.state.save(f"{folder}/half.npz")
        ...     state = ga.load_state(f"{folder}/half.npz")
        >>> rest = ga.solve(spring, (1.0, 2.0), state=state, h=0.01)
        >>> whole = ga.solve(spring, (0.0, 2.0), [1.0], [0.0], h=0.01)
        >>> bool((rest.q[-1] == whole.q[-1]).all())
        True
        """
        files.write(os.path.expanduser(os.fspath(path)), "state", self)

    def __repr__(self) -> str:
        return f"<RunState by {self.method.name} at t = {self.t:.9g}>"


storable(Carry, Dims, Happened, Memory, NewtonMemory, Pace, State, StepEnd, Times)


def sound(state: RunState) -> bool:
    """Whether the shapes of the arrays of a state match, which compiled loops rely on.

    A checksum does not ensure this: a file may have been changed together with its checksum.
    """
    size, n, m, p = state.dims
    wanted = (state.q, size), (state.v, n), (state.a, n), (state.lam, m), (state.psi, p)
    if type(state.t) is not float or not all(column(x, length) for x, length in wanted):
        return False
    if not (state.changed is None or all(isinstance(x, np.ndarray) for x in state.changed)):
        return False
    rest = None if state.grid is None else state.grid.rest
    begun = state.grid is None or (type(state.grid.steps) is int and state.grid.steps >= 0)
    return column(state.row) and begun and (rest is None or (column(rest[1]) and follow(*rest)))


def column(x: Any, length: int | None = None) -> bool:
    """Whether this is a column of doubles, of this length if one is given."""
    is_column = isinstance(x, np.ndarray) and x.dtype == float and x.ndim == 1
    return is_column and (length is None or len(x) == length)


def follow(times: Any, sizes: np.ndarray) -> bool:
    """Whether the times are as many as the step sizes and one more."""
    return column(times, len(sizes) + 1)


def numbers(tree: Any) -> Any:
    """A tree with NumPy's arrays instead of JAX's."""
    return jax.tree.map(np.array, tree)


def fingerprint(setup: Any, args: Any) -> bytes:
    """A fingerprint of what the functions of a system and its events compute, the same in every process.

    It is made from what JAX traces.
    """
    shape = lambda x: jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype)
    try:
        given = jax.tree.map(shape, args)
    except TypeError:  # such as keys of random numbers
        return b""
    leaves, structure = jax.tree.flatten(given)
    key = ("fingerprint", setup.crossings, structure, tuple((x.shape, x.dtype.str) for x in leaves))
    return setup.system._programs.made(key, lambda: _digest(setup, given))


def of_system(setup: Any, args: Any) -> bytes:
    """The fingerprint of the system without its events."""
    return fingerprint(setup._replace(crossings=()), args)


def _digest(setup: Any, given: Any) -> bytes:
    system, dims = setup.system, setup.dims
    number = lambda *sizes: jax.ShapeDtypeStruct(sizes, float)
    t, q, v = number(), number(dims.size), number(dims.n)
    lam, psi = number(dims.m), number(dims.p)
    inputs = {"mass": (t, q), "force": (t, q, v), "holonomic": (t, q), "nonholonomic": (t, q, v)}
    inputs["reaction"] = (t, q, v, lam, psi)
    digest = hashlib.sha256(described((system.space, tuple(dims))).encode())
    if not callable(system.mass):
        digest.update(np.asarray(system.mass).tobytes())
    functions: list[Any] = [(f, inputs[name]) for name, f in sorted(system._traced.items())]
    functions += [(c.function, None) for c in setup.crossings]
    for function, at in functions:
        found = _traced(setup, function, at, (t, q, v, lam, psi), given)
        digest.update(re.sub(r" at 0x[0-9a-f]+", "", str(found.jaxpr)).encode())
        for constant in found.consts:
            digest.update(np.asarray(constant).tobytes())
    return digest.digest()


def _traced(setup: Any, function: Any, at: Any, state: Any, args: Any) -> Any:
    from genalpha.engine import events

    if at is not None:
        return jax.make_jaxpr(function)(*at, *args)
    only = tuple(c for c in setup.crossings if c.function is function)
    at_state = lambda t, q, v, lam, psi, args: events.values(only, t, q, v, lam, psi, args)
    return jax.make_jaxpr(at_state)(*state, args)


def exact_key(kind: str, setup: Any, args: Any) -> tuple[Any, ...]:
    """A key that identifies the code to which the numbers of a run belong."""
    made_by = (described(setup.method), described(setup.newton))
    return kind, __version__, *made_by, fingerprint(setup, args)


def identity(*parts: Any) -> bytes:
    """A fingerprint of the arguments of a run."""
    leaves, structure = jax.tree.flatten(parts)
    digest = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        array = as_array(leaf)
        content = described(leaf).encode() if array.dtype.hasobject else array.tobytes()
        digest.update(f"{array.dtype.str}{array.shape}\n".encode() + content)
    return digest.digest()

"""A run that can be continued: what it was made of when it stopped, in memory and in a file."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pickle
import re
import tempfile
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.numerics.data import Carry

_MAGIC = b"genalpha checkpoint 1\n"
# A step may be so much longer than the last one before the run stopped, or it starts anew.
_GROWTH = 2.0


class Fields(NamedTuple):
    """What a step needs of those before it, without the matrix of Newton's iteration.

    ``parabola`` are the last unknowns and their differences, (3, N); ``pace`` is None for given steps;
    ``known`` (E,) are the values of events.
    """

    carry: Carry
    parabola: Any
    noise: Any
    pace: Any
    known: Any


class ExactNumbers(NamedTuple):
    """All numbers of a run on one backend, with which it goes on as if it had not stopped.

    ``key`` says for which code they are, ``order`` is the order of pivots and ``orders`` the number of those
    tried (native only).
    """

    key: Any
    numbers: Any
    order: Any = None
    orders: int = 0


class Grid(NamedTuple):
    """Where a run with one step size stands: after ``steps`` steps from t0 on.

    After an event the steps to the end are a little shorter: their times and sizes are ``rest``.
    """

    t0: float
    h: float
    steps: int
    rest: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class RunState:
    """A run between two steps; ``ga.solve(system, (t, t1), state=...)`` goes on from it.

    ``t``, ``q``, ``v``, ``a``, ``lam``, ``psi`` are the motion there (``a`` the method's own a_{n+α}). With
    the same method, step size and backend the run goes on as if it had not been interrupted, to the last
    bit; with others it goes on from what they have in common.
    """

    t: float
    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    lam: np.ndarray
    psi: np.ndarray
    method: Any
    dims: Any
    start: Any
    row: np.ndarray
    t_alpha: float
    controlled: bool
    fields: Fields | None
    exact: ExactNumbers | None
    grid: Grid | None
    args: bytes = b""
    limits: tuple[float, float] | None = None  # the longest and the shortest step under error control
    just: tuple[int, ...] = ()  # events that have just happened
    system: bytes = b""  # what its functions compute

    def fits(self, method: Any, h: float | None) -> bool:
        """Whether a run with this method can go on without starting anew: under error control, or with this
        step, which must not be much longer than the last one was.

        a_α is adjusted to another step by (14) of JN08, which multiplies its error by their ratio.
        """
        if self.fields is None or (h is None) != self.controlled:
            return False
        alike = dataclasses.replace(method, adjust=True) == dataclasses.replace(self.method, adjust=True)
        return alike and (h is None or h <= _GROWTH * float(self.fields.carry.h))

    def __repr__(self) -> str:
        return f"<RunState by {self.method.name} at t = {self.t:.9g}>"


def numbers(tree: Any) -> Any:
    """A tree with plain arrays in the place of JAX's."""
    return jax.tree.map(np.array, tree)


# --- files ----------------------------------------------------------------------------------------------


class Checkpoint:
    """A file that a run is written to now and then, at once or not at all."""

    def __init__(self, path: str | os.PathLike[str], identity: bytes) -> None:
        self.path, self._identity = os.path.expanduser(os.fspath(path)), identity
        folder = os.path.dirname(os.path.abspath(self.path))
        if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
            raise ValueError(f"the checkpoint {self.path} cannot be written: no folder {folder} to write to")

    def write(self, content: Any) -> None:
        """Replace the file: whoever reads it finds the old one or the new one, whole."""
        body = pickle.dumps((self._identity, content), protocol=4)
        folder = os.path.dirname(os.path.abspath(self.path))
        handle, name = tempfile.mkstemp(prefix=os.path.basename(self.path), suffix=".part", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(body).digest() + body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            if os.path.exists(name):
                os.unlink(name)
            raise

    def read(self) -> Any:
        """What was written last, None where there is no file yet.

        Raises where the file is none of these, or is that of another run.
        """
        if not os.path.exists(self.path):
            return None
        with open(self.path, "rb") as file:
            text = file.read()
        body = text[len(_MAGIC) + 32 :]
        if (
            not text.startswith(_MAGIC)
            or hashlib.sha256(body).digest() != text[len(_MAGIC) : len(_MAGIC) + 32]
        ):
            raise ValueError(f"{self.path} is not a checkpoint of genalpha, or it is damaged: delete it")
        identity, content = pickle.loads(body)
        if identity != self._identity:
            raise ValueError(
                f"{self.path} is the checkpoint of another run (another time span, start, step size, method, "
                "arguments or output). Delete it to start anew, or give this run a file of its own"
            )
        return content


def fingerprint(setup: Any, args: Any) -> bytes:
    """What the functions of a system and of its events compute, as far as JAX sees it; the same in every
    process."""
    shape = lambda x: jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype)
    try:
        given = jax.tree.map(shape, args)
    except TypeError:  # such as keys of random numbers
        return b""
    leaves, structure = jax.tree.flatten(given)
    key = ("fingerprint", setup.crossings, structure, tuple((x.shape, x.dtype.str) for x in leaves))
    return setup.system._programs.made(key, lambda: _digest(setup, given))


def of_system(setup: Any, args: Any) -> bytes:
    """The same of the system alone."""
    return fingerprint(setup._replace(crossings=()), args)


def _digest(setup: Any, given: Any) -> bytes:
    system, dims = setup.system, setup.dims
    number = lambda *sizes: jax.ShapeDtypeStruct(sizes, float)
    t, q, v = number(), number(dims.size), number(dims.n)
    lam, psi = number(dims.m), number(dims.p)
    inputs = {"mass": (t, q), "force": (t, q, v), "holonomic": (t, q), "nonholonomic": (t, q, v)}
    inputs["reaction"] = (t, q, v, lam, psi)
    digest = hashlib.sha256(repr((system.space, dims)).encode())
    if system.constant_mass:
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
    """For which code the numbers of a run are."""
    return kind, setup.method, setup.newton, fingerprint(setup, args)


def identity(*parts: Any) -> bytes:
    """A fingerprint of what a run is asked for."""
    leaves, structure = jax.tree.flatten(parts)
    digest = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        try:
            array = np.asarray(leaf)
        except TypeError:  # such as a key of random numbers
            array = np.array(repr(leaf))
        digest.update(array.dtype.str.encode() + array.tobytes())
    return digest.digest()

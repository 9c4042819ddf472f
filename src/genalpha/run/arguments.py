"""Checks of the arguments. Every error says what was given, what is allowed, and what to do."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from genalpha.backends.rowwise import Rowwise
from genalpha.backends.sampling import FACTORS
from genalpha.engine.discrete import Controller
from genalpha.engine.run_data import RunState
from genalpha.engine.step_choice import whole_number
from genalpha.engine.steps import nearest
from genalpha.errors import RedundantConstraints
from genalpha.mechanics.assembly import Assembly
from genalpha.mechanics.initial_values import NOTHING_HELD, Held
from genalpha.mechanics.spaces import Product, Space
from genalpha.mechanics.system import SIGNATURES, Args, Dims, System
from genalpha.numerics import codes
from genalpha.numerics.tracing import is_traced, outside

# The components that a projection keeps: their numbers, or a dict with those of "q" and of "v".
Hold = Sequence[int] | dict[str, Sequence[int]]
# Anything that can be read as an array: lists of numbers, nested or not, and arrays of NumPy or JAX.
Numbers = ArrayLike | Sequence[float] | Sequence[Sequence[float]]
# Shorter spans would let h² underflow. The longest span is the reciprocal.
SHORTEST_SPAN = 1e-120


def span(t_span: Any) -> tuple[float, float]:
    """(t0, t1) as two increasing floats."""
    if any(isinstance(t, jax.core.Tracer) for t in jax.tree.leaves(t_span)):
        raise TypeError("t_span must not be traced, because it sets the number of steps: pass known numbers")
    try:
        if isinstance(t_span, str):
            raise TypeError
        t0, t1 = (float(t) for t in t_span)
    except (TypeError, ValueError) as error:
        raise TypeError(f"t_span must be a pair (t0, t1) of numbers, got {t_span!r}") from error
    if not (math.isfinite(t0) and math.isfinite(t1)):
        raise ValueError(f"t_span = ({t0}, {t1}) must be finite")
    if t1 <= t0:
        raise ValueError(f"t_span = ({t0:g}, {t1:g}): the end must be later than the start")
    if not SHORTEST_SPAN <= t1 - t0 <= 1 / SHORTEST_SPAN:
        raise ValueError(
            f"t_span = ({t0:g}, {t1:g}) is {t1 - t0:g} long: h² would underflow or overflow. Rescale time"
        )
    return t0, t1


def vector(name: str, value: Any) -> Array | np.ndarray:
    """A one-dimensional, finite array of doubles."""
    result: Any
    if isinstance(value, list | tuple) and all(type(x) in (float, int) for x in value):  # the usual case
        result = np.array(value, dtype=float)
    elif is_traced(value):
        result = jnp.asarray(value, float)
    else:
        if np.iscomplexobj(value):
            raise TypeError(f"{name} must be real, got complex numbers")
        try:
            result = np.asarray(value, dtype=float)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must be an array of numbers: {error}") from error
    if result.ndim != 1 or result.size == 0:
        raise ValueError(f"{name} must have shape (n,) with n > 0, got shape {result.shape}")
    if isinstance(result, np.ndarray) and not np.isfinite(result).all():
        where = np.flatnonzero(~np.isfinite(result)).tolist()
        raise ValueError(f"{name} holds NaN or infinite values at {where}: all must be finite")
    return result


def callback(function: Any, every: Any) -> None:
    if function is not None and not callable(function):
        raise TypeError(f"callback must be a function of a State, got {function!r}")
    if every is None:
        raise ValueError("callback_every must be a whole number above zero, got None")
    whole_number("callback_every", every)


def possible_under_transform(given: Any) -> None:
    """Raise for options that need known numbers, which a traced run does not have."""
    asked = ["progress"] if given.progress else []
    names = ("callback", "state", "checkpoint")
    asked += [name for name in names if getattr(given, name) is not None]
    if given.steps.accuracy is not None:
        raise ValueError(
            "accuracy: not possible under a JAX transform, because the steps follow from values. Pass h and "
            "extrapolate, or call ga.solve outside of jit, vmap and grad"
        )
    if asked:
        raise ValueError(
            f"{', '.join(asked)}: not possible under a JAX transform, because traced values are not known. "
            "Call ga.solve outside of jit, vmap and grad"
        )


def possible_on_gpu(given: Any, traced: bool) -> None:
    """Raise for runs that a GPU cannot take."""
    if not traced:
        raise ValueError(
            'backend="cuda" runs batches: call ga.solve_batch, or jax.vmap of a function that calls ga.solve'
        )
    for name, asked in (("events", given.events), ("extrapolate", given.steps.extrapolate)):
        if asked is not None:
            raise ValueError(f'{name}: not possible with backend="cuda". Use backend="native"')


def possible_with_accuracy(given: Any) -> None:
    """Raise for options that an extrapolated run does not have."""
    if given.events is not None and given.steps.extrapolate is not None:
        raise ValueError("events: not possible with extrapolate, whose steps are given. Use accuracy")


def with_signals(system: System, given: Any) -> Any:
    """``args``, and then the first signals of the controller if there is one."""
    args, controller = given.args, given.controller
    if controller is None or not isinstance(args, tuple | list):
        return args
    if not isinstance(controller, Controller):
        raise TypeError(f"controller must be a ga.Controller, got {controller!r}")
    if isinstance(system, Assembly):
        if controller.into is None:
            raise TypeError(
                "the functions of parts get no output of a controller: pass ga.Controller(..., into=...), "
                "which puts it into their args, or call model.solve of a multibody model"
            )
        args = args or system.args
    return controller.put(tuple(args), controller.first)


def possible_with_controller(given: Any, steps: Any, span: tuple[float, float], traced: bool) -> None:
    """Raise if a run with a controller is not possible with these options or steps."""
    if traced or given.steps.accuracy is not None or given.steps.extrapolate is not None:
        why = "under a JAX transform" if traced else "with accuracy or extrapolate"
        raise ValueError(
            f"controller: not possible {why}, because its function runs in Python. Pass h or rtol"
        )
    if steps.controlled:
        return
    sample, ends = given.controller.sample, np.asarray(steps.times)
    wanted = given.controller.times(*span)
    found = ends[nearest(ends, wanted)]
    off = np.flatnonzero(np.abs(found - wanted) > 1e-6 * sample)
    if off.size:
        raise ValueError(
            f"no step ends at the sample t = {wanted[off[0]]:.9g} of the controller, the nearest at "
            f"{found[off[0]]:.9g}: a whole number of steps must fit into the sample time {sample:g}. Choose "
            "such an h, or rtol instead of h"
        )


def state(q0: Any, v0: Any, given: Any) -> RunState | None:
    """The state from which to continue, passed as ``state`` or as q0; None if q0 and v0 are given."""
    if isinstance(q0, RunState) and given is None:
        q0, given = None, q0
    if given is None:
        missing = [name for name, value in (("q0", q0), ("v0", v0)) if value is None]
        if missing:
            raise TypeError(f"{' and '.join(missing)} must be given: pass q0 and v0, or state=sol.state")
        return None
    if not isinstance(given, RunState):
        raise TypeError(f"state must be the state of a solution, sol.state or ga.load_state, got {given!r}")
    if q0 is not None or v0 is not None:
        raise ValueError("pass either state or q0 and v0, not both: a state contains q and v")
    return given


def from_state(span: tuple[float, float], state: RunState) -> tuple[float, float]:
    """The rest of the time span, from the time of the state."""
    t0, t1 = span
    began = (
        {state.t} | ({state.grid.t0} if state.grid else set()) | ({state.start.t} if state.start else set())
    )
    near = 1e-9 * (abs(state.t) + t1 - t0)
    if not any(abs(t0 - t) <= near for t in began):
        raise ValueError(f"t_span starts at {t0:.9g}, but the state is at t = {state.t:.9g}: start there")
    if t1 <= state.t:
        raise ValueError(
            f"t_span ends at {t1:.9g}, but the state is at t = {state.t:.9g} already: choose a later end"
        )
    return state.t, t1


def interval(seconds: Any) -> float:
    if not (isinstance(seconds, int | float | np.number) and seconds >= 0):
        raise ValueError(f"checkpoint_every must be a number of seconds, at least 0, got {seconds!r}")
    return float(seconds)


def arguments(args: Any) -> Args:
    """``args`` as a tuple of pytrees. Arrays are copied, because the caller may change them later."""
    if not isinstance(args, tuple | list):
        raise TypeError(f"args must be a tuple, got {type(args).__name__}; for one argument write args=(x,)")

    def leaf(value: Any) -> Any:
        if isinstance(value, float):
            return np.array(value)
        if isinstance(value, np.ndarray):
            return np.array(value, dtype=float if value.dtype.kind == "f" else None)
        if isinstance(value, jax.core.Tracer | jax.Array):
            single = value.dtype in (np.float32, np.float16) or value.dtype == jnp.bfloat16
            return value.astype(float) if single else value  # always double precision
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(
                f"args must hold real numbers and arrays, got {value!r}: let the functions of the system "
                "close over other objects"
            )
        return array.astype(float) if array.dtype.kind == "f" else array

    return tuple(jax.tree.map(leaf, tuple(args)))


def alike(args: Args, other: Any, told: str) -> Args:
    """Other args of the same structure, shapes and types. ``told`` says where they come from in errors."""
    found = arguments(other)
    (own, structure), got = jax.tree.flatten(args), str(jax.tree.structure(found))
    if got != str(structure):
        raise ValueError(
            f"{told} args of another structure than those of the run, {got} instead of {structure}: return a "
            "tuple like args"
        )
    named = zip(jax.tree_util.tree_leaves_with_path(found), own, strict=True)
    for (path, x), wanted in named:
        kind, shape, right, form = x.dtype.name, np.shape(x), wanted.dtype.name, np.shape(wanted)
        if (kind, shape) != (right, form):
            raise ValueError(
                f"{told} args of another kind: args{jax.tree_util.keystr(path)} has shape {shape} and type "
                f"{kind}, but must be {form} and {right} as in the args of the run"
            )
    return found


def is_system(system: Any) -> None:
    if not isinstance(system, System):
        model = isinstance(getattr(system, "system", None), System)
        advice = ": pass model.system, or call model.solve" if model else ""
        raise TypeError(f"the first argument must be a ga.System, got {type(system).__name__}{advice}")


def trace(system: System, t: Any, q: Any, v: Any, args: Args, redundant: bool = False) -> tuple[Dims, bool]:
    """The sizes of a system, from tracing its functions once, and whether they close over traced values.

    ``redundant`` allows more constraints than can be independent.
    """
    is_system(system)
    system.forget_if_changed()
    leaves, structure = jax.tree.flatten((q, v, args))
    key = ("trace", redundant, structure, *((np.shape(x), x.dtype) for x in leaves))

    def make() -> tuple[Dims, bool]:
        found = _trace(system, t, q, v, args, redundant)
        system.settle()
        return found

    return system._programs.made(key, make)


def _trace(system: System, t: Any, q: Any, v: Any, args: Args, redundant: bool) -> tuple[Dims, bool]:
    n = v.shape[0]
    if system.space.dim not in (None, n):
        raise ValueError(f"v0 has {n} entries, but {system.space} has velocities of size {system.space.dim}")
    size = system.space.size(n)
    if q.shape[0] != size and not system.space.rotations and size == n:
        raise ValueError(f"q0 has {q.shape[0]} entries and v0 has {n}, but q and v must have the same size")
    if q.shape[0] != size:
        raise ValueError(f"q0 has {q.shape[0]} entries, but {system.space} with v0 of size {n} needs {size}")
    traced = isinstance(system.mass, jax.core.Tracer)
    known = system.shapes(args) if isinstance(system, Assembly) and outside() else {}

    def shape(name: str, function: Callable[..., Array], *inputs: Any) -> tuple[int, ...]:
        nonlocal traced
        if name in known:
            return known[name]
        if not is_traced(inputs):
            system._examples[name] = (*inputs[:-1], *inputs[-1])
        try:
            jaxpr = jax.make_jaxpr(function)(*inputs)
        except Exception as error:
            sizes = ", ".join(str(np.shape(x)) for x in inputs[:-1])
            error.add_note(f"This happened in {name}{SIGNATURES[name]}, called with shapes {sizes} and args.")
            raise
        traced = traced or any(isinstance(const, jax.core.Tracer) for const in jaxpr.consts)
        return jaxpr.out_avals[0].shape

    def demand(name: str, got: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        if got != wanted:
            raise ValueError(f"{name}{SIGNATURES[name]} must return shape {wanted}, got {got}")

    def constraint(name: str, got: tuple[int, ...], most: str) -> int:
        if len(got) != 1:
            raise ValueError(
                f"{name}{SIGNATURES[name]} must return a one-dimensional array, got shape {got}; "
                "a single constraint is jnp.array([...])"
            )
        if got[0] > n and not redundant:
            raise RedundantConstraints(
                f"{name} returns {got[0]} constraints for {n} {most}, but at most {n} can be independent: "
                "remove some or, if some are redundant, pass redundant='min_norm' to ga.solve"
            )
        return got[0]

    demand("mass", shape("mass", system.M, t, q, args), (n, n))
    demand("force", shape("force", system.applied, t, q, v, args), (n,))
    m = p = 0
    if system.holonomic is not None:
        m = constraint("holonomic", shape("holonomic", system.g, t, q, args), "coordinates")
    if system.nonholonomic is not None:
        p = constraint("nonholonomic", shape("nonholonomic", system.k, t, q, v, args), "velocities")
    if system.reaction is not None:
        got = shape("reaction", system.reactions, t, q, v, jnp.zeros(m), jnp.zeros(p), args)
        demand("reaction", got, (n,))
    dims = Dims(size, n, m, p)
    system.labels.check(dims)
    return dims, traced


def point(space: Space, q: Any, name: str = "q0") -> Any:
    """q with normalised quaternions. Raises if one is not nearly of length one. A traced q is not changed."""
    if not space.rotations or is_traced(q):
        return q
    defects, normalized = _normalized(space, q)
    wrong = np.flatnonzero(~(defects <= codes.UNIT_TOLERANCE))
    if wrong.size:
        i = wrong[0]
        raise ValueError(
            f"the quaternion of {space.rotations[i]} in {name} has a length that differs from one by "
            f"{defects[i]:.3g} (at most {codes.UNIT_TOLERANCE:g} is allowed). Rotations are unit quaternions "
            "(w, x, y, z): normalise it, or make it with ga.rotation"
        )
    return normalized


def _normalized(space: Space, q: Any) -> tuple[np.ndarray, np.ndarray]:
    """The distances of the rotations in q (size,) from unit quaternions, and q with unit quaternions."""
    if not isinstance(space, Product) or len(space.factors) <= FACTORS:
        return _rotations_of(space, len(q)).one((q,))
    found, first = [], 0
    for factor, number, size, _ in space.runs:
        rows = np.asarray(q)[first : first + number * size].reshape(number, size)
        found.append([x.reshape(-1) for x in _rotations_of(factor, size)((rows,))])
        first += number * size
    defects, normalized = (np.concatenate(x) for x in zip(*found, strict=True))
    return defects, normalized


@functools.cache
def _rotations_of(space: Space, size: int) -> Rowwise:
    """The distances of the rotations in q (size,) from unit quaternions, and q with unit quaternions."""
    return Rowwise("rotations", lambda q: (space.defect(q), space.normalize(q)), (np.zeros(size),))


def held(hold: Any, n: int) -> Held:
    """What a projection keeps, from a list of numbers, or a dict with lists for "q" and "v"."""
    if hold is None:
        return NOTHING_HELD
    both = hold if isinstance(hold, dict) else {"q": hold, "v": hold}
    if not set(both) <= {"q", "v"}:
        raise ValueError(f"hold must be a list of numbers or a dict with the keys q and v, got {hold!r}")
    found = {}
    for name, listed in both.items():
        numbers = np.atleast_1d(np.asarray(listed))
        if numbers.size and (numbers.dtype.kind not in "iu" or numbers.ndim != 1):
            raise TypeError(f"hold must list the numbers of components, got {listed!r} for {name}")
        wrong = [int(i) for i in numbers if not -n <= i < n]
        if wrong:
            raise ValueError(f"hold names component {wrong[0]} of {name}, but there are {n}: 0 to {n - 1}")
        found[name] = tuple(sorted({int(i) % n for i in numbers}))
    return Held(**found)


def multipliers(dims: Dims, guess: Any) -> Any:
    """The guess (λ, ψ) of the multipliers, checked; None stays None."""
    if guess is None:
        return None
    try:
        lam, psi = guess
    except (TypeError, ValueError) as error:
        raise TypeError(f"multipliers must be a pair (lam, psi), got {guess!r}") from error
    if np.shape(lam) != (dims.m,) or np.shape(psi) != (dims.p,):
        shapes = f"{np.shape(lam)} and {np.shape(psi)}"
        raise ValueError(f"multipliers must have shapes ({dims.m},) and ({dims.p},), got {shapes}")
    return jnp.asarray(lam, float), jnp.asarray(psi, float)

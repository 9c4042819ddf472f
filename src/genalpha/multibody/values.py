"""The numbers of a model by name, and runs with other numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.engine.discrete import Controller
from genalpha.errors import hint
from genalpha.multibody.bodies import AnyBody
from genalpha.multibody.connectors import Connector, FixedNumbers
from genalpha.multibody.inertia import Inertia
from genalpha.multibody.rows import of_another
from genalpha.multibody.things import points
from genalpha.numerics.tracing import is_traced

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

GRAVITY = "gravity"
_POSITIVE = ("mass", "moment")  # numbers of bodies


class ModelNumbers(FixedNumbers):
    """The numbers of a model by name. To change one, pass ``values`` to a run."""

    @staticmethod
    def _hint(name: str) -> str:
        return f"model.values cannot be changed: pass values={{{name or 'body.mass'!r}: ...}} to model.solve"

    def __reduce__(self) -> Any:
        """A copy, or what is read from a file, is a plain dictionary, which may be changed."""
        return dict, (dict(self),)


def numbers(model: Model) -> ModelNumbers:
    """All numbers of bodies, joints and forces. Points of a joint are those of all that is about it."""
    found = {GRAVITY: model.gravity}
    for body in model.bodies:
        found |= {f"{body.name}.{key}": x for key, x in body.numbers().items()}
    for one in model._all(Connector):
        ends = () if one.joints else zip(points(one), one.markers, strict=True)
        found |= {f"{one.name}.{key}": x for key, x in one.numbers.items()}
        found |= {name: marker.r for name, marker in ends if name}
    return ModelNumbers(found)  # copies


def options_of(model: Model, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a function of a system, with args in place of ``values``."""
    values = options.pop("values", None)
    if values is None:
        return options
    if options.get("args"):
        raise TypeError("pass values or args, not both: model.args(values) are args")
    return options | {"args": with_numbers(model, checked(model, values), model.system.args)}


def args_with(model: Model, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The args of ``model.system`` with some other numbers. They may be traced.

    Numbers with one axis more are those of the members of a batch, and so are all args then.
    """
    known = numbers(model)
    found = checked(model, values, members=True)
    lengths = {len(x) for name, x in found.items() if x.ndim > known[name].ndim}
    if len(lengths) > 1 or 0 in lengths:
        raise ValueError(f"numbers of a batch must have the same length, not zero, got {sorted(lengths)}")
    args = with_numbers(model, found, model.system.args)
    if not lengths:
        return args
    wide = lambda x: (jnp if is_traced(x) else np).broadcast_to(x, (*lengths, *np.shape(x)))
    return jax.tree.map(lambda x, one: x if np.ndim(x) > np.ndim(one) else wide(x), args, model.system.args)


def with_controller(model: Model, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a run in which a controller puts out numbers of the model, by name."""
    given = options.get("controller")
    if not isinstance(given, Controller) or given.into is not None:
        return options
    if not isinstance(given.u0, Mapping):
        raise TypeError(
            "u0 of the controller of a model must be a dictionary of numbers by the names of model.values, "
            f"such as {{'motor.effort': 0.0}}, got {given.u0!r}"
        )
    checked(model, given.u0)
    known = numbers(model)
    into = lambda args, u: with_numbers(model, checked(model, u, known=known), args)
    return options | {"controller": replace(given, into=into)}


def with_numbers(model: Model, values: Mapping[str, Any], before: tuple[Any, ...]) -> tuple[Any, ...]:
    """The args ``before`` with other numbers, which were checked."""
    found = []
    for of, args in zip(_owners(model), before, strict=True):
        args = jax.tree.map(lambda x: x, args)  # the dictionaries are copied
        if isinstance(of[0], AnyBody):
            own = args[0]
            if GRAVITY in values:
                args = (own, *(values[GRAVITY][..., i] for i in range(3)))
        else:
            ends, own = args
            for end, frame in enumerate(ends):
                frame["r"] = _put(frame["r"], [values.get(points(one)[end]) for one in of])
        for key, x in own.items():
            own[key] = _put(x, [values.get(f"{one.name}.{key}") for one in of])
        found.append(args)
    return tuple(found)


def _owners(model: Model) -> list[list[Any]]:
    """The bodies or connectors of each part."""
    kinds = dict.fromkeys(type(body) for body in model.bodies)
    bodies = [[body for body in model.bodies if type(body) is kind] for kind in kinds]
    return [*bodies, *(group.members for group in model.groups)]


def fits(model: Model, args: Any) -> bool:
    """Whether args begin as those of the model. They may have one axis more, for the members of a batch.

    Those of parts of the user's own may follow.
    """
    usual = model.system.args
    given = tuple(args or ())[: len(usual)]
    trees: list[Any] = [jax.tree.structure(tree) for tree in (given, usual)]
    if trees[0] != trees[1]:
        return False
    both = zip(*(map(np.shape, jax.tree.leaves(tree)) for tree in (given, usual)), strict=True)
    return all(here in (there, here[:1] + there) for here, there in both)


def in_args(model: Model, args: Any) -> dict[str, np.ndarray]:
    """As :func:`different`; nothing if there are no args, or traced ones, or not those of the model."""
    if not args or args is model.system.args or is_traced(args) or not fits(model, args):
        return {}
    return different(model, args)


def different(model: Model, args: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """The numbers in args of a run, or of a batch, that are not those of the model."""
    found: dict[str, np.ndarray] = {}
    if args is model.system.args:  # as in most runs
        return found
    if not fits(model, args):
        raise of_another(model)

    def compare(given: Any, usual: Any, names: list[str]) -> None:
        given, usual = np.asarray(given, float), np.asarray(usual, float)
        for i in np.flatnonzero((given != usual).reshape(-1, len(names), usual[0].size).any(axis=(0, 2))):
            found[names[i]] = given[i] if given.ndim == usual.ndim else given[:, i]

    for of, given, usual in zip(_owners(model), args, model.system.args, strict=False):
        if isinstance(of[0], AnyBody):
            gravity, own = (np.stack(np.broadcast_arrays(*x[1:]), axis=-1) for x in (given, usual))
            if (gravity != own).any():
                found[GRAVITY] = gravity
            given, usual = given[0], usual[0]
        else:
            for end, frames in enumerate(zip(given[0], usual[0], strict=True)):
                there, here = (frame["r"] for frame in frames)
                compare(there, here, [points(one)[end] for one in of])
            given, usual = given[1], usual[1]
        for key in usual:
            compare(given[key], usual[key], [f"{one.name}.{key}" for one in of])
    return found


def _or_nan(model: Model, name: str, value: Any) -> Any:
    """A traced number, or NaN where a number is refused: then the run fails, and others do not."""
    thing, _, key = name.rpartition(".")
    if isinstance(one := model._things.get(thing), Connector):
        return one.allowed(key, value)
    return jnp.where(value > 0, value, jnp.nan) if key in _POSITIVE else value


def checked(
    model: Model,
    values: Mapping[str, Any],
    members: bool = False,
    known: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Other numbers as arrays, with the shapes of those of the model, ``known``.

    With ``members`` they may have one axis more, the first, for the members of a batch.
    """
    found, known = dict[str, Any](), numbers(model) if known is None else known
    for name, value in _mapping(values).items():
        if name not in known:
            raise ValueError(f"the model has no number {name!r}: {hint(name, known, 'it has')}")
        try:
            if value is None:
                raise TypeError
            found[name] = number = (jnp if is_traced(value) else np).asarray(value, float)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must be a number or an array of numbers, got {value!r}") from error
        shape = known[name].shape
        if number.shape != shape and not (members and number.ndim > len(shape) and number.shape[1:] == shape):
            more = ", or one axis more for the members of a batch" if members else ""
            raise ValueError(f"{name} must have the shape {shape}{more}, got {number.shape}")
        if is_traced(number):
            found[name] = _or_nan(model, name, number)
        else:
            _check_number(model, name, number, known)
    _check_ranges(model, known, found)
    return found


def _check_ranges(model: Model, known: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> None:
    """Refuse a lower end of a range above the upper one, and ranges of angles of a turn or more."""
    for thing in {name.rpartition(".")[0] for name in values if name.endswith((".lower", ".upper"))}:
        ends = [values.get(name, known.get(name)) for name in (f"{thing}.lower", f"{thing}.upper")]
        if any(x is None or is_traced(x) for x in ends):
            continue
        if np.any(ends[0] > ends[1]):
            raise ValueError(f"{thing}.lower must not be above {thing}.upper")
        by = getattr(model._things[thing], "driven", None)
        if by is not None and by.turns and np.any(ends[1] - ends[0] >= 2 * np.pi):
            raise ValueError(f"the range from {thing}.lower to {thing}.upper must be less than one turn")


def _mapping(values: Any) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise TypeError(f"values must be a dictionary such as {{'spring.stiffness': 50.0}}, got {values!r}")
    return values


def _check_number(model: Model, name: str, value: np.ndarray, known: Mapping[str, np.ndarray]) -> None:
    """Refuse numbers that constructors would refuse."""
    thing, _, key = name.rpartition(".")
    if not np.isfinite(value).all():
        raise ValueError(f"{name} must be finite, got {value.tolist()}")
    if isinstance(one := model._things.get(thing), Connector):
        one.check_number(key, value)
    elif key in _POSITIVE and not (value > 0).all():
        raise ValueError(f"{name} must be positive, got {value.tolist()}")
    elif key == "inertia":
        try:
            for tensor in value.reshape(-1, 3, 3):
                Inertia(known[f"{thing}.mass"], tensor)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


def with_values(model: Model, values: Mapping[str, Any]) -> Model:
    """A copy of a model with other numbers, for results: it is not to be saved or changed."""
    return model._copied(checked(model, values))


def _put(x: Any, rows: list[Any]) -> Any:
    """An array (n, ...) with other rows, (B, n, ...) if some are those of the members of a batch (B, ...)."""
    given = {i: row for i, row in enumerate(rows) if row is not None}
    if not given:
        return x
    of = jnp if is_traced(*given.values()) else np
    members = next((row.shape[:1] for row in given.values() if np.ndim(row) == np.ndim(x)), ())
    new = [of.broadcast_to(row, (*members, *np.shape(x)[1:])) for row in given.values()]
    new, x = of.stack(new, axis=len(members)), of.broadcast_to(x, (*members, *np.shape(x)))
    at = (*(slice(None) for _ in members), np.array([*given]))
    if of is jnp:
        return x.at[at].set(new)
    x = np.array(x)
    x[at] = new
    return x

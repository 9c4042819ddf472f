"""Equilibria, linear equations, modes and inverse dynamics of models, with inputs and outputs by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha.multibody.joints import Joint
from genalpha.multibody.limits import JointFrames, JointRate, chosen
from genalpha.multibody.values import options_of
from genalpha.statics.equilibrium import Equilibrium, equilibrium
from genalpha.statics.inverse import InverseDynamics, inverse_dynamics
from genalpha.statics.linear import Linear, linearize
from genalpha.statics.modes import Modes, modes

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


def at_rest(model: Model, options: dict[str, Any]) -> Equilibrium:
    """An equilibrium from where the bodies are. They move there, at rest."""
    found = equilibrium(model.system, model.q0, **options_of(model, options))
    if found.found:
        model.place(found.q, found.v)
    return found


def linear(model: Model, inputs: Any, outputs: Any, options: dict[str, Any]) -> Linear:
    """The linear equations about where the bodies are, with their velocities."""
    state = options.pop("state", (0.0, model.q0, model.v0))
    seen = outputs if outputs is None or callable(outputs) else _each(model, outputs, _measured)
    return linearize(model.system, state, _each(model, inputs, _action), seen, **options_of(model, options))


def vibrations(model: Model, count: int | None, options: dict[str, Any]) -> Modes:
    state = options.pop("state", (0.0, model.q0, model.v0))
    return modes(model.system, state, count, **options_of(model, options))


def needed(model: Model, t: Any, q: Any, actuators: Any, options: dict[str, Any]) -> InverseDynamics:
    given = None if actuators is None else _each(model, actuators, _action)
    return inverse_dynamics(model.system, t, q, actuators=given, **options_of(model, options))


def _each(model: Model, given: Any, make: Callable[..., Any]) -> dict[Any, Any]:
    """What users list by names of joints, such as "hinge" or ("hinge", "angle"), made by ``make``."""
    if not isinstance(given, Mapping):
        listed = [given] if isinstance(given, str | Joint) else list(given)
        named = lambda x: ".".join(x) if isinstance(x, tuple) else getattr(x, "name", x)
        given = {named(x): x for x in listed}
    found = {}
    for name, value in given.items():
        one, coordinate = value if isinstance(value, tuple) else (value, "")
        thing = _known(model, one) if isinstance(one, str) else one
        if isinstance(one, str) and thing is not None and not isinstance(thing, Joint):
            raise TypeError(
                f"{thing!r} is no joint: name joints, or pass functions as described at ga.linearize"
            )
        found[name] = make(model, one, coordinate) if isinstance(thing, Joint) else value
    return found


def _known(model: Model, name: str) -> Any:
    return model[name] if name in model or not name.startswith("args[") else None


def _measured(model: Model, joint: Any, coordinate: str) -> Callable[..., Any]:
    """A coordinate of a joint as a function (t, q, v, *args)."""
    found, by = chosen(model, joint, coordinate)
    frames = JointFrames(model, found)
    return lambda t, q, v, *args: by.value(*frames(q, v, args))


def _action(model: Model, joint: Any, coordinate: str) -> Callable[..., Any]:
    """The generalized force (n,) of a unit force or torque along a coordinate: the gradient of its rate."""
    found, by = chosen(model, joint, coordinate)
    rate, still = JointRate(JointFrames(model, found), by), np.zeros(len(model.v0))
    return lambda t, q, *args: rate(np.asarray(q), still, args)[1]

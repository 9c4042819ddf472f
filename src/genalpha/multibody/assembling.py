"""The assembly that a model makes: every body is a node, joints and forces of one kind are a part."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from genalpha.compiler.kept import of_package
from genalpha.errors import warn
from genalpha.mechanics.assembly import Assembly
from genalpha.mechanics.parts import Part
from genalpha.multibody.frames import PLANAR

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


def assembly(model: Model) -> Assembly:
    """The assembly of a model."""
    bodies = model.bodies or no_body()
    if model.gravity[2] and not any(model.gravity[:2]) and all(body.kind is PLANAR for body in bodies):
        warn(
            "all bodies move in the plane of x and y, and gravity is along z: they do not fall. Pass "
            "gravity=(0, -9.81, 0), or (0, 0, 0) if this is meant"
        )
    numbers = {body.name: i for i, body in enumerate(bodies)}
    parts = [_masses(model, kind) for kind in dict.fromkeys(type(body) for body in bodies)]
    parts += [group.part(numbers) for group in model.groups]
    spaces: Sequence[Any] = [body.kind.space for body in bodies]
    return Assembly(parts, space=spaces, names=_names(model))


def no_body() -> Any:
    raise ValueError("the model has no body: add one, such as mb.Body")


def _names(model: Model) -> dict[str, list[str]]:
    """Names of the entries of the system, such as ``crank.x`` and ``hinge.about x``."""
    entries = [(body.name, body.kind.entries) for body in model.bodies]
    named = lambda k: [f"{name}.{entry}" for name, both in entries for entry in both[k]]
    rows = lambda speeds: [
        f"{member.name}.{name}"
        for group in model.groups
        for member in group.members
        for _, name in member.kept(speeds)
    ]
    return {"q": named(0), "v": named(1), "holonomic": rows(False), "nonholonomic": rows(True)}


def _masses(model: Model, kind: Any) -> Part:
    """The part with the masses and weights of bodies of a kind."""
    mine = [(i, body) for i, body in enumerate(model.bodies) if type(body) is kind]
    keys = mine[0][1].numbers()
    own = {key: np.stack([body.numbers()[key] for _, body in mine]) for key in keys}
    mass, force, made = _of_bodies(kind)
    part = Part(
        mass=mass,
        force=force,
        nodes=[i for i, _ in mine],
        args=(own, *map(np.asarray, model.gravity)),
        name=kind.__name__,
    )
    return part.sharing(made, f"{kind.__module__}.{kind.__qualname__}" if of_package(kind) else "")


@functools.cache
def _of_bodies(kind: Any) -> tuple[Any, Any, dict[Any, Any]]:
    """Mass and weight of bodies of a kind, and what is made of them: compiled once for all models."""
    mass = lambda t, q, of, *g: kind.inertia_matrix(t, q, of, jnp.stack(g))
    force = lambda t, q, v, of, *g: kind.weight(t, q, v, of, jnp.stack(g))
    return mass, force, {}

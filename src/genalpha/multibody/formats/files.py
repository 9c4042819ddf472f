"""Models as files: JSON, or TOML to read, that people can write. A file never runs code.

An entry has the arguments of its class by name. Bodies are named; a frame is the name of a body, or a table
with ``body``, ``at`` and ``rotation`` or ``axis``. Messages say where a wrong entry is.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genalpha.compiler.kept import of_package
from genalpha.engine import files
from genalpha.errors import hint
from genalpha.multibody import contact, couplings, forces, joints, limits, planar_joints, rolling, rotors
from genalpha.multibody.bodies import AnyBody, Body, PlanarBody, PointMass
from genalpha.multibody.connectors import Connector, frame_on
from genalpha.multibody.formats.body_shapes import drawn, shape_from
from genalpha.multibody.formats.entries import (
    FUNCTIONS,
    VECTOR,
    arguments,
    as_list,
    check,
    known,
    needed,
    number,
    text,
)
from genalpha.multibody.frames import quaternion_of
from genalpha.multibody.friction import Friction
from genalpha.multibody.inertia import Inertia
from genalpha.multibody.markers import Marker

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

FORMAT = "genalpha model 1"
BODIES: dict[str, Any] = {cls.__name__: cls for cls in (Body, PlanarBody, PointMass)}
_DEEP = "has tables or lists too deep inside others, so it is no model"
_LISTS = ("bodies", "joints", "forces")
_BODY_KEYS = {  # of bodies: those that they need, and others
    "Body": ("name mass inertia", "center at rotation velocity angular_velocity"),
    "PlanarBody": ("name mass moment", "center at angle velocity angular_velocity"),
    "PointMass": ("name mass", "at velocity"),
}
_NAMED = ("joint", "first", "second", "hinge", "slider")  # joints by name
_OTHERS = (".toml", ".yaml", ".yml", ".xml", ".urdf", ".mjcf", ".html", ".npz", ".csv", ".txt", ".py", ".gif")
_ACTS = ("holonomic", "nonholonomic", "force", "kinetic")


def _classes(base: type[Any], *modules: Any) -> dict[str, Any]:
    """Public classes by name, without those that only others are made of."""
    found = [x for module in modules for x in vars(module).values() if inspect.isclass(x)]
    public = [x for x in found if issubclass(x, base) and not x.__name__.startswith("_")]
    return {x.__name__: x for x in public if any(getattr(x, name) is not None for name in _ACTS)}


JOINTS = _classes(joints.Joint, joints, planar_joints, couplings, rolling)
FORCES = _classes(forces.Force, forces, contact, limits, rotors)
CONNECTORS = JOINTS | FORCES


# --- writing ------------------------------------------------------------------------------------------


def written(model: Model) -> dict[str, Any]:
    """A model as tables, lists, numbers and texts."""
    return {
        "format": FORMAT,
        "gravity": model.gravity.tolist(),
        **({"ground": ground} if (ground := drawn(model.ground)) else {}),
        "bodies": [_body(body) for body in model.bodies],
        "joints": [_connector(joint) for joint in model.joints],
        "forces": [_connector(force) for force in model.forces],
        **({"frames": _frames_of(model)} if model.frames else {}),
    }


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model as JSON. A write replaces the whole file or leaves it unchanged."""
    name = os.fsdecode(path)
    if (suffix := os.path.splitext(name)[1].lower()) in _OTHERS:
        raise ValueError(f"a model is written as JSON, not as {suffix}: name the file {name}.json")
    text = json.dumps(written(model), indent=1)
    # Numbers of a vector are on one line. No name is changed: texts in JSON have no line breaks.
    text = re.sub(r"\[\n([-+.,\de\s]+)\]", lambda found: "[" + " ".join(found[1].split()) + "]", text)
    files.replace(os.path.expanduser(name), lambda file: file.write((text + "\n").encode()))


def _type(thing: AnyBody | Connector, known: dict[str, Any]) -> str:
    """The name of the class of a thing, which is the class of this name that reading knows."""
    cls = type(thing)
    if known.get(cls.__name__) is not cls:
        own = "" if of_package(cls) else " of your own"
        base = cls.__bases__[0].__name__
        in_the_plane = own and cls.__name__ == f"Planar{base}"  # what a joint has become there
        name = base if in_the_plane else cls.__name__
        raise ValueError(
            f"{thing!r} is a {name}{own}, which a file cannot hold: save the model without it, and add it "
            "in Python, after loading"
        )
    return str(cls.__name__)


def _frames_of(model: Model) -> dict[str, Any]:
    """The frames with names, each of which can be read again."""
    things = {one.name: one for one in (model.ground, *model.bodies, *model.joints, *model.forces)}
    for name, frame in model.frames.items():
        where = f"model.frames[{name!r}]"
        if not isinstance(name, str):
            raise TypeError(f"{where}: the name of a frame must be a text")
        if name in things:
            raise ValueError(f"{where}: the model has {things[name]!r} already: names must differ")
        body = frame_on(frame, where).body
        if things.get(body.name) is not body:
            raise ValueError(f"{where}: the body {body.name!r} is not in the model: add it first")
    return {name: _plain(frame) for name, frame in model.frames.items()}


def _body(body: AnyBody) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": body.name, "type": _type(body, BODIES), "mass": body.mass}
    at = body.x - body.R @ body.center
    if isinstance(body, Body):
        entry |= {"inertia": body.inertia.tensor.tolist(), "center": body.center.tolist(), "at": at.tolist()}
        entry |= {"rotation": quaternion_of(body.R).tolist(), "velocity": body.velocity.tolist()}
        entry["angular_velocity"] = body.angular_velocity.tolist()
    elif isinstance(body, PlanarBody):
        entry |= {"moment": body.moment, "center": body.center[:2].tolist(), "at": at[:2].tolist()}
        entry |= {"angle": body.angle, "velocity": body.velocity.tolist()}
        entry["angular_velocity"] = body.angular_velocity
    else:
        entry |= {"at": body.x.tolist(), "velocity": body.velocities().tolist()}
    return entry | drawn(body)


def _connector(thing: Connector) -> dict[str, Any]:
    cls = type(thing)
    names = list(inspect.signature(cls.__init__).parameters)[1:]
    given, options = thing.given
    arguments = dict(zip(names, given, strict=False)) | options
    entry: dict[str, Any] = {"name": thing.name, "type": _type(thing, CONNECTORS)}
    for key, value in arguments.items():
        if key == "name" or (key in ("at", "axis", "second") and "a" in names):
            continue  # frames say it
        if callable(value) and not isinstance(value, Connector):
            raise ValueError(f"{thing!r} has the function {key!r}, which a file cannot hold")
        known = thing.numbers.get(key)
        entry[key] = _plain(known if value is None and known is not None else value)
    for key in (key for key in names if key in thing.numbers and key not in entry):
        entry[key] = bool(thing.numbers[key]) if key == "follows" else _plain(thing.numbers[key])
    for key, marker in zip(("a", "b"), thing.markers, strict=False):
        if key in names:
            entry[key] = _plain(marker)
    if thing.dropped:
        entry["dropped"] = sorted(thing.dropped)
    return {key: value for key, value in entry.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Marker):
        at = (value.r + value.body.center).tolist()
        return {"body": value.body.name, "at": at, "rotation": quaternion_of(value.Q).tolist()}
    if isinstance(value, AnyBody | Connector):
        return value.name
    if isinstance(value, Friction):
        return {key: number for key, number in dataclasses.asdict(value).items() if number is not None}
    return as_list(value)


# --- reading ------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str], **options: Any) -> Model:
    """The model in a file: JSON or TOML, a robot in URDF (.urdf), or a MuJoCo model in MJCF (.xml, .mjcf).

    Options for URDF: ``base="fixed"`` or ``"free"``, whether the first link can move, and ``gravity``. For
    URDF and MJCF:
    ``folders``, one or a list, where meshes are looked for as well; ``meshes="read"`` or ``"ignore"``;
    ``limits="stiff"`` or ``"ignore"``, whether joints have a :class:`Limit` at the ends of their ranges. For
    MJCF: ``controls``, values or functions of t of actuators by name. What a robot or MuJoCo model has that
    is not supported is listed in ``model.notes``.
    """
    file = Path(os.path.expanduser(os.fspath(path)))
    if file.suffix.lower() in (".urdf", ".xml", ".mjcf"):
        from genalpha.multibody.formats import mjcf, urdf

        reader: Any = urdf.load if file.suffix.lower() == ".urdf" else mjcf.load
        possible = list(inspect.signature(reader).parameters)[1:]
        for name in options:
            if name not in possible:
                raise TypeError(f"{file.name} has no option {name!r}: {hint(name, possible, 'there can be')}")
        try:
            return reader(file, **options)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    if options:
        raise TypeError(f"{file.name} has no option {next(iter(options))!r}: options are for URDF and MJCF")
    toml = file.suffix.lower() == ".toml"
    try:
        content = file.read_bytes().decode()
        data = tomllib.loads(content) if toml else json.loads(content, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is no text, so it is no model: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{file} {_DEEP}") from error
    except ValueError as error:
        raise ValueError(f"{file} is no {'TOML' if toml else 'JSON'}: {error}") from error
    try:
        return read(data)
    except RecursionError as error:
        raise ValueError(f"{file} {_DEEP}") from error
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose names differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise json.JSONDecodeError(f"the name {twice!r} occurs twice in one object", "", 0)
    return found


def read(data: Any) -> Model:
    """A model from what a file holds."""
    from genalpha.multibody.model import Model

    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"this is no model: its entry 'format' must be {FORMAT!r}")
    known(data, ("format", "gravity", "ground", "frames", *_LISTS), "")
    if "gravity" in data:
        VECTOR(data["gravity"], "gravity")
    model = Model(**({"gravity": data["gravity"]} if "gravity" in data else {}))
    ground = data.get("ground", {})
    if not isinstance(ground, dict):
        raise ValueError("ground must be a table with a shape")
    known(ground, ("shape",), "ground")
    model.ground.shape = shape_from(ground.get("shape"), "ground")
    for kind in _LISTS:
        entries = data.get(kind, [])
        if not isinstance(entries, list):
            raise ValueError(f"{kind} must be a list")
        for i, entry in enumerate(entries):
            where = f"{kind}[{i}]"
            if not isinstance(entry, dict):
                raise ValueError(f"{where} must be a table with a name and a type")
            where += f" ({entry.get('name', 'without a name')})"
            try:
                _add(model, kind, {key: x for key, x in entry.items() if x is not None}, where)
            except (ValueError, TypeError) as error:
                raise ValueError(_at(where, error)) from error
    _frames(model, data.get("frames", {}))
    return model


def _at(where: str, error: Exception) -> str:
    """The message of an error with the path of its entry."""
    return str(error) if str(error).startswith(where) else f"{where}: {error}"


def _frames(model: Model, frames: Any) -> None:
    """Frames with names."""
    if not isinstance(frames, dict):
        raise ValueError("frames must be a table of frames by name")
    for name, frame in frames.items():
        where = f"frames.{name}"
        if name in model:
            raise ValueError(f"{where}: the model has {model[name]!r} already: names must differ")
        try:
            model.frames[name] = frame_on(_frame(model, frame, where), where)
        except (ValueError, TypeError) as error:
            raise ValueError(_at(where, error)) from error


def _add(model: Model, kind: str, entry: dict[str, Any], where: str) -> None:
    classes = {"bodies": BODIES, "joints": JOINTS, "forces": FORCES}[kind]
    name = entry.pop("type", None)
    if not isinstance(name, str) or name not in classes:
        held = [x for x, one in classes.items() if not set(arguments(one)[1]) & set(FUNCTIONS)]
        near = hint(name, held, "there are")
        raise ValueError(f"{where}.type is {name!r}, which is unknown: {near}")
    cls = classes[name]
    if kind == "bodies":
        model.add(_body_from(cls, entry, where))
        return
    dropped = entry.pop("dropped", [])
    names, asked = arguments(cls)
    if set(asked) & set(FUNCTIONS):
        raise ValueError(f"{where}.type is {name!r}, which needs a function: add it in Python, after loading")
    known(entry, names, where)
    needed(entry, asked, where)
    if name == "Universal" and "at" not in entry and (given := [x for x in ("axis", "second") if x in entry]):
        raise ValueError(f"{where}.{given[0]} is given without at: the axes are z of the frames a and b")
    made = cls(**{key: _resolved(model, name, key, value, f"{where}.{key}") for key, value in entry.items()})
    rows = len(made.rows) + len(made.speed_rows)
    whole = isinstance(dropped, list) and all(type(x) is int and x in range(rows) for x in dropped)
    if not whole:
        raise ValueError(f"{where}.dropped must be numbers of rows from 0 to {rows - 1}, got {dropped!r}")
    made.leave_out(dropped)
    model.add(made)


def _body_from(cls: Any, entry: dict[str, Any], where: str) -> AnyBody:
    asked, others = (words.split() for words in _BODY_KEYS[cls.__name__])
    known(entry, (*asked, *others, "shape"), where)
    needed(entry, asked, where)
    shape = shape_from(entry.pop("shape", None), where)
    for key, value in entry.items():
        check(cls.__name__, key, value, f"{where}.{key}")
    if cls is Body:
        center = entry.pop("center", (0.0, 0.0, 0.0))
        inertia = Inertia(entry.pop("mass"), entry.pop("inertia"), center)
        return Body(entry.pop("name"), inertia, shape=shape, **entry)
    return cls(shape=shape, **entry)


def _named(model: Model, name: Any, where: str) -> Any:
    """The thing of a model that an entry names."""
    text(name, where)
    if name not in model:
        raise ValueError(f"{where}: the model has nothing with the name {name!r}: {model.nearest(name)}")
    return model[name]


def _frame(model: Model, value: Any, where: str) -> Any:
    """The body or frame that an entry names, or the frame that it makes."""
    if isinstance(value, str):
        return _named(model, value, where)
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be the name of a body, or a table with body and at, got {value!r}")
    known(value, ("body", "at", "rotation", "axis"), where)
    needed(value, ("body",), where)
    body = _named(model, value["body"], f"{where}.body")
    if not isinstance(body, AnyBody):
        raise ValueError(f"{where}.body is {value['body']!r}, which is no body")
    given = {key: one for key, one in value.items() if key != "body"}
    for key, one in given.items():
        check("frame", key, one, f"{where}.{key}")
    return body.frame(**given)


def _resolved(model: Model, kind: str, key: str, value: Any, where: str) -> Any:
    """The object that an entry names, or its value."""
    if key in FUNCTIONS:
        raise ValueError(f"{where} is a function, which a file cannot hold: add it in Python, after loading")
    if key in ("a", "b", "body"):
        return _frame(model, value, where)
    if key in _NAMED and (kind, key) != ("Universal", "second"):
        return _named(model, value, where)
    if key == "friction" and kind != "SphereContact":
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be a table with a coefficient, got {value!r}")
        known(value, [field.name for field in dataclasses.fields(Friction)], where)
        needed(value, ("coefficient",), where)
        for name, one in value.items():
            number(one, f"{where}.{name}")
        return Friction(**value)
    check(kind, key, value, where)
    return tuple(value) if key in ("teeth", "of") else value

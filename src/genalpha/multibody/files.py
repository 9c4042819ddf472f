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

import numpy as np

from genalpha.engine import files
from genalpha.errors import hint
from genalpha.multibody import couplings, forces, joints, rolling, rotors
from genalpha.multibody.bodies import AnyBody, Body, Marker, PlanarBody, PointMass
from genalpha.multibody.connectors import Connector, frame_on
from genalpha.multibody.frames import quaternion_of
from genalpha.multibody.inertia import Inertia
from genalpha.view import shapes

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

FORMAT = "genalpha model 1"
BODIES: dict[str, Any] = {cls.__name__: cls for cls in (Body, PlanarBody, PointMass)}
_LISTS = ("bodies", "joints", "forces")
_SHAPES = {"Box", "Cylinder", "Capsule", "Sphere", "Mesh"}


def _classes(base: type[Any], *modules: Any) -> dict[str, Any]:
    found = [x for module in modules for x in vars(module).values() if inspect.isclass(x)]
    public = [x for x in found if issubclass(x, base) and not x.__name__.startswith("_")]
    return {x.__name__: x for x in public if x is not base}


JOINTS = _classes(joints.Joint, joints, couplings, rolling)
FORCES = _classes(forces.Force, forces, rotors)
CONNECTORS = JOINTS | FORCES


# --- writing ------------------------------------------------------------------------------------------


def written(model: Model) -> dict[str, Any]:
    """A model as tables, lists, numbers and texts."""
    return {
        "format": FORMAT,
        "gravity": model.gravity.tolist(),
        "bodies": [_body(body) for body in model.bodies],
        "joints": [_connector(joint) for joint in model.joints],
        "forces": [_connector(force) for force in model.forces],
        **({"frames": {name: _plain(frame) for name, frame in model.frames.items()}} if model.frames else {}),
    }


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model as JSON. A write replaces the whole file or leaves it unchanged."""
    text = json.dumps(written(model), indent=1)
    # Numbers of a vector are on one line. No name is changed: texts in JSON have no line breaks.
    text = re.sub(r"\[\n([-+.,\de\s]+)\]", lambda found: "[" + " ".join(found[1].split()) + "]", text)
    files.replace(os.path.expanduser(os.fspath(path)), lambda file: file.write((text + "\n").encode()))


def _body(body: AnyBody) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": body.name, "type": type(body).__name__, "mass": body.mass}
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
    if body.shape is not None and type(body.shape).__name__ in _SHAPES:
        sizes = {
            f.name: getattr(body.shape, f.name) for f in dataclasses.fields(body.shape) if f.name != "at"
        }
        said = lambda value: isinstance(value, np.ndarray) or value not in (None, "")
        sizes = {key: _plain(value) for key, value in sizes.items() if said(value)}
        entry["shape"] = {"type": type(body.shape).__name__, **sizes}
    return entry


def _connector(thing: Connector) -> dict[str, Any]:
    cls = type(thing)
    names = list(inspect.signature(cls.__init__).parameters)[1:]
    given, options = thing.given
    arguments = dict(zip(names, given, strict=False)) | options
    entry: dict[str, Any] = {"name": thing.name, "type": cls.__name__}
    for key, value in arguments.items():
        if key == "name" or (key in ("at", "axis", "second") and "a" in names):
            continue  # frames say it
        if callable(value) and not isinstance(value, Connector):
            raise ValueError(f"{thing!r} has the function {key!r}, which a file cannot hold")
        known = thing.numbers.get(key)
        entry[key] = _plain(known if value is None and known is not None else value)
    for key in (key for key in names if key in thing.numbers and key not in entry):
        entry[key] = _plain(thing.numbers[key])
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
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


# --- reading ------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str], **options: Any) -> Model:
    """The model in a file: JSON or TOML, a robot in URDF (.urdf), or a MuJoCo model in MJCF (.xml, .mjcf).

    Options for URDF: ``base="fixed"`` or ``"free"``, whether the first link can move. For URDF and MJCF:
    ``folders``, where meshes are looked for as well. For MJCF: ``controls``, values or functions of t of
    actuators by name. What a robot or MuJoCo model has that is not supported is listed in ``model.notes``.
    """
    file = Path(os.path.expanduser(os.fspath(path)))
    if file.suffix.lower() in (".urdf", ".xml", ".mjcf"):
        from genalpha.multibody import mjcf, urdf

        reader: Any = urdf.load if file.suffix.lower() == ".urdf" else mjcf.load
        known = list(inspect.signature(reader).parameters)[1:]
        for name in options:
            if name not in known:
                raise TypeError(f"{file.name} has no option {name!r}: {hint(name, known, 'there can be')}")
        try:
            return reader(file, **options)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    if options:
        raise TypeError(f"{file.name} has no option {next(iter(options))!r}: options are for URDF and MJCF")
    try:
        data = tomllib.loads(file.read_text()) if file.suffix == ".toml" else json.loads(file.read_text())
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{file} is no {'TOML' if file.suffix == '.toml' else 'JSON'}: {error}") from error
    return read(data)


def read(data: Any) -> Model:
    """A model from what a file holds."""
    from genalpha.multibody.model import Model

    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"this is no model: its entry 'format' must be {FORMAT!r}")
    _known(data, ("format", "gravity", "frames", *_LISTS), "")
    model = Model(**({"gravity": data["gravity"]} if "gravity" in data else {}))
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
                _add(model, kind, dict(entry), where)
            except (ValueError, TypeError, KeyError) as error:
                text = str(error.args[0]) if error.args else str(error)
                raise ValueError(text if text.startswith(kind) else f"{where}: {text}") from error
    _frames(model, data.get("frames", {}))
    return model


def _frames(model: Model, frames: Any) -> None:
    """Frames with names."""
    if not isinstance(frames, dict):
        raise ValueError("frames must be a table of frames by name")
    for name, frame in frames.items():
        where = f"frames.{name}"
        if name in model:
            raise ValueError(f"{where}: the model has {model[name]!r} already: names must differ")
        try:
            model.frames[name] = frame_on(_resolved(model, "body", frame, where), where)
        except (TypeError, KeyError) as error:
            raise ValueError(f"{where}: {error.args[0]}") from error


def _known(entry: dict[str, Any], names: Any, where: str) -> None:
    for key in entry:
        if key not in names:
            near = hint(key, names, "there can be")
            raise ValueError(f"{where}{'.' if where else ''}{key} is unknown: {near}")


def _add(model: Model, kind: str, entry: dict[str, Any], where: str) -> None:
    classes = {"bodies": BODIES, "joints": JOINTS, "forces": FORCES}[kind]
    name = entry.pop("type", None)
    if name not in classes:
        near = hint(name, classes, "there are")
        raise ValueError(f"{where}.type is {name!r}, which is unknown: {near}")
    cls = classes[name]
    if kind == "bodies":
        model.add(_body_from(cls, entry, where))
        return
    dropped = entry.pop("dropped", [])
    parameters = list(inspect.signature(cls.__init__).parameters)[1:]
    _known(entry, parameters, where)
    resolved = {key: _resolved(model, key, value, f"{where}.{key}") for key, value in entry.items()}
    made = cls(**resolved)
    rows = len(made.rows) + len(made.speed_rows)
    if not isinstance(dropped, list) or any(x not in range(rows) for x in dropped):
        raise ValueError(f"{where}.dropped must be numbers of rows from 0 to {rows - 1}, got {dropped!r}")
    made.dropped = frozenset(dropped)
    model.add(made)


def _body_from(cls: Any, entry: dict[str, Any], where: str) -> AnyBody:
    shape = entry.pop("shape", None)
    if shape is not None:
        kind = shape.get("type") if isinstance(shape, dict) else None
        if kind not in _SHAPES:
            raise ValueError(f"{where}.shape.type is {kind!r}: there are {', '.join(sorted(_SHAPES))}")
        shape = getattr(shapes, kind)(**{key: value for key, value in shape.items() if key != "type"})
    if cls is Body:
        names = ("name", "mass", "inertia", "center", "at", "rotation", "velocity", "angular_velocity")
        _known(entry, names, where)
        center = entry.pop("center", (0.0, 0.0, 0.0))
        missing = [key for key in ("name", "mass", "inertia") if key not in entry]
        if missing:
            raise ValueError(f"{where} has no {missing[0]}")
        inertia = Inertia(entry.pop("mass"), entry.pop("inertia"), center)
        return Body(entry.pop("name"), inertia, shape=shape, **entry)
    _known(entry, list(inspect.signature(cls.__init__).parameters)[1:], where)
    return cls(shape=shape, **entry)


def _resolved(model: Model, key: str, value: Any, where: str) -> Any:
    """The object that an entry names, or its value."""
    if key in ("a", "b", "body") and isinstance(value, dict):
        _known(value, ("body", "at", "rotation", "axis"), where)
        if "body" not in value:
            raise ValueError(f"{where} has no body")
        return model[value["body"]].frame(**{k: v for k, v in value.items() if k != "body"})
    if key in ("a", "b", "body", "joint", "first", "second", "hinge", "slider") and isinstance(value, str):
        return model[value]
    return tuple(value) if key in ("teeth", "of") and isinstance(value, list) else value

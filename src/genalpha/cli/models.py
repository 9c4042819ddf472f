"""Finds the model for ``genalpha run``: a named problem, a multibody model, or an attribute of a file."""

from __future__ import annotations

import inspect
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genalpha import problems
from genalpha.cli import Refused
from genalpha.errors import unknown
from genalpha.run import arguments
from genalpha.solve import solve

_NEEDED = ("system", "t_span", "q0", "v0")
MECHANISMS = (".json", ".toml", ".urdf", ".xml", ".mjcf")
_SPAN = (0.0, 1.0)  # of multibody models, which have none
_ABOUT = ("name", "title", "args", "coordinates", "reference", "energy")
# The arguments of ga.solve that a model may set. The other ones are the command line's.
OPTIONS = tuple(
    name
    for name in inspect.signature(solve).parameters
    if name not in (*_NEEDED, "args", "progress", "throw", "checkpoint", "checkpoint_every", "state")
)


@dataclass(frozen=True)
class NamedModel:
    """A problem to run. ``file`` is the file of its functions, if known; ``options`` are for ``ga.solve``.

    ``mechanism`` is the multibody model, if it is one.
    """

    name: str
    title: str
    system: Any
    t_span: tuple[float, float]
    q0: Any
    v0: Any
    args: Any
    coordinates: list[str] | None
    reference: Callable[[float], Any] | None
    file: Path | None
    options: dict[str, Any]
    mechanism: Any = None


def find(what: str) -> NamedModel:
    """The model with this name, in ``file.py:attribute``, or in a file of a multibody model.

    >>> find("pendulum").title
    'Pendulum with torsional spring and damper'
    """
    if Path(what).suffix.lower() in MECHANISMS:
        return _mechanism(what)
    path, colon, attribute = what.rpartition(":")
    if colon and Path(path).suffix.lower() in MECHANISMS:
        raise Refused(
            f"{path} is the file of a model, which has no attributes such as {attribute!r}: write {path}"
        )
    if what.endswith(".py") or ":" in what:
        return _from_file(what)
    try:
        return _model(what, problems.get(what), None)
    except ValueError as error:
        raise Refused(str(error)) from error


def explain(error: BaseException, file: Path | None) -> str | None:
    """The error in a model file and its line; None if the exception did not occur in this file."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(Path(error.filename))}, line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if file is not None and frame.filename == str(file)]
    if file is None or not lines:
        return None
    return f"{_short(file)}, line {lines[-1]}: {type(error).__name__}: {in_one_line(error)}"


def in_one_line(error: BaseException) -> str:
    """The first line of a message, and the notes that the package added to it."""
    notes = [note for note in getattr(error, "__notes__", []) if "\n" not in note]
    return " ".join([*str(error).splitlines()[:1], *notes])


def _mechanism(what: str) -> NamedModel:
    """A multibody model from a file, with its joints closed."""
    try:
        model = _loaded(what)
        closed = model.assemble(redundant="drop")
    except OSError as error:
        raise Refused(f"cannot read {what}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise Refused(in_one_line(error)) from error
    return replace(_model(what, model, None), title=str(closed))


def _loaded(what: str) -> Any:
    """A multibody model from a file. There is no ``model.notes`` on a command line, so all notes are told."""
    from genalpha import multibody

    with warnings.catch_warnings(record=True) as caught:
        model = multibody.load(what)
    for one in caught:
        summary = "model.notes" in str(one.message)
        for told in (f"{Path(what).name}: {note}" for note in model.notes) if summary else (one.message,):
            warnings.warn(told, stacklevel=2)
    return model


def _from_file(what: str) -> NamedModel:
    path, colon, attribute = what.rpartition(":")
    if what.endswith(".py") or not colon:
        path, attribute = what, ""
    file = Path(path).resolve()
    contents = _load(path, file)
    public = [
        name
        for name, value in contents.items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    ]
    if not attribute:
        raise Refused(
            f"{path} is given without an attribute: write {path}:ATTRIBUTE. It has: {', '.join(public)}"
        )
    if attribute not in contents:
        raise Refused(str(unknown(f"attribute of {path}", attribute, public)))
    found = contents[attribute]
    if callable(found) and not all(_has(found, name) for name in _NEEDED):
        found = _called(what, found, file)
    return _model(what, found, file)


def _load(path: str, file: Path) -> dict[str, Any]:
    """What a file defines. Its folder comes first in the search path, as if Python ran the file."""
    try:
        source = file.read_bytes()
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from error
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    module = types.ModuleType(f"_model_{file.stem}")
    module.__file__ = str(file)
    before = set(vars(module))
    sys.modules[module.__name__] = module  # dataclasses look for it there
    try:
        exec(compile(source, str(file), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        reason = explain(error, file) or f"cannot read {path}: {type(error).__name__}: {error}"
        raise Refused(reason) from error
    return {name: value for name, value in vars(module).items() if name not in before}


def _called(what: str, function: Callable[[], Any], file: Path) -> Any:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError) as error:
        raise Refused(f"{what} is a function that needs arguments: write one without arguments") from error
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise Refused(explain(error, file) or f"{what}: {type(error).__name__}: {error}") from error


def _model(what: str, found: Any, file: Path | None) -> NamedModel:
    """A model from a Problem, or from any object or dict with the same names."""
    mechanism = None
    if type(found).__module__ == "genalpha.multibody.model":  # which need not be imported for others
        mechanism = found
        found = {"system": found.system, "t_span": _SPAN, "q0": found.q0, "v0": found.v0}
    missing = [name for name in _NEEDED if not _has(found, name)]
    if missing:
        raise Refused(
            f"{what} is of type {type(found).__name__} and lacks {', '.join(missing)}: it must have "
            f"{', '.join(_NEEDED)}, and args if the functions take any"
        )
    system, t_span, q0, v0 = (_get(found, name) for name in _NEEDED)
    try:
        t_span = arguments.span(t_span)
    except (TypeError, ValueError) as error:
        raise Refused(f"{what}: {error}") from error
    known = (*_NEEDED, *_ABOUT, *OPTIONS)
    strange = [name for name in found if name not in known] if isinstance(found, Mapping) else []
    if strange:
        raise Refused(f"{what}: {unknown('key', str(strange[0]), known)}")
    names, reference = _get(found, "coordinates"), _get(found, "reference")
    own = () if isinstance(found, problems.Problem) else OPTIONS
    return NamedModel(
        name=what,
        title=str(_get(found, "title") or ""),
        system=system,
        t_span=t_span,
        q0=q0,
        v0=v0,
        args=() if _get(found, "args") is None else _get(found, "args"),
        coordinates=[str(name) for name in names] if isinstance(names, list | tuple) else None,
        reference=reference if callable(reference) else None,
        file=file,
        options={name: _get(found, name) for name in own if _get(found, name) is not None},
        mechanism=mechanism,
    )


def _has(found: Any, name: str) -> bool:
    return name in found if isinstance(found, Mapping) else hasattr(found, name)


def _get(found: Any, name: str) -> Any:
    return found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)


def _short(file: Path) -> str:
    """A path relative to the current directory, if it is below it."""
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)

"""Files that hold data and no code: trees of numbers, arrays and a few known classes, as .npz.

A file is a zip of plain arrays. ``header`` is JSON, as bytes: the format, its version, what the file holds,
and the tree, with types and shapes instead of arrays. Each type of number has one further array, which
holds the entries of all arrays of this type, one after the other. ``checksum`` is the SHA-256 of all of them.

Nothing in a file names a module or a function. Classes are looked up by name among those that the package has
registered with :func:`storable`. These are named tuples and dataclasses that run no code when they are made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import math
import os
import re
import secrets
import struct
import tokenize
import zipfile
from collections.abc import Callable
from typing import IO, Any, TypeVar

import jax
import numpy as np

from genalpha._version import __version__

FORMAT, VERSION = "genalpha", 1
_OLD_CHECKPOINT = b"genalpha checkpoint 1\n"  # and a pickle after it
_NUMBERS = re.compile(r"[biufc]\d{1,2}")  # NumPy's names of types
_PLAIN = (bool, int, str, type(None))
# Errors that a damaged or manipulated file may cause.
ODD = (
    zipfile.BadZipFile,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
)
Class = TypeVar("Class", bound=type)
_known: dict[str, type] = {}


def storable(*classes: Class) -> Class:
    """Register classes that files may hold. Returns the first one, so that it works as a decorator."""
    for kind in classes:
        if not (hasattr(kind, "_fields") or dataclasses.is_dataclass(kind)) or hasattr(kind, "__post_init__"):
            raise TypeError(f"{kind.__name__} must be a NamedTuple or a dataclass without __post_init__")
        if _known.setdefault(kind.__name__, kind) is not kind:
            raise TypeError(f"another class {kind.__name__} is registered already: choose another name")
    return classes[0]


# --- trees ----------------------------------------------------------------------------------------------


def encode(tree: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A tree in a form that JSON can write, and one array of all numbers for each type, by its name.

    >>> encode({"x": np.array([1.0, 2.0]), "n": 3})[0]["tree"]
    ['dict', ['x', ['array', 'f8', [2]]], ['n', 3]]
    """
    pools: dict[str, list[np.ndarray]] = {}
    classes: dict[str, list[str]] = {}
    skeleton = _encoded(tree, pools, classes)
    arrays = {name: np.concatenate(parts) for name, parts in pools.items()}
    return {"classes": classes, "tree": skeleton}, arrays


def _encoded(x: Any, pools: dict[str, list[np.ndarray]], classes: dict[str, list[str]]) -> Any:
    each = lambda parts: [_encoded(part, pools, classes) for part in parts]
    kind = type(x)
    if kind in _PLAIN:
        return x
    if kind is float:
        return ["float", x.hex()]
    if kind is bytes:
        return ["bytes", x.hex()]
    if kind in (list, tuple):
        return [kind.__name__, *each(x)]
    if kind is dict and all(type(key) is str for key in x):
        return ["dict", *([key, value] for key, value in zip(x, each(x.values()), strict=True))]
    if _known.get(kind.__name__) is kind:
        names = _fields(kind)
        classes[kind.__name__] = names
        return [kind.__name__, *each(getattr(x, name) for name in names)]
    if isinstance(x, np.ndarray | np.generic | jax.Array):
        array = np.asarray(x)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        name = array.dtype.str[1:]
        if _NUMBERS.fullmatch(name):
            pools.setdefault(name, []).append(array.reshape(-1))
            return ["scalar", name] if isinstance(x, np.generic) else ["array", name, list(array.shape)]
    raise TypeError(f"a file cannot hold {x!r} of type {kind.__name__}, only numbers, arrays and text")


def decode(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """The tree that was encoded."""
    for name, fields in header["classes"].items():
        if fields != _fields(_known[name]):
            raise ValueError(f"the fields of {name} differ from those of this version")
    used = dict.fromkeys(arrays, 0)

    def take(name: str, count: int) -> np.ndarray:
        first = used[name]
        used[name] += count
        if count < 0 or used[name] > len(arrays[name]):
            raise ValueError("it holds fewer numbers than its header says")
        return arrays[name][first : used[name]].copy()

    return _decoded(header["tree"], take)


def _decoded(node: Any, take: Callable[[str, int], np.ndarray]) -> Any:
    if type(node) in _PLAIN:
        return node
    kind, *parts = node
    if kind == "float":
        return float.fromhex(*parts)
    if kind == "bytes":
        return bytes.fromhex(*parts)
    if kind == "dict":
        return {_word(key): _decoded(value, take) for key, value in parts}
    if kind == "scalar":
        (name,) = parts
        return take(name, 1)[0]
    if kind == "array":
        name, shape = parts
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"{shape} is not a shape")
        return take(name, math.prod(shape)).reshape(shape)
    values = [_decoded(part, take) for part in parts]
    if kind in ("list", "tuple"):
        return values if kind == "list" else tuple(values)
    return _known[kind](*values)


def _word(key: Any) -> str:
    if type(key) is not str:
        raise ValueError(f"{key!r} is not a name")
    return key


def _fields(kind: Any) -> list[str]:
    names = getattr(kind, "_fields", None)
    return list(names) if names is not None else [field.name for field in dataclasses.fields(kind)]


# --- files ----------------------------------------------------------------------------------------------


def write(path: str, kind: str, tree: Any, mode: int = 0o666) -> None:
    """Write a tree as a file of this kind."""
    about = {"format": FORMAT, "version": VERSION, "kind": kind, "genalpha": __version__}
    skeleton, arrays = encode(tree)
    arrays["header"] = np.frombuffer(json.dumps(about | skeleton).encode(), np.uint8)
    arrays["checksum"] = _checksum(arrays)
    put(path, arrays, mode)


def put(path: str, arrays: dict[str, Any], mode: int = 0o666) -> None:
    """Write arrays to an .npz file. A write replaces the whole file or leaves it unchanged."""
    replace(path, lambda file: np.savez(file, **arrays), mode)


def replace(path: str, write: Callable[[IO[bytes]], Any], mode: int = 0o666) -> None:
    """Write a file by ``write(file)``. The whole file is replaced, or left unchanged if there is an error."""
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):  # a device or a pipe (a folder is an error)
        with open(target, "wb") as file:
            write(file)
        return
    name = f"{target}.{secrets.token_hex(6)}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(name, flags, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def read(path: str, kind: str, remedy: str, same: bool = False) -> Any:
    """The tree in a file of this kind. Raises a ValueError for a bad file; its message ends with the remedy.

    With ``same`` the file must have been written by this version of the package.
    """
    about, arrays = _opened(path, kind, remedy)
    writer = str(about.get("genalpha"))[:40]
    if same and writer != __version__:
        raise ValueError(
            f"{path} was written by genalpha {writer}, this is {__version__}, which may not give the same "
            f"bits: {remedy}, or use genalpha {writer}"
        )
    if not np.array_equal(arrays.pop("checksum", None), _checksum(arrays)):  # type: ignore[arg-type]
        raise ValueError(f"{path} is damaged: its checksum is wrong. {_sentence(remedy)}")
    arrays.pop("header")
    try:
        return decode(about, arrays)
    except ODD as error:
        if writer != __version__:
            raise ValueError(
                f"{path} was written by genalpha {writer}, whose files hold other data than those of this "
                f"version, {__version__}: {remedy}"
            ) from error
        raise ValueError(f"{path} is damaged: {error}. {_sentence(remedy)}") from error


def passes(found: Any, kind: type, sound: Callable[[Any], bool]) -> bool:
    """Whether an object from a file is of this class and sound."""
    try:
        return isinstance(found, kind) and sound(found)
    except ODD:
        return False


def _opened(path: str, kind: str, remedy: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a file of this kind."""
    foreign = f"{path} is not a {kind} of genalpha"
    if not os.path.isfile(path):
        raise ValueError(f"{foreign}, because it is not a file. {_sentence(remedy)}")
    with open(path, "rb") as file:
        start = file.read(len(_OLD_CHECKPOINT))
        if start.startswith((_OLD_CHECKPOINT, b"\x80")):
            older = "a checkpoint of an older genalpha, a pickle" if start[:1] != b"\x80" else "a pickle"
            raise ValueError(
                f"{path} is {older}. Pickles are not read, because reading one can run code: {remedy}"
            )
        if not start.startswith(b"PK"):
            raise ValueError(f"{foreign}{'' if start else ', it is empty'}. {_sentence(remedy)}")
        try:
            arrays = members(file)
        except ODD as error:
            raise ValueError(f"{path} is damaged: {error}. {_sentence(remedy)}") from error
    header = arrays.get("header")
    if header is None or header.dtype != np.uint8 or header.ndim != 1:
        raise ValueError(f"{foreign}, but an .npz file of something else. {_sentence(remedy)}")
    try:
        about = json.loads(header.tobytes())
        name, version, found = about["format"], about["version"], about["kind"]
    except ODD as error:
        raise ValueError(f"{path} is damaged: its header cannot be read. {_sentence(remedy)}") from error
    if name != FORMAT or type(version) is not int:
        raise ValueError(f"{foreign}, but an .npz file of something else. {_sentence(remedy)}")
    if version > VERSION:
        raise ValueError(
            f"{path} was written by a newer genalpha, in format {version}; this version reads formats up to "
            f"{VERSION}. Update genalpha, or {remedy}"
        )
    if found != kind:
        raise ValueError(f"{path} is a {str(found)[:40]} of genalpha, not a {kind}. {_sentence(remedy)}")
    return about, arrays


def _sentence(remedy: str) -> str:
    return remedy[:1].upper() + remedy[1:]


def _checksum(arrays: dict[str, np.ndarray]) -> np.ndarray:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data if array.size else b"")
    return np.frombuffer(digest.digest(), np.uint8)


def members(file: IO[bytes]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file: numbers and text, uncompressed, together no larger than the file.

    The sizes are checked here because NumPy allocates memory for the shape that the header of an array
    states, before it reads the numbers.
    """
    length = os.fstat(file.fileno()).st_size
    found: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(file) as archive:
        listed = archive.infolist()
        if any(each.compress_type != zipfile.ZIP_STORED for each in listed):
            raise ValueError("it is compressed")
        if sum(each.file_size for each in listed) > length:
            raise ValueError("its arrays are larger than the file")
        for each in listed:
            name = each.filename.removesuffix(".npy")
            if name in found:
                raise ValueError(f"it holds two arrays {name!r}")
            found[name] = _array(name, archive.read(each))
    return found


def _array(name: str, data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"{name!r} is not an array in NumPy's format 1.0")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "biufcU" or not dtype.itemsize:
        raise ValueError(f"{name!r} holds neither numbers nor text")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError(f"the size of {name!r} does not match its shape")
    array: np.ndarray = np.ndarray(shape, dtype, data, stream.tell(), order="F" if by_columns else "C")
    return array.copy("K")

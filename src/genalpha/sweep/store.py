"""The store of a sweep: a Zarr group that xarray reads, with one chunk of every variable for each block.

The template is made in a folder aside and renamed. A block is written variable by variable, each file by a
new one that is renamed, and its record last: what has no record does not count. The record has a checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genalpha.sweep.axes import Axes

FORMAT = 1
MISSING, DONE, GIVEN_UP = 0, 1, 2  # states of a block
NOT_RUN, RAISED, LOST = -100, 100, 101  # statuses of members that have no run
MESSAGE = 240  # bytes of a message
_KEY, _RECORD, _COORDINATES = "genalpha_sweep", "record", 2**17
_FIELDS = ("state", "checksum", "kind", "nanoseconds")


class Variable(NamedTuple):
    """A variable of the store: its dimensions after ``run``, the shape of one run, and its type."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str

    @property
    def fill(self) -> Any:
        return float("nan") if self.dtype.startswith("f") else 0

    def blank(self, count: int) -> np.ndarray:
        return np.full((count, *self.shape), self.fill, self.dtype)


class NotSameSweep(ValueError):
    """The store belongs to another sweep."""


class StoreNotWritable(OSError):
    """The store cannot be written to, such as when its disk is full. What is done stays."""


def zarr() -> Any:
    """The module, or an error that says how to install it."""
    try:
        import zarr
    except ImportError as error:
        raise ImportError("sweeps need zarr and xarray: pip install genalpha[sweep]") from error
    return zarr


class SweepStore:
    """An open store."""

    def __init__(self, path: str | os.PathLike[str], writing: bool = True) -> None:
        self.path = Path(path).expanduser().absolute()
        if not (self.path / "zarr.json").is_file():
            raise NotSameSweep(f"{self.path} is not the store of a sweep: choose another path")
        self._group = zarr().open_group(str(self.path), mode="r+" if writing else "r", zarr_format=3)
        self.header: dict[str, Any] = self._header()
        self.runs, self.block = int(self.header["runs"]), int(self.header["block"])
        self.blocks = -(-self.runs // self.block)
        listed = self.header["variables"].items()
        self.variables = {name: Variable(tuple(v[0]), tuple(v[1]), v[2]) for name, v in listed}
        names = [*self.header["axes"], *self.variables, _RECORD]
        self._arrays = {name: self._group[name] for name in names}

    def _header(self) -> dict[str, Any]:
        found = dict(self._group.attrs).get(_KEY)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise NotSameSweep(
                f"{self.path} is not the store of a sweep of this version: choose another path"
            )
        return found

    def update(self, **entries: Any) -> None:
        """Change entries of the header. Only the one driver that holds the lock does so."""
        self.header = self.header | entries
        self._group.attrs[_KEY] = self.header

    def same(self) -> bool:
        """Whether this is still the store that was opened, and not another one in its place."""
        with contextlib.suppress(OSError, ValueError, LookupError):
            text = json.loads((self.path / "zarr.json").read_text("utf-8"))
            return bool(text["attributes"][_KEY]["token"] == self.header["token"])
        return False

    def where(self, block: int) -> slice:
        """The runs of a block."""
        return slice(block * self.block, min((block + 1) * self.block, self.runs))

    def axes(self, here: slice) -> dict[str, np.ndarray]:
        """The values of the axes of some runs."""
        return {name: np.asarray(self._arrays[name][here]) for name in self.header["axes"]}

    # --- blocks ---------------------------------------------------------------------------------

    def write(self, block: int, values: dict[str, np.ndarray], state: int, kind: int, seconds: float) -> int:
        """Write a block, its record last. Returns the bytes of its numbers."""
        if not self.same():
            raise NotSameSweep(f"{self.path} was removed or replaced while block {block} was computed")
        here = self.where(block)
        nanoseconds = int(1e9 * seconds)
        try:
            self.discard(block)
            for name in self.variables:
                self._arrays[name][here] = values[name]
            checksum = self._checksum(values, (state, kind, nanoseconds))
            fields = np.array([state, checksum, kind, nanoseconds], dtype=np.uint64)
            self._arrays[_RECORD][block] = fields
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreNotWritable(
                f"block {block} cannot be written to {self.path}: {reason}. Make room and call the sweep "
                "again with the same store: only what is missing is computed"
            ) from error
        return sum(x.nbytes for x in values.values())

    def discard(self, block: int) -> None:
        """Remove a block, its record first. Its files may be damaged, so they are not read."""
        for name in (_RECORD, *self.variables):
            width = 1 if name == _RECORD else len(self.variables[name].shape)
            place = self.path.joinpath(name, "c", str(block), *["0"] * width)
            place.unlink(missing_ok=True)

    def read(self, block: int) -> dict[str, np.ndarray]:
        """The values of a block."""
        here = self.where(block)
        return {name: np.asarray(self._arrays[name][here]) for name in self.variables}

    def record(self, block: int) -> dict[str, int]:
        """The record of a block; its state is MISSING if it has none, or a damaged one."""
        data = b""
        with contextlib.suppress(OSError):
            data = self.path.joinpath(_RECORD, "c", str(block), "0").read_bytes()
        fields = np.frombuffer(data, dtype="<u8") if len(data) == 8 * len(_FIELDS) else np.zeros(4, np.uint64)
        found = dict(zip(_FIELDS, fields.tolist(), strict=True))
        return found if found["state"] in (DONE, GIVEN_UP) else dict.fromkeys(_FIELDS, 0)

    def sound(self, block: int) -> bool:
        """Whether a block with a record is as it was written."""
        record = self.record(block)
        try:
            values = self.read(block)
        except Exception:  # whatever the decoder of a damaged file raises
            return False
        rest = record["state"], record["kind"], record["nanoseconds"]
        return self._checksum(values, rest) == record["checksum"]

    def _checksum(self, values: dict[str, np.ndarray], rest: tuple[int, ...]) -> int:
        digest = hashlib.blake2b(repr(rest).encode(), digest_size=8)
        for name, variable in self.variables.items():
            array = np.ascontiguousarray(values[name], dtype=variable.dtype)
            if name == "message" and not array.any():  # as in most blocks
                continue
            digest.update(name.encode() + repr(array.shape).encode())
            digest.update(array.data.cast("B") if array.size else b"")
        return int.from_bytes(digest.digest(), "little")

    def tidy(self) -> None:
        """Remove files that a killed process has not finished."""
        for name in (*self.variables, _RECORD, "."):
            for left in (self.path / name).glob("**/*.partial" if name != "." else "*.partial"):
                left.unlink(missing_ok=True)


def create(path: Path, header: dict[str, Any], variables: dict[str, Variable], axes: Axes) -> None:
    """Write the template of a store: everything but the results."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    listed = {name: [list(v.dims), list(v.shape), v.dtype] for name, v in variables.items()}
    about = header | {
        "format": FORMAT,
        "token": secrets.token_hex(16),
        "variables": listed,
        "axes": list(axes.names),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _fill(aside, about, variables, axes)
        os.rename(aside, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreNotWritable(f"the store {path} cannot be created: {reason}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _fill(path: Path, header: dict[str, Any], variables: dict[str, Variable], axes: Axes) -> None:
    runs, block = header["runs"], header["block"]
    group = zarr().create_group(str(path), zarr_format=3)
    group.attrs[_KEY] = header
    plain: dict[str, Any] = {"compressors": None, "filters": None}
    wide = block * max(1, min(_COORDINATES, runs) // block)
    coordinates = {}
    for name, shape in axes.widths().items():
        dims = ("run", *(f"{name}_{i}" for i in range(len(shape))))
        coordinates[name] = group.create_array(
            name,
            shape=(runs, *shape),
            chunks=(wide, *shape),
            dtype="float64",
            dimension_names=dims,
            fill_value=float("nan"),
            **plain,
        )
    _write_coordinates(coordinates, axes, wide)
    for name, v in variables.items():
        fill = NOT_RUN if name == "status" else v.fill
        group.create_array(
            name,
            shape=(runs, *v.shape),
            chunks=(block, *v.shape),
            dtype=v.dtype,
            fill_value=fill,
            dimension_names=("run", *v.dims),
            compressors="auto" if name == "message" else None,
            filters=None,
        )
    blocks = -(-runs // block)
    shape = (blocks, len(_FIELDS))
    group.create_array(
        _RECORD,
        shape=shape,
        chunks=(1, shape[1]),
        dtype="<u8",
        fill_value=0,
        dimension_names=("block", "field"),
        **plain,
    )
    times = header.get("times")
    if times is not None:
        array = group.create_array(
            "time", shape=(len(times),), dtype="float64", dimension_names=("time",), **plain
        )
        array[:] = np.asarray(times)


def _write_coordinates(arrays: dict[str, Any], axes: Axes, size: int) -> None:
    """Write the values of the axes, some chunks at a time."""
    waiting: list[dict[str, np.ndarray]] = []
    first = ready = 0

    def put(most: int | None) -> None:
        nonlocal waiting, first, ready
        joined = {name: np.concatenate([part[name] for part in waiting]) for name in arrays}
        end = ready if most is None else most
        for name, array in arrays.items():
            array[first : first + end] = joined[name][:end]
        waiting = [{name: x[end:] for name, x in joined.items()}]
        first, ready = first + end, ready - end

    for part in axes.parts():
        waiting.append(part)
        ready += len(next(iter(part.values())))
        if ready >= size:
            put(ready // size * size)
    if ready:
        put(None)


def stamp() -> str:
    """The present time, for people who read the header."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

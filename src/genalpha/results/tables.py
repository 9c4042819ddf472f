"""Solutions as tables of pandas, datasets of xarray, and files of other programs."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha._version import __version__
from genalpha.engine.files import replace
from genalpha.results import files, named

if TYPE_CHECKING:
    from genalpha.results.solution import Solution

_DIMS = {
    "q": "coordinate",
    "v": "velocity",
    "a": "velocity",
    "lam": "constraint",
    "psi": "velocity_constraint",
}
_LONG = {
    "q": "coordinates",
    "v": "velocities",
    "a": "accelerations",
    "lam": "multipliers of holonomic constraints",
    "psi": "multipliers of nonholonomic constraints",
}
# Suffixes of files that people expect to be something else than .npz.
_REFUSED = (".h5", ".hdf5", ".json", ".mat", ".pkl", ".pickle", ".txt", ".tsv", ".xlsx", ".feather")


def needed(library: str, what: str) -> Any:
    """An optional library."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise ImportError(
            f"{what} needs {library}, which is not installed: pip install genalpha[tables]"
        ) from error


def about(sol: Solution) -> dict[str, Any]:
    """Metadata, as text and numbers that every file format can hold."""
    found: dict[str, Any] = {
        "genalpha": __version__,
        "method": sol.method,
        "backend": sol.backend,
        "message": sol.message,
    }
    if np.ndim(sol.status):
        return found | {"members": len(sol)}
    found |= {"status": int(sol.status), "t_end": float(sol.t_end), "steps": int(sol.stats.steps)}
    return found | {name: float(value) for name, value in sol.parameters.items()}


# --- tables ---------------------------------------------------------------------------------------------


def columns(sol: Solution, wanted: Sequence[str] = ()) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The columns of a table by key, each of length K, and their units.

    A batch has the rows of all members one below the other, without rows that have no time.
    """
    chosen = named.chosen(sol, wanted or named.kept(sol))
    found: dict[str, Any] = {"t": np.asarray(sol.t)} | {one.key: np.asarray(one.values) for one in chosen}
    units = {"t": sol.labels.time} | {one.key: one.unit for one in chosen}
    if np.ndim(sol.status):
        rows = np.isfinite(found["t"])
        wide = lambda x: np.broadcast_to(np.asarray(x)[:, None], rows.shape)
        head = {"member": wide(np.arange(len(rows))), "t": found["t"]}
        head |= {name: wide(x) for name, x in sol.parameters.items()}
        found = {name: x[rows] for name, x in (head | found).items()}
    return found, {key: unit for key, unit in units.items() if unit}


def to_pandas(sol: Solution, wanted: Sequence[str]) -> Any:
    """The table of :func:`columns`. Its index is t, in a batch (member, t)."""
    pandas = needed("pandas", "sol.to_pandas()")
    found, units = columns(sol, wanted)
    table = pandas.DataFrame(found).set_index(["member", "t"] if np.ndim(sol.status) else "t")
    table.attrs = about(sol) | {"units": units}
    return table


def _csv(sol: Solution, path: str) -> None:
    found, _ = columns(sol)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(found)
    writer.writerows(zip(*(x.tolist() for x in found.values()), strict=True))  # floats as Python's repr
    replace(path, lambda file: file.write(text.getvalue().encode()))


def _parquet(sol: Solution, path: str) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    found, units = columns(sol)
    arrays = {name: arrow.array(x) for name, x in found.items()}
    fields = [
        arrow.field(name, x.type, metadata={"units": units[name]} if name in units else None)
        for name, x in arrays.items()
    ]
    schema = arrow.schema(fields, metadata={"genalpha": json.dumps(about(sol) | {"units": units})})
    table = arrow.table(list(arrays.values()), schema=schema)
    replace(path, lambda file: parquet.write_table(table, file))


# --- datasets -------------------------------------------------------------------------------------------


def to_xarray(sol: Solution) -> Any:
    """The quantities that were kept, with named axes."""
    xarray = needed("xarray", "sol.to_xarray()")
    batch = bool(np.ndim(sol.status))
    front: tuple[str, ...] = ("member", "time") if batch else ("time",)
    data: dict[str, Any] = {}
    coords = _times(sol, batch)
    for kind in named.kept(sol):
        dim, names, units = _dim(sol, kind), named.entries(sol, kind), named.units(sol, kind)
        attrs = {"long_name": _LONG[kind]}
        if len(set(units)) == 1 and units[0]:
            attrs["units"] = units[0]
        elif any(units):
            coords[f"{kind}_units"] = dim, np.array(units, dtype=str)
        coords.setdefault(dim, (dim, np.array(names, dtype=str)))
        data[kind] = (*front, dim), np.asarray(getattr(sol, kind)), attrs
    if sol.residuals is not None:
        for name in named.residuals(sol):
            told = {"long_name": f"largest residual of constraints, {name}"}
            data[f"residual_{name}"] = front, np.asarray(getattr(sol.residuals, name)), told
    if batch:
        for name in ("status", "t_end"):
            data[name] = "member", np.asarray(getattr(sol, name))
    return xarray.Dataset(data, coords, about(sol))


def _times(sol: Solution, batch: bool) -> dict[str, Any]:
    """The coordinates of time and members. Times that differ between members are an array ``t``."""
    t, attrs = np.asarray(sol.t), {"units": sol.labels.time} if sol.labels.time else {}
    if not batch:
        return {"time": ("time", t, attrs)}
    found: dict[str, Any] = {"member": np.arange(len(t))}
    found |= {name: ("member", np.asarray(x)) for name, x in sol.parameters.items()}
    if (t == t[:1]).all():
        return found | {"time": ("time", t[0], attrs)}
    return found | {"t": (("member", "time"), t, attrs)}


def _dim(sol: Solution, kind: str) -> str:
    """The name of the last axis of a quantity. Accelerations have another one if other entries were kept."""
    same = kind != "a" or sol.v is None or list(named.places(sol, "a")) == list(named.places(sol, "v"))
    return _DIMS[kind] if same else "acceleration"


def _netcdf(sol: Solution, path: str) -> None:
    dataset = to_xarray(sol)
    with tempfile.TemporaryDirectory() as folder:  # libraries write to names only
        part = Path(folder) / "part.nc"
        dataset.to_netcdf(part)
        replace(path, lambda file: file.write(part.read_bytes()))


def _zarr(sol: Solution, path: str) -> None:
    to_xarray(sol).to_zarr(path, mode="w", zarr_format=2)  # format 3 has no fixed text yet


# --- files ----------------------------------------------------------------------------------------------

_WRITERS: dict[str, Callable[[Solution, str], None]] = {
    ".nc": _netcdf,
    ".zarr": _zarr,
    ".csv": _csv,
    ".parquet": _parquet,
}
_NEEDED = {".nc": ("xarray",), ".zarr": ("xarray", "zarr"), ".parquet": ("pyarrow",)}


def check(path: str | os.PathLike[str]) -> str:
    """The suffix of a file, in small letters. Raises if a solution cannot be written to such a file."""
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix in _REFUSED:
        raise ValueError(f"a solution cannot be written as {suffix}: choose .npz, {', '.join(_WRITERS)}")
    for library in _NEEDED.get(suffix, ()):
        needed(library, f"a {suffix} file")
    return suffix


def save(sol: Solution, path: str | os.PathLike[str]) -> None:
    """Write a file whose suffix says in which form."""
    _WRITERS.get(check(path), files.save)(sol, os.path.expanduser(os.fspath(path)))

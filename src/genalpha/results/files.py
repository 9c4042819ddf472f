"""Files of solutions and states: plain arrays and a text header. Reading them runs no code."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import fields
from typing import Any

import numpy as np

from genalpha.engine import files
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Errors
from genalpha.engine.run_data import RunState, sound
from genalpha.mechanics.labels import Labels
from genalpha.mechanics.spaces import named
from genalpha.results.global_errors import GlobalErrors
from genalpha.results.records import COUNTS, NewtonHistory, Reactions, Residuals, Stats
from genalpha.results.solution import META, Solution

# Files for other programs, by suffix, and what reads them.
READERS = {
    ".nc": "xarray.open_dataset",
    ".zarr": "xarray.open_zarr",
    ".csv": "pandas.read_csv",
    ".parquet": "pandas.read_parquet",
}
_FORMAT = 8
_READ = (2, 3, 4, 5, 6, 7, _FORMAT)


def save(sol: Solution, path: str | os.PathLike[str]) -> None:
    """Write a solution. Its arrays are called ``q``, ``residuals.position`` and so on."""
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in parts(sol).items()}
    header: dict[str, Any] = {"genalpha": _FORMAT, "fallback": sol.stats.fallback}
    header |= {name: getattr(sol, name) for name in META}
    header["labels"] = sol.labels._asdict()
    header["space"] = None if sol.space is None else repr(sol.space)
    arrays["header"] = np.array(json.dumps(header))
    files.put(os.path.expanduser(os.fspath(path)), arrays)


def parts(sol: Solution) -> dict[str, Any]:
    """All arrays of a solution, by names such as ``q`` and ``residuals.position``."""
    found: dict[str, Any] = {}
    for spec in fields(sol):
        value = getattr(sol, spec.name) if spec.name != "nodes" else sol._nodes_for_a_file()
        if spec.name in META or value is None:
            continue
        if isinstance(value, Stats):
            found |= {f"{spec.name}.{key}": getattr(value, key) for key in COUNTS}
        elif isinstance(value, tuple):
            found |= {f"{spec.name}.{key}": part for key, part in value._asdict().items()}  # type: ignore[attr-defined]
        elif isinstance(value, list):
            found |= {f"{spec.name}.{i}": part for i, part in enumerate(value)}
        elif isinstance(value, dict):
            found |= {f"{spec.name}.{key}": part for key, part in value.items()}
        else:
            found[spec.name] = value
    return found


def load(path: str | os.PathLike[str]) -> Solution:
    """Read a solution that ``Solution.save`` wrote. The file holds data only: reading it runs no code.

    >>> import tempfile, jax.numpy as jnp, genalpha as ga
    >>> fall = ga.System(mass=jnp.eye(1), force=lambda t, q, v: jnp.array([-9.81]))
    >>> sol = ga.solve(fall, (0.0, 1.0), [0.0], [0.0], h=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sol.save(f"{folder}/fall.npz")
    ...     again = ga.load(f"{folder}/fall.npz")
    >>> bool((again.q == sol.q).all()), again.stats == sol.stats
    (True, True)
    """
    path = os.path.expanduser(os.fspath(path))
    header, parts = _opened(path)
    try:
        return _solution(header, parts)
    except files.ODD as error:
        raise ValueError(f"{path} is damaged: {error}. Save the solution again") from error


def load_state(path: str | os.PathLike[str]) -> RunState:
    """Read a state that ``sol.state.save`` wrote, to continue a run from it.

    The file holds data only: reading it runs no code.

    >>> import tempfile, jax.numpy as jnp, genalpha as ga
    >>> fall = ga.System(mass=jnp.eye(1), force=lambda t, q, v: jnp.array([-10.0]))
    >>> sol = ga.solve(fall, (0.0, 1.0), [0.0], [0.0], h=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sol.state.save(f"{folder}/fall.npz")
    ...     state = ga.load_state(f"{folder}/fall.npz")
    >>> state
    <RunState by soi2 at t = 1>
    >>> ga.solve(fall, (1.0, 2.0), state=state, h=0.1).q[-1].round(9).tolist()
    [-20.0]
    """
    path = os.path.expanduser(os.fspath(path))
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path}: pass a file that sol.state.save wrote")
    found = files.read(path, "state", "pass a file that sol.state.save wrote")
    if not files.passes(found, RunState, sound):
        raise ValueError(f"{path} is damaged: it holds no state. Pass a file that sol.state.save wrote")
    return found


def _opened(path: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header of a solution's file, and its arrays by name."""
    foreign = f"{path} was not written by genalpha's Solution.save"
    reader = READERS.get(os.path.splitext(path)[1].lower())
    if reader is not None and os.path.exists(path) and not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is a file of tables or datasets, which ga.load does not read: use {reader}")
    with open(path, "rb") as file:
        if file.read(2) != b"PK":
            raise ValueError(f"{foreign}: pass a file that it wrote")
        try:
            parts = files.members(file)
        except files.ODD as error:
            raise ValueError(f"{path} is damaged: {error}. Save the solution again") from error
    text = parts.pop("header", None)
    if text is not None and text.dtype == np.uint8:
        raise ValueError(f"{foreign}: it is a state or a checkpoint. Read a state with ga.load_state")
    try:
        header = json.loads(str(text))
        version = header["genalpha"]
    except files.ODD as error:
        raise ValueError(f"{foreign}: pass a file that it wrote") from error
    if version not in _READ:
        newer = isinstance(version, int) and version > _FORMAT
        raise ValueError(
            f"{path} has format {version}, this version of genalpha reads {_READ[0]} to {_FORMAT}: "
            + ("update genalpha" if newer else "save the solution again")
        )
    return header, parts


def _solution(header: dict[str, Any], parts: dict[str, np.ndarray]) -> Solution:
    def group(kind: Any, prefix: str) -> Any:
        found = {key: parts.pop(f"{prefix}.{key}", None) for key in kind._fields}
        return kind(**found) if any(x is not None for x in found.values()) else None

    residuals, reactions = group(Residuals, "residuals"), group(Reactions, "reactions")
    number = lambda x: x if x.ndim else x.item()  # a batch has an array of each
    none = np.zeros_like(parts["stats.steps"])  # older files do not count all
    counts = {key: number(parts.pop(f"stats.{key}", none)) for key in COUNTS}
    stats, newton = Stats(**counts, fallback=header.get("fallback")), group(NewtonHistory, "newton")
    by_name = lambda name: {
        key.removeprefix(name): parts.pop(key) for key in list(parts) if key.startswith(name)
    }
    extra, parameters = by_name("extra."), by_name("parameters.")
    arrays: dict[str, Any] = {name: parts.get(name) for name in ("t", "q", "v", "a", "a_alpha", "t_alpha")}
    for name in ("lam", "psi"):  # older files hold the method's own
        arrays |= {name: parts.get(name), f"{name}_method": parts.get(f"{name}_method", parts.get(name))}
    status = number(parts.pop("status"))
    end = parts["t"][..., -1] if parts["t"].size else np.array(np.nan)  # in older files
    errors, nodes = group(Errors, "errors"), group(StepEnd, "nodes")
    told: dict[str, Any] = {}
    for name in ("t", "q", "v", "lam", "psi"):
        keys = [key for key in parts if key.startswith(f"{name}_events.")]
        rows = [parts.pop(key) for key in sorted(keys, key=lambda key: int(key.rpartition(".")[2]))]
        told[f"{name}_events"] = rows or None
    return Solution(
        **arrays,
        **told,
        residuals=residuals,
        reactions=reactions,
        stats=stats,
        newton=newton,
        status=status,
        t_end=number(parts.pop("t_end", end)),
        extra=extra,
        errors=errors,
        error=group(GlobalErrors, "error"),
        method=header["method"],
        rotations=tuple(header["rotations"]),
        backend=header.get("backend", "xla"),
        detail=header.get("detail", ""),
        not_unique=tuple(header.get("not_unique", ())),
        nodes=nodes,
        space=named(header.get("space")),
        complete=header.get("complete", False),
        labels=_labels(header.get("labels", {})),
        entries=tuple((str(name), tuple(map(int, at))) for name, at in header.get("entries", ())),
        parameters={name: x if x.ndim else x.item() for name, x in parameters.items()},
    )


def _labels(found: dict[str, Any]) -> Labels:
    """Names and units in a header."""
    text: Any = lambda value: value if isinstance(value, str) else tuple(map(str, value))
    return Labels(**{name: text(found[name]) for name in Labels._fields if name in found})

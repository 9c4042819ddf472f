"""A study in a TOML file: the model, what varies, and where results go. Nothing in the file is executed."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genalpha.cli import Refused
from genalpha.cli.models import MECHANISMS
from genalpha.errors import unknown
from genalpha.sweep.axes import Design, Samples
from genalpha.sweep.job import OPTIONS, QUANTITIES

_DESIGNS = Design.__args__  # type: ignore[attr-defined]
_DISTRIBUTIONS = {"uniform": ("low", "high"), "normal": ("mean", "std"), "loguniform": ("low", "high")}
_WORDS = ("method", "initial", "backend")
_NUMBERS = tuple(name for name in OPTIONS if name not in (*_WORDS, "newton", "breakpoints"))
Check = Callable[[Any, str], Any]


class SweepStudy(NamedTuple):
    """The contents of a file. ``options`` are for ``ga.sweep``."""

    model: str
    t_end: float | None
    over: Any
    store: Path
    scheduler: str | None
    options: dict[str, Any]


def read(path: Path) -> SweepStudy:
    """The study in a file. An error names the entry that is wrong."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{path} is not TOML: {error}") from error
    try:
        return _study(found, path.parent)
    except Refused as refusal:
        raise Refused(f"{path}: {refusal}") from refusal


def _study(found: dict[str, Any], folder: Path) -> SweepStudy:
    known = {"model": _model, "run": _run, "output": _output, "work": _work}
    varied = {"axes": _axes, "sampler": _sampler, "table": _table(folder)}
    for name in found:
        if name not in known | varied:
            raise Refused(str(unknown("table", name, [*known, *varied])))
    chosen = [name for name in varied if name in found]
    if len(chosen) != 1:
        raise Refused(
            f"one of {', '.join(varied)} must say what varies, got {' and '.join(chosen) or 'none'}"
        )
    for name in ("model", "output"):
        if name not in found:
            raise Refused(f"{name} is missing")
    model, output = _model(found["model"], "model"), _output(found["output"], "output")
    run, work = _run(found.get("run", {}), "run"), _work(found.get("work", {}), "work")
    name = model["name"]
    if ".py" in name or Path(name).suffix.lower() in MECHANISMS:  # an absolute path stays as it is
        name = str(folder / name)
    store = folder / output.pop("store")
    end, scheduler = run.pop("t_end", None), work.pop("scheduler", None)
    over = varied[chosen[0]](found[chosen[0]], chosen[0])
    return SweepStudy(name, end, over, store, scheduler, run | output | work)


# --- checks of values, which get the value and its path ------------------------------------------


def _number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refused(f"{path} must be a finite number, got {value!r}")
    return float(value)


def _whole(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(f"{path} must be a whole number, got {value!r}")
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise Refused(f"{path} must be a text, got {value!r}")
    return value


def _one_of(*known: str) -> Check:
    def check(value: Any, path: str) -> str:
        if value not in known:
            raise Refused(f"{path}: {unknown('value', str(value), known)}")
        return str(value)

    return check


def _names(value: Any, path: str) -> list[str]:
    if not isinstance(value, list):
        raise Refused(f"{path} must be a list, got {value!r}")
    return [_one_of(*QUANTITIES)(one, f"{path}[{i}]") for i, one in enumerate(value)]


def _numbers(value: Any, path: str) -> np.ndarray:
    """A list of numbers, or a dict with from, to and count."""
    if isinstance(value, dict):
        ends = _entries(value, path, {"from": _number, "to": _number, "count": _whole}, needed=3)
        if ends["count"] < 1:
            raise Refused(f"{path}.count must be above zero")
        return np.linspace(ends["from"], ends["to"], ends["count"])
    if not isinstance(value, list) or not value:
        raise Refused(f"{path} must be a list of numbers, or have from, to and count, got {value!r}")
    if isinstance(value[0], list):
        rows = [_numbers(row, f"{path}[{i}]") for i, row in enumerate(value)]
        if len({len(row) for row in rows}) > 1:
            raise Refused(f"{path} has rows of different lengths")
        return np.stack(rows)
    return np.array([_number(one, f"{path}[{i}]") for i, one in enumerate(value)])


def _entries(value: Any, path: str, checks: dict[str, Check], needed: int = 0) -> dict[str, Any]:
    """The checked entries of a table. The first ``needed`` ones must be there."""
    if not isinstance(value, dict):
        raise Refused(f"{path} must be a table, got {value!r}")
    for name in value:
        if name not in checks:
            raise Refused(f"{path}: {unknown('entry', name, checks)}")
    for name in [*checks][:needed]:
        if name not in value:
            raise Refused(f"{path}.{name} is missing")
    return {name: checks[name](one, f"{path}.{name}") for name, one in value.items()}


# --- tables ---------------------------------------------------------------------------------------


def _model(value: Any, path: str) -> dict[str, Any]:
    return _entries(value, path, {"name": _text}, needed=1)


def _run(value: Any, path: str) -> dict[str, Any]:
    checks: dict[str, Check] = dict.fromkeys((*_NUMBERS, "t_end"), _number)
    checks |= dict.fromkeys(_WORDS, _text) | {"max_steps": _whole, "breakpoints": _numbers}
    return _entries(value, path, checks)


def _output(value: Any, path: str) -> dict[str, Any]:
    checks: dict[str, Check] = {"store": _text, "save": _names, "t_eval": _numbers}
    return _entries(value, path, checks, needed=1)


def _work(value: Any, path: str) -> dict[str, Any]:
    checks: dict[str, Check] = {"scheduler": _text}
    checks |= dict.fromkeys(("deadline", "memory", "worker_timeout"), _number)
    checks |= dict.fromkeys(("block", "threads", "retries"), _whole)
    return _entries(value, path, checks | {"other_kinds": _one_of("refuse", "mark")})


def _axes(value: Any, path: str) -> Any:
    if not isinstance(value, dict) or not value:
        raise Refused(f"{path} must be a table of axes, got {value!r}")
    return {name: _numbers(one, f"{path}.{name!r}") for name, one in value.items()}


def _sampler(value: Any, path: str) -> Samples:
    checks: dict[str, Check] = {"count": _whole, "axes": _distributions}
    checks |= {"design": _one_of(*_DESIGNS), "seed": _whole}
    found = _entries(value, path, checks, needed=2)
    if not found["count"]:
        raise Refused(f"{path}.count must be above zero")
    return Samples(found.pop("axes"), **found)


def _distributions(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise Refused(f"{path} must be a table of axes, got {value!r}")
    return {name: _distribution(one, f"{path}.{name!r}") for name, one in value.items()}


def _distribution(value: Any, path: str) -> Any:
    from scipy import stats

    kind = value.get("distribution") if isinstance(value, dict) else None
    if kind not in _DISTRIBUTIONS:
        raise Refused(f"{path}.distribution: {unknown('value', str(kind), _DISTRIBUTIONS)}")
    rest = {name: one for name, one in value.items() if name != "distribution"}
    names = _DISTRIBUTIONS[kind]
    found = _entries(rest, path, dict.fromkeys(names, _number), needed=len(names))
    a, b = (found[name] for name in names)
    if kind == "normal":
        if b <= 0:
            raise Refused(f"{path}.std must be above zero")
        return stats.norm(a, b)
    if not a < b or (kind == "loguniform" and a <= 0):
        raise Refused(f"{path}.low must be below high" + (" and above zero" if kind == "loguniform" else ""))
    return stats.uniform(a, b - a) if kind == "uniform" else stats.loguniform(a, b)


def _table(folder: Path) -> Check:
    def check(value: Any, path: str) -> Any:
        import pandas

        file = folder / _entries(value, path, {"file": _text}, needed=1)["file"]
        try:
            return pandas.read_csv(file)
        except (OSError, ValueError) as error:
            raise Refused(f"{path}.file: cannot read {file}: {error}") from error

    return check

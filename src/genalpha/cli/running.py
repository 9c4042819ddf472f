"""``genalpha run``: solves a problem and prints a summary."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

import genalpha as ga
from genalpha.cli import Refused, models
from genalpha.cli.text import WIDTH, as_json, table, vector
from genalpha.engine.step_choice import ATOL_PER_RTOL, DEFAULT_RTOL
from genalpha.errors import unknown
from genalpha.numerics.newton import Policy
from genalpha.results import tables
from genalpha.results.files import READERS
from genalpha.run.request import DEFAULT_RHO_INF, Backend, Initial

_LABELS = 19  # width of the labels in the summary
_SETTINGS = ("rho_inf", "h", "rtol", "atol", "accuracy")
_GIVEN = ("method", "rho_inf", "backend", "h", "rtol", "atol", "accuracy", "initial")
_OF_CONTROL = ("rtol", "atol", "first_step", "max_step", "min_step", "max_steps")
_COMPONENTS = {"q": "q", "v": "v", "a": "a", "lam": "λ", "psi": "ψ"}


@dataclass(frozen=True)
class FinishedRun:
    """A run with its options, whether it reached the end or not."""

    model: models.NamedModel
    t_span: tuple[float, float]
    sol: ga.Solution
    seconds: float
    settings: dict[str, Any]


def run(options: argparse.Namespace) -> int:
    _check(options)
    # The output of a model must not get into the JSON.
    aside = contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext()
    with aside:
        model = models.find(options.problem)
        done = _solve(model, options)
        failures = _write(done, options)
        reference = _errors(done)
    files = {name: path for name, path in _files(options).items() if path not in failures}
    if options.json:
        print(as_json(_numbers(done, reference) | files))
    else:
        rows = [*_summary(done, reference), *((name, str(path)) for name, path in files.items() if path)]
        print(table(rows, least=_LABELS))
    for path, reason in failures.items():
        print(f"genalpha: cannot write {path}: {reason}", file=sys.stderr)
    if not done.sol.success:
        print(f"genalpha: {done.sol.message}", file=sys.stderr)
        return 1
    return 2 if failures else 0


def on_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


def _check(options: argparse.Namespace) -> None:
    """Check options whose errors would otherwise show only after the run."""
    if options.h is not None and (options.rtol is not None or options.atol is not None):
        raise Refused(
            "pass either --h or --rtol and --atol, not both: --h sets the steps, the others are for error "
            "control"
        )
    choices = (
        ("backend", "backend", Backend),
        ("initial", "value of --initial", Initial),
        ("newton", "value of --newton", Policy),
    )
    for name, kind, known in choices:
        value = getattr(options, name)
        if value is not None and value not in get_args(known):
            raise Refused(str(unknown(kind, value, get_args(known))))
    for name in ("save", "plot"):
        path: Path | None = getattr(options, name)
        if path is not None and not path.parent.is_dir():
            raise Refused(f"--{name} {path}: there is no folder {path.parent}. Create it first")
        if path is not None and path.is_dir():
            raise Refused(f"--{name} {path} is a folder: pass the name of a file")
    if options.save is not None:
        try:
            suffix = tables.check(options.save)
            endings = (".npz", *READERS)
            if suffix and suffix not in endings:
                raise ValueError(f"a solution cannot be written as {suffix}: choose {', '.join(endings)}")
        except (ImportError, ValueError) as error:
            raise Refused(f"--save {options.save}: {error}") from error
    if options.plot is not None:
        _check_plot(options.plot)


def _check_plot(path: Path) -> None:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Refused("--plot needs matplotlib: pip install genalpha[plot]") from error
    matplotlib.use("Agg")  # a model that draws must not open windows
    known = Figure().canvas.get_supported_filetypes()
    if path.suffix.lower().lstrip(".") not in known:
        raise Refused(
            f"--plot {path}: the ending of the name sets the format, such as {path.stem}.png. Known: "
            f"{', '.join(known)}"
        )


def _solve(model: models.NamedModel, options: argparse.Namespace) -> FinishedRun:
    t_span = model.t_span if options.t_end is None else (model.t_span[0], options.t_end)
    chosen = _chosen(model, options)
    begin = time.perf_counter()
    try:
        sol = ga.solve(
            model.system,
            t_span,
            model.q0,
            model.v0,
            args=model.args,
            progress=on_terminal(),
            throw=False,
            **chosen,
        )
    except Exception as error:
        reason = models.explain(error, model.file)
        if reason is None and not isinstance(error, ValueError | TypeError):
            raise  # a bug of the package, not of the model
        raise Refused(reason or models.in_one_line(error)) from error
    seconds = time.perf_counter() - begin
    rtol = chosen.get("rtol", DEFAULT_RTOL)
    defaults = {"rho_inf": DEFAULT_RHO_INF, "rtol": rtol, "atol": ATOL_PER_RTOL * rtol}
    settings = dict.fromkeys(_SETTINGS) | defaults | chosen
    if settings["h"] is not None or settings["accuracy"] is not None:
        settings |= {"rtol": None, "atol": None}
    return FinishedRun(model, t_span, sol, seconds, {name: settings[name] for name in _SETTINGS})


def _chosen(model: models.NamedModel, options: argparse.Namespace) -> dict[str, Any]:
    """The options for ``ga.solve``: those of the model, replaced by those of the command line."""
    given = {name: getattr(options, name) for name in _GIVEN if getattr(options, name) is not None}
    if options.newton is not None:
        given["newton"] = ga.Newton(options.newton)
    chosen = dict(model.options)
    if "h" in given or "accuracy" in given:
        own = ("accuracy",) if "h" in given else ("h",)
        chosen = {name: value for name, value in chosen.items() if name not in (*_OF_CONTROL, *own)}
    elif "rtol" in given or "atol" in given:
        chosen = {name: value for name, value in chosen.items() if name not in ("h", "accuracy")}
    if "rho_inf" in given and not isinstance(chosen.get("method", ""), str):
        chosen.pop("method")
    return chosen | given


def _files(options: argparse.Namespace) -> dict[str, str | None]:
    names = {"saved": options.save, "plot": options.plot}
    return {name: str(path) if path is not None else None for name, path in names.items()}


def _write(done: FinishedRun, options: argparse.Namespace) -> dict[str, str]:
    """Write the files of --save and --plot. Returns the reasons for files that could not be written."""
    labels = done.model.coordinates
    labels = labels if labels is not None and len(labels) == done.sol.q.shape[1] else None
    actions: list[tuple[Path | None, Callable[[Any], Any]]] = [
        (options.save, done.sol.save),
        (options.plot, lambda path: done.sol.plot(names=labels).savefig(path, dpi=110)),
    ]
    failures = {}
    for path, action in actions:
        try:
            if path is not None:
                action(path)
        except OSError as error:
            failures[str(path)] = error.strerror or str(error)
    return failures


def _errors(done: FinishedRun) -> dict[str, Any] | None:
    """2-norms of the errors at the last time, for the components that the reference has."""
    reference, sol = done.model.reference, done.sol
    if reference is None:
        return None
    found: dict[str, Any] = {"kind": str(getattr(reference, "kind", "reference of the model")), "errors": {}}
    try:
        true = reference(float(sol.t[-1]))
        for name in _COMPONENTS:
            last, value = getattr(sol, name)[-1], np.asarray(getattr(true, name, None))
            if last.size and value.shape == last.shape:
                found["errors"][name] = float(np.linalg.norm(last - value))
    except Exception as error:  # the results of the run must not be lost if the reference fails
        found["kind"] += f", which failed: {type(error).__name__}: {error}"
    return found


def _numbers(done: FinishedRun, reference: dict[str, Any] | None) -> dict[str, Any]:
    """Everything in the summary and the multipliers, for JSON."""
    sol, stats = done.sol, done.sol.stats
    counts = ("steps", "rejected", "newton_iterations", "jacobians", "fallback")
    return {
        "problem": done.model.name,
        "title": done.model.title,
        "method": sol.method,
        **done.settings,
        "backend": sol.backend,
        "success": bool(sol.success),
        "message": sol.message,
        "t_span": done.t_span,
        "t": sol.t[-1],
        **{name: getattr(stats, name) for name in counts},
        "seconds": done.seconds,
        "residuals": {name: np.max(values) for name, values in sol.residuals._asdict().items()},
        **{name: getattr(sol, name)[-1] for name in ("q", "v", "lam", "psi")},
        "estimated_error": sol.error and {name: getattr(sol.error, name)[-1] for name in ("q", "v")},
        "reference": reference,
    }


def _summary(done: FinishedRun, reference: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The rows of the summary: labels and texts."""
    sol, stats, model = done.sol, done.sol.stats, done.model
    rows = [
        ("problem", model.name + (f": {model.title}" if model.title else "")),
        ("method", sol.method + "".join(f", {k} = {x:g}" for k, x in _stated(done.settings).items())),
        ("result", sol.message.split(". ")[0]),  # the advice goes to stderr
        ("time span", f"{sol.t[0]:g} to {sol.t[-1]:g}" + ("" if sol.success else f" of {done.t_span[1]:g}")),
        ("steps", f"{stats.steps} ({stats.rejected} rejected){_step_sizes(done)}"),
        ("Newton iterations", f"{stats.newton_iterations}{_each(stats)}"),
        ("backend", sol.backend + (f"; not native: {stats.fallback}" if stats.fallback else "")),
        ("run time", f"{done.seconds:.2f} s with compilation"),
        ("largest residuals", _residuals(sol)),
    ]
    for name in ("q", "v"):
        rows.append((f"{name}({sol.t[-1]:.6g})", vector(getattr(sol, name)[-1], WIDTH - _LABELS - 2)))
    if sol.error is not None:
        found = [f"{_COMPONENTS[name]} {np.max(getattr(sol.error, name)):.1e}" for name in ("q", "v")]
        rows.append(("estimated error", f"{', '.join(found)} (largest, of all times)"))
    if reference is not None:
        errors = [f"{_COMPONENTS[name]} {error:.1e}" for name, error in reference["errors"].items()]
        rows.append(("error at the end", f"{', '.join(errors) or 'none'} (2-norm)"))
        rows.append(("reference", reference["kind"]))
    return rows


def _stated(settings: dict[str, Any]) -> dict[str, float]:
    """The settings that are numbers, without the step size, which is shown elsewhere."""
    return {name: x for name, x in settings.items() if name != "h" and isinstance(x, float | int)}


def _step_sizes(done: FinishedRun) -> str:
    if done.settings["h"] is not None:
        return f", h = {done.settings['h']:g}"
    sizes = np.diff(done.sol.t)
    return f", h from {sizes.min():.3g} to {sizes.max():.3g}" if sizes.size else ""


def _each(stats: Any) -> str:
    return f", {stats.newton_iterations / stats.steps:.2f} a step" if stats.steps else ""


def _residuals(sol: ga.Solution) -> str:
    names = ["position", "velocity"] if sol.lam.shape[1] else []
    names += ["nonholonomic"] if sol.psi.shape[1] else []
    shown = [f"{name} {np.max(getattr(sol.residuals, name)):.1e}" for name in names]
    return ", ".join(shown) or "no constraints"

"""``genalpha sweep``: runs the study in a TOML file."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import Any

import genalpha as ga
from genalpha.cli import Refused, models, study
from genalpha.cli.running import on_terminal
from genalpha.cli.text import as_json, table
from genalpha.sweep.driver import SweepFailed
from genalpha.sweep.job import OPTIONS
from genalpha.sweep.kinds import RefusedWorker
from genalpha.sweep.lock import StoreInUse
from genalpha.sweep.store import StoreNotWritable


def run(options: argparse.Namespace) -> int:
    asked = study.read(options.study)
    if asked.store.exists() and not options.resume:
        raise Refused(f"the store {asked.store} exists: pass --resume to go on with it, or delete it")
    aside = contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext()
    begin = time.perf_counter()
    with aside:
        model = models.find(asked.model)
        try:
            found = _swept(asked, model, options)
        except (StoreNotWritable, SweepFailed) as error:
            print(f"genalpha: {error}", file=sys.stderr)
            return 1
        except (StoreInUse, RefusedWorker, ImportError, ValueError, TypeError) as error:
            raise Refused(models.explain(error, model.file) or models.in_one_line(error)) from error
    numbers = _numbers(found, time.perf_counter() - begin)
    if options.json:
        print(as_json(numbers))
    else:
        print(table([(name.replace("_", " "), str(value)) for name, value in numbers.items()]))
    return 1 if numbers["failed"] or numbers["missing"] else 0


def _swept(asked: study.SweepStudy, model: models.NamedModel, options: argparse.Namespace) -> ga.Sweep:
    if model.file is not None:
        import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[f"_model_{model.file.stem}"])
    span = model.t_span if asked.t_end is None else (model.t_span[0], asked.t_end)
    own = {name: x for name, x in model.options.items() if name in (*OPTIONS, "events")}
    if any(name in asked.options for name in ("h", "rtol", "atol", "accuracy")):
        own = {name: x for name, x in own.items() if name not in ("h", "rtol", "atol", "accuracy")}
    more: dict[str, Any] = {"over": asked.over, "store": asked.store}
    more |= {"progress": on_terminal(), "verify": not options.no_verify} | own | asked.options
    with _client(options.scheduler or asked.scheduler) as client:
        if model.mechanism is not None:
            found: ga.Sweep = model.mechanism.sweep(span, executor=client, **more)
            return found
        return ga.sweep(model.system, span, model.q0, model.v0, args=model.args, executor=client, **more)


def _client(address: str | None) -> Any:
    """A client of the Dask scheduler with this address; None without one."""
    if address is None:
        return contextlib.nullcontext()
    try:
        from distributed import Client
    except ImportError as error:
        raise Refused("a scheduler needs Dask: pip install distributed") from error
    try:
        return Client(address, timeout="10s")
    except OSError as error:
        raise Refused(f"there is no Dask scheduler at {address}: {error}") from error


def _numbers(found: ga.Sweep, seconds: float) -> dict[str, Any]:
    tally = found.tally
    return {
        "store": str(found.store.path),
        **found.counts,
        "computed_now": tally.runs,
        "blocks_given_up": len(tally.given_up),
        "workers": len(tally.workers),
        "seconds": round(seconds, 3),
    }

"""What a sweep computes, as fingerprints that are the same in every process."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from genalpha.engine import describe
from genalpha.engine.describe import described
from genalpha.engine.run_data import fingerprint, identity
from genalpha.engine.setup import Setup
from genalpha.numerics.newton import Newton
from genalpha.run import arguments, request
from genalpha.sweep.axes import Axes
from genalpha.sweep.job import Job, Values


def fingerprints(job: Job, axes: Axes, first: Values) -> dict[str, str]:
    """Fingerprints of the parts of a sweep. ``first`` are the values of the axes of its first run."""
    inputs = job.placing.inputs(first)
    one = inputs.args_of(0)
    options = dict(job.options)
    events = options.pop("events", None)
    dims, _ = arguments.trace(job.system, job.t_span[0], inputs.q0[0], inputs.v0[0], one)
    listed, crossings = request.watched(job.system, events, dims, one)
    setup = Setup(job.system, None, Newton(), dims, crossings)  # type: ignore[arg-type]
    of_events = [(e.direction, e.terminal, function_text(e.reset), e.period) for e in listed]
    start = [np.zeros(0) if x is None else np.asarray(x, float) for x in (job.q0, job.v0)]
    return {
        "system": fingerprint(setup, one).hex(),
        "axes": _digest(axes.text()),
        "member": _digest(job.placing.traced(first)),
        "start": identity(job.t_span, start, job.args).hex(),
        "options": _digest(described(sorted((k, v) for k, v in options.items() if v is not None))),
        "events": _digest(described(of_events)),
        "output": _digest(described((job.save, job.most_events, function_text(job.observe)))),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def function_text(function: Any) -> str:
    """The code of a function that is not traced, with what it encloses if this can be read."""
    if function is None:
        return ""
    text = described(function)
    if describe.PROCESS in text:  # it encloses something that cannot be read
        text = described(getattr(function, "__code__", type(function)))
    return text

"""Kinds of workers. Workers of one kind compute the same bits."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import socket
from typing import Any

import jax
import numpy as np

from genalpha._version import __version__
from genalpha.compiler import machine


class RefusedWorker(RuntimeError):
    """A worker is of another kind than the store: its bits could differ."""


def here(backend: str) -> dict[str, str]:
    """The kind of this process for a backend of ``solve_batch``."""
    return {"backend": backend, **_machine(backend == "cuda")}


@functools.cache
def _machine(gpu: bool) -> dict[str, str]:
    target = machine.description()
    found = {
        "genalpha": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {machine.lanes()} lanes",
        "instructions": hashlib.sha256(target.encode()).hexdigest()[:12],
    }
    if gpu:
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        found["gpu"] = f"{properties['name'].decode()}, cupy {cupy.__version__}"
    return found


def number(kind: dict[str, str]) -> int:
    """A number that stands for a kind in the records of blocks."""
    text = repr(sorted(kind.items())).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")


def name() -> str:
    """The name of this worker: that of Dask if it has one, with host and process."""
    place = f"process {os.getpid()} on {socket.gethostname()}"
    worker = dask_worker()
    return place if worker is None else f"{worker.name} ({worker.address}, {place})"


def dask_worker() -> Any:
    """The Dask worker that runs this task; None if there is none."""
    import sys

    if "distributed" not in sys.modules:
        return None
    try:
        return sys.modules["distributed"].get_worker()
    except ValueError:
        return None


def check(wanted: dict[str, str], found: dict[str, str]) -> None:
    """Raise if a worker differs from the kind that is wanted."""
    differ = [key for key in {**wanted, **found} if wanted.get(key) != found.get(key)]
    if differ:
        listed = "; ".join(f"{key}: {found.get(key)} instead of {wanted.get(key)}" for key in sorted(differ))
        raise RefusedWorker(
            f"the worker {name()} is of another kind than the store ({listed}), so its last bits may differ. "
            "Use workers of one kind, or pass other_kinds='mark', which marks its blocks"
        )

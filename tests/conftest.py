"""Shared problems. All tests of a worker use the same System objects, so that programs compile once."""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

# All of this must be set before JAX starts. XLA compiles twice as fast with little optimization, in one piece
# and with its older emitters. Compiled programs are cached for the other worker and for the next run.
_KEPT = Path(__file__).resolve().parents[1] / ".pytest_cache" / "compiled"
_FLAGS = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_use_fusion_emitters=false",
)
os.environ |= {
    "XLA_FLAGS": " ".join([os.environ.get("XLA_FLAGS", ""), *_FLAGS]),
    "JAX_COMPILATION_CACHE_DIR": str(_KEPT / "xla"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "GENALPHA_CACHE": str(_KEPT / "native"),
}

import jax
import numpy as np
import pytest
import scipy.linalg  # noqa: F401 - threadpoolctl finds loaded libraries only
from threadpoolctl import threadpool_limits

import genalpha as ga
from genalpha.cli.main import main
from genalpha.compiler import tiers

tiers.IMPROVES = False  # results are the same, as tests/backends/test_tiers.py shows
threadpool_limits(1, user_api="blas")  # threads of all workers would wait for each other


@functools.cache
def problem(name: str, **parameters: float) -> ga.problems.Problem:
    found = ga.problems.get(name, **parameters)
    return (
        found
        if found.reference is None
        else dataclasses.replace(found, reference=Remembered(found.reference))
    )


class Remembered:
    """A reference that integrates to the same times only once."""

    def __init__(self, reference: Callable[[object], ga.State]) -> None:
        self.reference, self._known = reference, {}

    def __call__(self, t: object) -> ga.State:
        times = np.asarray(t, dtype=float)
        key = (times.shape, times.tobytes())
        if key not in self._known:
            self._known[key] = self.reference(t)
        return self._known[key]

    def __getattr__(self, name: str) -> object:
        return getattr(self.reference, name)


def run(name: str, *, t_end: float | None = None, **options: object) -> ga.Solution:
    """Solve a named problem, up to t_end."""
    return problem(name).solve(t_end=t_end, **options)


# Tracing makes many objects that live long. Frequent garbage collections would be a waste of time.
gc.set_threshold(5_000_000, 20, 100)

REPEATED = Path(__file__).with_name("repeated_cases.txt")

# Linux allows 65530 memory mappings per process. XLA crashes if its programs need more.
_MAPS, _MOST, _tests = Path("/proc/self/maps"), 30_000, itertools.count(1)


def pytest_runtest_teardown() -> None:
    """Clear XLA's programs from time to time: those of all tests do not fit into one process."""
    if next(_tests) % 16 == 0 and _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MOST:
        jax.clear_caches()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases that take long or repeat others, and pages that need libraries that may be missing."""
    repeated = tuple(line for line in REPEATED.read_text().splitlines() if line and line[0] != "#")
    missing = [name for name in ("pandas", "xarray", "pyarrow") if importlib.util.find_spec(name) is None]
    for item in items:
        if item.path.name == "fitting.md" or item.nodeid.startswith(repeated):
            item.add_marker(pytest.mark.slow)
        if item.path.name == "tables.md" and missing:
            item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(missing)}"))


def pytest_sessionfinish() -> None:
    """pytest looks for forgotten objects several times at the end: among those of programs there are none."""
    gc.freeze()


@pytest.fixture
def new_garbage() -> Iterator[None]:
    """``gc.collect()`` examines objects of this test alone. Those of all tests take it ten seconds."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20080712)


@pytest.fixture
def genalpha(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line in this process; returns its exit code, stdout and stderr."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def widest(text: str) -> int:
    """The length of the longest line."""
    return max(len(line) for line in text.splitlines())

"""Code that is not optimized yet, and optimized code: same bits, and the change between them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb
from genalpha.compiler import tiers


def hanging_chain(n: int) -> mb.Model:
    """Bars with hinges and balls in turn, and a spring at the end."""
    model = mb.Model(gravity=(0.0, 2.0, -9.81))
    last = model.ground
    for k in range(n):
        bar = model.add(mb.Body.bar(f"bar {k}", 1.0, (k, 0.0, 0.0), (k + 1.0, 0.0, 0.0), radius=0.2))
        joint = {"axis": (0.3, 1.0, 0.2)} if k % 2 else {}
        model.add((mb.Revolute if k % 2 else mb.Spherical)(f"joint {k}", last, bar, at=(k, 0, 0), **joint))
        last = bar
    model.add(mb.SpringDamper("spring", model.ground, last, 80.0, 2.0))
    return model


ASKED = {"rtol": 1e-4, "save": ["q", "v", "lam"]}


@pytest.mark.parametrize("method", ["soi2", pytest.param("index3", marks=pytest.mark.slow)])
def test_same_bits(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs before and after the change of code, and one in which it happens."""
    monkeypatch.setenv("GENALPHA_CACHE", "off")
    model = hanging_chain(8)
    model.system._programs.learning = False  # other pivots would change the last bits
    waiting = threading.Event()
    monkeypatch.setattr(tiers, "IMPROVES", True)
    monkeypatch.setattr(
        tiers.Improvement, "run", lambda self, run=tiers.Improvement.run: waiting.wait() and run(self)
    )
    before = model.solve((0.0, 0.2), method=method, **ASKED)
    found = _improvements(model)
    assert found
    assert not any(thread.parts for thread in found)
    waiting.set()
    ga.finish_compiling()
    assert all(thread.parts for thread in found)
    after = model.solve((0.0, 0.2), method=method, **ASKED)
    assert not any(thread.parts for thread in found), "the optimized code is not used"
    for name in ("t", "q", "v", "lam"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name


def _improvements(model) -> list[tiers.Improvement]:
    found = [made.code.library._better for made in model.system._programs.values() if hasattr(made, "code")]
    return [one for one in found if one is not None]


@pytest.mark.slow
def test_a_program_that_ends_while_code_is_optimized() -> None:
    """It ends without a word, and so does a process that it has forked."""
    text = """
import os, sys, threading
from test_tiers import hanging_chain
from genalpha.compiler import tiers
model = hanging_chain(8)
sol = model.solve((0.0, 0.05), h=0.01)
assert any(isinstance(thread, tiers.Improvement) for thread in threading.enumerate())
if os.fork() == 0:
    again = hanging_chain(9).solve((0.0, 0.05), h=0.01)
    os._exit(0 if again.success else 1)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
"""
    here = os.path.dirname(__file__)
    environment = os.environ | {"GENALPHA_CACHE": "off", "PYTHONWARNINGS": "ignore", "PYTHONPATH": here}
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr

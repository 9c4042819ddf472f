"""Kinds of parts of the library are kept on disk: other processes read them instead of tracing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from genalpha import multibody as mb
from genalpha.backends.sparse import shared_kinds
from genalpha.backends.sparse.kinds import Kind
from genalpha.compiler import kept, machine
from genalpha.compiler.rows import RowFunction
from genalpha.mechanics.parts import Element
from genalpha.multibody import assembling, groups

RUN: dict[str, Any] = {"t_span": (0.0, 0.1), "rtol": 1e-4, "save": ["q", "v", "lam"]}


def chain(count: int = 4, law: Any = None) -> mb.Model:
    """Bars in a row with hinges, a motor, and a spring, whose law may be the user's own."""
    model = mb.Model()
    last = model.ground
    for k in range(count):
        bar = model.add(mb.Body.bar(f"bar {k}", 1.0, (k, 0, 0), (k + 1, 0, 0), radius=0.1))
        hinge = model.add(mb.Revolute(f"hinge {k}", last, bar, at=(k, 0, 0), axis=(0, 1, 0)))
        last = bar
    model.add(mb.Motor("motor", hinge, effort=1.0))
    model.add(mb.SpringDamper("spring", model.ground.frame((0, 0, 1)), last, 50.0, 1.0, law=law))
    return model


def forget() -> None:
    """As in a new process: nothing is known but what is on disk."""
    for thread in threading.enumerate():
        if thread.name == kept.WRITER:
            thread.join()
    groups._functions.cache_clear()
    assembling._of_bodies.cache_clear()
    shared_kinds._nodes.clear()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is traced, in a new folder of the cache."""
    monkeypatch.setenv("GENALPHA_CACHE", str(tmp_path / "cache"))
    found: list[str] = []

    def counted(cls: Any, name: str, label: Any) -> None:
        original = getattr(cls, name)

        def wrapped(self: Any, *given: Any, **options: Any) -> Any:
            found.append(label(self, given))
            return original(self, *given, **options)

        monkeypatch.setattr(cls, name, wrapped)

    counted(Kind, "_trace", lambda self, given: f"kind {self.model.label}")
    counted(RowFunction, "__init__", lambda self, given: f"rows {given[0]}")
    counted(Element, "_sizes", lambda self, given: f"sizes {self.label}")
    forget()
    yield found
    forget()


def of_parts(made: list[str]) -> list[str]:
    """Those that belong to parts, not to nodes and events."""
    return [name for name in made if "_p" in name or not name.startswith("rows")]


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("t", "q", "v", "lam"))


def test_nothing_is_traced_again(made: list[str]) -> None:
    first = chain().solve(**RUN)
    assert len(of_parts(made)) > 10
    forget()
    made.clear()
    assert same(chain().solve(**RUN), first)
    assert not of_parts(made)


def test_what_is_missing_is_made_anew(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Other lanes have other code: expressions are needed again."""
    chain().solve(**RUN)
    forget()
    made.clear()
    monkeypatch.setattr(machine, "lanes_for", lambda copies: 1)
    found = chain().solve(**RUN)
    assert any(name.startswith("kind") for name in made)
    forget()
    monkeypatch.setenv("GENALPHA_CACHE", "off")
    assert same(found, chain().solve(**RUN))


def test_gradients_with_what_is_kept(made: list[str]) -> None:
    model = chain()
    end = lambda model: lambda k: model.solve((0.0, 0.05), values={"spring.stiffness": k}, h=0.01).q[-1, 2]
    expected = jax.grad(end(model))(50.0)
    model.solve(**RUN)
    forget()
    assert jax.grad(end(chain()))(50.0) == expected


def test_functions_of_the_user_are_not_kept(made: list[str]) -> None:
    for factor in (1.0, 2.0):
        forget()
        made.clear()
        chain(law=lambda length, rate, factor=factor: factor * length).solve(**RUN)
        assert any("spring" in name for name in made)
        assert any("SpringDamper" in name for name in made if name.startswith("kind"))


def test_classes_of_the_user_have_no_identity() -> None:
    class Mine(mb.SpringDamper):
        pass

    model = chain()
    ends = model.ground.frame((0, 0, 2)), model["bar 0"]
    assert model["spring"].identity
    assert not Mine("mine", *ends, 50.0).identity
    assert model["motor"].identity != mb.Motor("slide", _slider(model), effort=1.0).identity


def _slider(model: mb.Model) -> mb.Joint:
    return mb.Prismatic("slider", model["bar 0"], model["bar 1"], at=(1, 0, 0), axis=(0, 1, 0))


def test_other_versions_trace_for_themselves(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    chain().solve(**RUN)
    forget()
    made.clear()
    monkeypatch.setattr(kept, "_version", lambda: "another")
    chain().solve(**RUN)
    assert len(of_parts(made)) > 10


def test_damaged_files_are_not_used(made: list[str], tmp_path: Path) -> None:
    first = chain().solve(**RUN)
    forget()
    made.clear()
    for file in (tmp_path / "cache").iterdir():
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert same(chain().solve(**RUN), first)
    assert len(of_parts(made)) > 10


_PROCESS = """
import sys
sys.path.insert(0, {here!r})
from test_kept import RUN, chain
from genalpha.backends.sparse.kinds import Kind
traced, trace = [], Kind._trace
Kind._trace = lambda self: (traced.append(self), trace(self))
sol = chain().solve(**RUN)
print(len(traced), sol.q[-1].tolist(), sol.lam[-1].tolist())
"""


@pytest.mark.slow
def test_another_process(tmp_path: Path) -> None:
    run = lambda: subprocess.run(
        [sys.executable, "-c", _PROCESS.format(here=str(Path(__file__).parent))],
        env=os.environ | {"GENALPHA_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split(maxsplit=1)
    first, second = run(), run()
    assert (int(first[0]) > 3, int(second[0])) == (True, 0)
    assert first[1] == second[1]

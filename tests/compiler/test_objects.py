"""Modules that are compiled in parts."""

from __future__ import annotations

import ctypes

import pytest

from genalpha.compiler import machine, objects, tiers

TEXT = """\
@table = internal constant [2 x double] [double 3.0, double 0.5], align 64
declare double @llvm.sqrt.f64(double)
define internal double @inner(double %x) nounwind {
  %p = getelementptr double, ptr @table, i64 0
  %a = load double, ptr %p
  %y = fmul double %x, %a
  ret double %y
}
define internal double @root(
  double %x) nounwind {
  %r = call double @llvm.sqrt.f64(double %x)
  %y = call double @inner(double %r)
  ret double %y
}
define double @outer(double %x) nounwind {
  %r = call double @root(double %x)
  %y = call double @inner(double %r)
  ret double %y
}
"""


def test_parts_have_every_function_once() -> None:
    parts = objects.split(TEXT, 2)
    lines = [line for part in parts for line in part.splitlines() if line.startswith("define")]
    assert len(parts) == 2
    assert sorted(line[line.index("@") : line.index("(")] for line in lines) == ["@inner", "@outer", "@root"]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_call_each_other(count: int, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Also if the code comes from the cache."""
    monkeypatch.setenv("GENALPHA_CACHE", str(tmp_path))
    monkeypatch.setattr(objects, "MOST_PARTS", count)
    monkeypatch.setattr(objects, "LEAST_LINES", 1)
    for cached in (False, True):
        library = machine.Library(TEXT, ["outer"], scheduled=False)
        assert library.cached == cached
        outer = library.function("outer", ctypes.c_double, result=ctypes.c_double)
        assert outer(4.0) == 18.0


def test_an_error_in_a_part_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "LEAST_LINES", 1)
    library = machine.Library(TEXT.replace("@root(double", "@missing(double"), ["outer"])
    with pytest.raises(RuntimeError, match="missing"):
        library.function("outer", ctypes.c_double)


HALVES = (
    TEXT[: TEXT.index("define double @outer")].replace("internal double @", "double @"),
    (
        "declare double @inner(double)\ndeclare double @root(double)\n"
        + TEXT[TEXT.index("define double @outer") :]
    ),
)


def test_modules_call_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Each is compiled when its text is there, and kept in the cache alone."""
    monkeypatch.setenv("GENALPHA_CACHE", str(tmp_path))
    monkeypatch.setattr(tiers, "IMPROVES", True)
    taken, jobs = [], objects.jobs
    monkeypatch.setattr(objects, "jobs", lambda text, *rest: taken.append(text) or jobs(text, *rest))

    def texts():
        for k, text in enumerate(HALVES):
            assert len(taken) == k
            yield text

    library = machine.Library(texts(), ["outer"])
    assert not library.cached
    outer = library.function("outer", ctypes.c_double, result=ctypes.c_double)
    assert outer(4.0) == 18.0
    tiers.finish_compiling()  # only optimized code is kept
    taken.clear()
    library = machine.Library([HALVES[0], HALVES[1].replace("%y = call", "%y = tail call")], ["outer"])
    assert len(taken) == 1
    assert library.function("outer", ctypes.c_double, result=ctypes.c_double)(4.0) == 18.0
    tiers.finish_compiling()
    assert machine.Library(HALVES, ["outer"]).cached


def test_an_error_while_texts_are_written() -> None:
    def texts():
        yield HALVES[0]
        raise ValueError("no second half")

    with pytest.raises(ValueError, match="no second half"):
        machine.Library(texts(), ["outer"])

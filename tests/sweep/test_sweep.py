"""Sweeps on this machine: what is computed, what is kept, and what is computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from sweep_models import bits, pendulum, study

xarray = pytest.importorskip("xarray")
pytest.importorskip("zarr")


@pytest.fixture(scope="module")
def system() -> ga.System:
    return pendulum()


@pytest.fixture(scope="module")
def whole(system: ga.System, tmp_path_factory: pytest.TempPathFactory) -> ga.Sweep:
    return study(tmp_path_factory.mktemp("whole") / "whole.zarr", system=system)


def test_runs_are_those_of_solve(whole: ga.Sweep, system: ga.System) -> None:
    found = whole.open()
    for run in (0, 37, 99):
        length = float(found.length[run])
        one = ga.solve(system, (0.0, 0.5), [length, 0.0], [0.0, 0.0], h=1e-2, args=(length,))
        np.testing.assert_allclose(found.q[run], one.q[-1], rtol=1e-12)
        np.testing.assert_allclose(found.lam[run], one.lam[-1], rtol=1e-9)
        assert (found.status[run], found.t_end[run], found.steps[run]) == (0, 0.5, 50)
    assert whole.counts == {"runs": 100, "done": 100, "failed": 0, "missing": 0}
    assert repr(whole) == "<Sweep of 100 runs in whole.zarr: 100 done, 0 failed>"


def test_blocks_and_threads_change_no_bit(whole: ga.Sweep, system: ga.System, tmp_path: Path) -> None:
    for block, threads in ((1, 1), (33, 2), (100, None)):
        other = study(tmp_path / f"{block}.zarr", system=system, block=block, threads=threads)
        assert other.store.block != whole.store.block or block == 1
        assert bits(other) == bits(whole)


def test_only_what_is_missing_or_damaged_is_computed(
    whole: ga.Sweep, system: ga.System, tmp_path: Path
) -> None:
    found = study(tmp_path / "a.zarr", system=system)
    assert (found.tally.blocks, found.tally.runs) == (5, 100)
    found.store.discard(1)
    assert int((found.open().status == -100).sum()) == found.counts["missing"] == 21
    assert np.isnan(found.open().q[21:42]).all()
    damaged = found.store.path / "q" / "c" / "3" / "0"
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    (found.store.path / "v" / "c" / "4" / "0").write_bytes(b"short")  # the last chunk is not full
    (found.store.path / "v" / "c" / "4" / "0.abc.partial").write_bytes(b"killed while it was written")
    assert found.verify() == [3, 4]
    again = study(tmp_path / "a.zarr", system=system)
    assert again.tally.blocks == 3
    assert again.verify() == []
    assert not list(found.store.path.glob("**/*.partial"))
    assert bits(again) == bits(whole)
    assert study(tmp_path / "a.zarr", system=system).tally.blocks == 0


def test_a_damaged_record_counts_as_missing(whole: ga.Sweep, system: ga.System, tmp_path: Path) -> None:
    found = study(tmp_path / "a.zarr", system=system)
    (found.store.path / "record" / "c" / "0" / "0").write_bytes(b"x")
    record = found.store.path / "record" / "c" / "2" / "0"
    data = bytearray(record.read_bytes())
    data[9] ^= 4  # in the checksum
    record.write_bytes(data)
    again = study(tmp_path / "a.zarr", system=system)
    assert again.tally.blocks == 2
    assert bits(again) == bits(whole)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"h": 5e-3}, "options such as h"),
        ({"count": 99}, "the values of over"),
        ({"save": ["q"]}, "save, most_events or observe"),
        ({"observe": lambda sol: {"x": sol.q[:, -1, 0]}}, "save, most_events or observe"),
        (
            {
                "member": lambda length: {
                    "q0": jnp.array([0.0, length]),
                    "v0": jnp.zeros(2),
                    "args": (length,),
                }
            },
            "m",
        ),
    ],
)
def test_the_store_of_another_sweep_is_refused(
    whole: ga.Sweep, system: ga.System, change: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=f"belongs to another sweep: it differs in .*{text}"):
        study(whole.store.path, system=system, **change)


def test_other_constants_make_another_system(whole: ga.Sweep) -> None:
    other = ga.System(
        mass=jnp.eye(2),
        force=lambda t, q, v, length: jnp.array([0.0, -9.80]),
        holonomic=lambda t, q, length: jnp.array([q @ q - length**2]),
    )
    with pytest.raises(ValueError, match="the functions of the system"):
        study(whole.store.path, system=other)


@pytest.mark.parametrize("initial", ["assume", pytest.param("project", marks=pytest.mark.slow)])
def test_failures_are_listed_and_retried(system: ga.System, tmp_path: Path, initial: str) -> None:
    lengths, off = np.linspace(0.5, 1.5, 30), np.where(np.arange(30) % 10 == 3, 1e-3, 0.0)
    table = xarray.Dataset({"length": ("run", lengths), "off": ("run", off)})
    start = lambda length, off: {"q0": jnp.array([length + off, 0.0]), "v0": jnp.zeros(2), "args": (length,)}
    found = study(tmp_path / "a.zarr", system=system, over=table, member=start)
    listed = found.failures
    assert listed.index.tolist() == [3, 13, 23]
    assert listed.off.tolist() == [1e-3] * 3
    assert listed.status.tolist() == [4] * 3
    assert "break the constraints" in listed.message[13]
    before = found.open().load()
    with pytest.raises(TypeError, match="unknown argument of sweep 'step'"):
        found.retry(step=1e-3)
    assert found.retry(initial=initial).failures.empty
    after = found.open()
    assert np.flatnonzero(after.retried).tolist() == [3, 13, 23]
    assert found.store.header["retries"] == [{"initial": repr(initial)}]
    np.testing.assert_allclose(np.linalg.norm(after.q[13]), lengths[13], rtol=1e-12)
    rest = np.setdiff1d(np.arange(30), listed.index)
    assert np.array_equal(after.q[rest], before.q[rest])
    assert found.verify() == []


def test_a_sweep_does_not_use_what_earlier_runs_found_out(
    whole: ga.Sweep, system: ga.System, monkeypatch: pytest.MonkeyPatch
) -> None:
    from genalpha.backends.native import machine
    from genalpha.backends.native.kernels import Kernels

    made = [x for x in system._programs.values() if isinstance(x, Kernels)]
    if not made:
        ga.solve(system, (0.0, 0.1), [1.0, 0.0], [0.0, 0.0], h=1e-2, args=(1.0,))
        made = [x for x in system._programs.values() if isinstance(x, Kernels)]
    runner = machine.machine_of(made[0])
    monkeypatch.setattr(machine.lu, "trusted", lambda *given: True)
    monkeypatch.setitem(made[0].successors, runner.order, ("another order",))
    assert runner._known([]) == ("another order",)
    monkeypatch.setattr(system._programs, "learning", False)
    assert runner._known([]) is None


def test_a_run_that_raises_does_not_end_the_sweep(system: ga.System, tmp_path: Path) -> None:
    def observe(sol: ga.Solution) -> dict[str, Any]:
        if (np.abs(np.linalg.norm(sol.q[:, -1], axis=1) - 1.0) < 1e-9).any():
            raise ValueError("a pendulum of length one")
        return {"height": sol.q[:, -1, 1]}

    found = study(tmp_path / "a.zarr", 21, system=system, observe=observe)
    assert found.failures.index.tolist() == [10]
    assert found.failures.message[10] == "ValueError: a pendulum of length one"
    opened = found.open()
    good = np.setdiff1d(np.arange(21), 10)
    assert np.isnan(opened.height[10])
    assert np.array_equal(opened.height.to_numpy()[good], opened.q.to_numpy()[good, 1])


def test_times_events_and_settings(system: ga.System, tmp_path: Path) -> None:
    lowest = ga.Event(lambda t, q, v, length: q[0])
    over = {"length": np.array([0.5, 1.0]), "h": np.array([1e-2, 5e-3])}
    times = np.linspace(0.0, 0.5, 3)
    found = study(tmp_path / "a.zarr", system=system, over=over, t_eval=times, events=lowest, h=None)
    grid = found.open(grid=True)
    assert (grid.q_index.values.tolist(), grid.lam_index.values.tolist()) == (["x", "y"], ["rod"])
    assert grid.q.dims == ("length", "h", "time", "q_index")
    assert grid.steps.to_numpy().tolist() == [[50, 100], [50, 100]]
    one = ga.solve(system, (0, 0.5), [0.5, 0.0], [0, 0], h=5e-3, args=(0.5,), t_eval=times, events=lowest)
    np.testing.assert_allclose(grid.q.sel(length=0.5, h=5e-3), one.q, rtol=1e-9)
    np.testing.assert_allclose(grid.t_event_0.sel(length=0.5, h=5e-3)[0], one.t_events[0][0], rtol=1e-9)
    assert grid.events_0.to_numpy().tolist() == [[1, 1], [0, 0]]


def test_two_drivers_do_not_share_a_store(whole: ga.Sweep, system: ga.System) -> None:
    from genalpha.sweep.lock import locked

    with locked(whole.store.path), pytest.raises(RuntimeError, match="this process runs a sweep on"):
        study(whole.store.path, system=system)


def test_a_lost_block_is_given_up_with_its_reason(system: ga.System, tmp_path: Path) -> None:
    found = study(tmp_path / "a.zarr", system=system, deadline=1e3)
    found.store.discard(2)
    late = study(tmp_path / "a.zarr", system=system, deadline=0.0, retries=1)
    reason = "given up after 2 attempts: TimeIsUp: the block took longer than its deadline of 0 s"
    assert late.tally.given_up == {2: reason}
    assert late.failures.index.tolist() == list(range(42, 63))
    assert set(late.failures.message) == {reason}
    assert study(tmp_path / "a.zarr", system=system).tally.blocks == 0  # it was given up, not forgotten
    late._policy = late._policy._replace(deadline=None)
    assert late.retry().failures.empty


def test_no_block_can_be_computed(system: ga.System, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"no block could be computed.*deadline of 0 s"):
        study(tmp_path / "a.zarr", system=system, deadline=0.0, retries=0)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"over": {"lenght": [1.0]}}, ValueError, "the axis 'lenght' is none of q0, v0, h, rtol"),
        ({"over": {"length": []}}, ValueError, r"over\['length'\] must be an array"),
        ({"over": {"length": [np.nan]}}, ValueError, "not finite"),
        ({"over": {"length": ["x"]}}, TypeError, "must be numbers"),
        ({"over": {"status": [1.0]}}, ValueError, "cannot be called 'status'"),
        ({"over": 3}, TypeError, "over must be a dict of arrays"),
        ({"save": ["p"]}, ValueError, "unknown quantity in save 'p'"),
        ({"block": 0}, ValueError, "block must be a whole number"),
        ({"executor": 3}, TypeError, "executor must be a concurrent.futures.Executor"),
        ({"other_kinds": "any"}, ValueError, "other_kinds must be"),
        ({"stepsize": 3}, TypeError, "unknown argument of sweep 'stepsize'"),
        ({"member": lambda length: 3}, TypeError, "member must return a dict"),
    ],
)
def test_bad_input(system: ga.System, tmp_path: Path, change: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        study(tmp_path / "a.zarr", system=system, **change)
    assert not list(tmp_path.glob("*.zarr"))


def test_what_is_no_store_is_refused(system: ga.System, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text")
    for name in ("folder", "file"):
        with pytest.raises(ValueError, match=f"{name} is not the store of a sweep"):
            study(tmp_path / name, system=system)
    with pytest.raises(ValueError, match="is not the store of a sweep"):
        ga.open_sweep(tmp_path / "nothing")


@pytest.mark.slow
def test_no_run_can_be_started(system: ga.System, tmp_path: Path) -> None:
    start = lambda length: {"q0": jnp.array([3.0, 0.0]), "v0": jnp.zeros(2), "args": (length,)}
    with pytest.raises(ValueError, match="constraints"):
        study(tmp_path / "a.zarr", system=system, member=start)

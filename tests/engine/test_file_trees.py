"""Data in files are read back unchanged, and a failed write leaves the old file."""

from __future__ import annotations

import dataclasses
import functools
import os
import stat
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.engine import files
from genalpha.numerics.data import State

spring = ga.System(mass=np.eye(1), force=lambda t, q, v: -q)
run = functools.partial(ga.solve, spring, (0.0, 1.0), [1.0], [0.0], h=0.1)


def test_trees_come_back_as_they_were(tmp_path):
    tree = {
        "numbers": [0.1, -0.0, float("inf"), 3, -(10**30), True, None],
        "NumPy's": [np.float64(0.1), np.int32(7), np.bool_(True)],
        "text": ("", "ψ 'x' \udc80", b"\0\xff"),
        "arrays": [
            np.arange(6.0).reshape(2, 3).T,
            np.zeros((0, 3)),
            np.array(2.5),
            np.eye(2) > 0,
            np.eye(2) * 1j,
        ],
        "big": np.arange(3, dtype=">f8"),
        "jax": jnp.arange(3.0),
        "state": State(0.0, *(np.full(2, k) for k in range(5))),
        "empty": ((), [], {}),
    }
    files.write(str(tmp_path / "tree"), "tree", tree)
    again = files.read(str(tmp_path / "tree"), "tree", "")
    ours, theirs = jax.tree.flatten(tree), jax.tree.flatten(again)
    assert ours[1] == theirs[1]
    for x, y in zip(ours[0], theirs[0], strict=True):
        assert type(x) is type(y) or isinstance(x, jax.Array)
        np.testing.assert_array_equal(x, y)
        if isinstance(y, np.ndarray):
            assert y.flags.writeable
    assert np.signbit(again["numbers"][1])
    nan = files.decode(*files.encode(float("nan")))
    assert nan != nan


@pytest.mark.parametrize(
    "thing", [object(), {3: 4}, lambda: 3, np.array(["x"]), np.array([None]), {1, 2}, 1j]
)
def test_what_a_file_cannot_hold(thing, tmp_path):
    with pytest.raises(TypeError, match="a file cannot hold"):
        files.write(str(tmp_path / "tree"), "tree", [thing])
    assert not list(tmp_path.iterdir())


def test_classes_of_files_run_no_code():
    @dataclasses.dataclass
    class Lively:
        x: int

        def __post_init__(self) -> None:
            raise AssertionError

    class Grid(NamedTuple):
        x: int

    with pytest.raises(TypeError, match="without __post_init__"):
        files.storable(Lively)
    with pytest.raises(TypeError, match="another class Grid is registered already"):
        files.storable(Grid)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state"
    run().state.save(path)
    before = path.read_bytes()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(files.os, name, full)
            with pytest.raises(OSError, match="No space"):
                run().state.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        run(checkpoint=tmp_path / "run").state.save(tmp_path / "state")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o640

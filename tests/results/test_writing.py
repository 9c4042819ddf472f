"""A file of a solution is written whole or not at all."""

import stat
from pathlib import Path

import numpy as np
import pytest

import genalpha as ga
import systems


def run() -> ga.Solution:
    return ga.solve(systems.spring(), (0.0, 1.0), [1.0], [0.0], h=0.1, args=(1.0,))


def test_a_solution_that_cannot_be_written_leaves_the_old_file(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    sol = run()
    sol.save("~/sol.npz")
    old = (tmp_path / "sol.npz").read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space"):
        sol.save("~/sol.npz")
    assert (tmp_path / "sol.npz").read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == ["sol.npz"]
    np.testing.assert_array_equal(ga.load("~/sol.npz").q, sol.q)


def test_devices_are_written_and_folders_refused(tmp_path):
    run().save("/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(IsADirectoryError):
        run().save(tmp_path)

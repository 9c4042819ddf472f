"""Solutions as tables and datasets, and files of other programs: no bit is lost, names and units stay."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import results

pandas = pytest.importorskip("pandas")
xarray = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")
pytest.importorskip("zarr")
parquet = pytest.importorskip("pyarrow.parquet")

SYSTEM = ga.System(
    mass=jnp.eye(2),
    force=lambda t, q, v, length: jnp.array([0.0, -9.81]),
    holonomic=lambda t, q, length: jnp.array([q @ q - length**2]),
    names={"q": ['x, "wide"', "y"], "holonomic": ["rod"]},
    units={"q": ["m", "m"], "t": "s", "holonomic": ["N/m"]},
)
KEYS = ['x, "wide"', "y", 'x, "wide"\'', "y'", "x, \"wide\"''", "y''", "lam[rod]"]
LENGTHS = np.array([1.0, 2.0, 3.0])


def odd(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Doubles of all sizes: random bits, without NaN and infinity, and some special values."""
    bits = np.random.default_rng(seed).integers(0, 2**64, shape, dtype=np.uint64)
    found = bits.view(float)
    found = np.where(np.isfinite(found), found, 0.1)
    found.reshape(-1)[:5] = [-0.0, 5e-324, 1e308, np.inf, np.nan]
    return found


@pytest.fixture(scope="module")
def sol():
    """A run whose coordinates are replaced by numbers that are hard to write."""
    run = ga.solve(SYSTEM, (0.0, 0.5), [1.0, 0.0], [0.0, 0.0], h=0.05, args=(1.0,))
    return dataclasses.replace(run, q=odd(run.q.shape, 1))


@pytest.fixture(scope="module")
def batch():
    """Three pendulums, of which the last breaks its constraint and does not run."""
    q0 = np.stack([LENGTHS, [0.0, 0.0, 1.0]], axis=1)
    return ga.solve_batch(SYSTEM, (0.0, 0.5), q0, [0.0, 0.0], h=0.05, args=(LENGTHS,), save="all")


def same(found, expected) -> None:
    """Equal bits; NaN is NaN."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype == float
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


# --- tables ---------------------------------------------------------------------------------------------


def test_columns_of_a_table_are_keys_of_the_solution(sol):
    table = sol.to_pandas()
    assert list(table.columns) == KEYS
    assert table.index.name == "t"
    same(table.index, sol.t)
    for key in KEYS:
        same(table[key], sol[key])
    assert list(sol.to_pandas("y", "lam").columns) == ["y", "lam[rod]"]
    with pytest.raises(KeyError, match="Near names: y"):
        sol.to_pandas("yy")


def test_metadata_and_units_of_a_table(sol):
    attrs = sol.to_pandas().attrs
    assert attrs["units"] == dict.fromkeys(KEYS[:2], "m") | dict.fromkeys(KEYS[2:4], "m/s") | dict.fromkeys(
        KEYS[4:6], "m/s²"
    ) | {"t": "s", "lam[rod]": "N/m"}
    assert {name: attrs[name] for name in ("method", "backend", "status", "t_end", "steps")} == {
        "method": "soi2",
        "backend": "native",
        "status": 0,
        "t_end": 0.5,
        "steps": 10,
    }
    assert attrs["genalpha"] == ga.__version__


def test_tables_of_batches_have_all_members_and_their_parameters(batch):
    table = batch.to_pandas()
    assert table.index.names == ["member", "t"]
    assert list(table.columns) == ["args.0", *KEYS]
    for i, length in enumerate(LENGTHS):
        rows = table.loc[i]
        same(rows["y"], batch.q[i, :, 1])
        assert (rows["args.0"] == length).all()
    assert table.attrs["members"] == 3
    assert batch[1].to_pandas().attrs["args.0"] == 2.0


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_are_written_without_loss(sol, batch, tmp_path, suffix):
    for name, one in (("one", sol), ("many", batch)):
        path = tmp_path / f"{name}{suffix}"
        one.save(path)
        if suffix == ".csv":
            table = pandas.read_csv(path, float_precision="round_trip")
        else:
            table = pandas.read_parquet(path)
        expected = one.to_pandas().reset_index()
        assert list(table.columns) == list(expected.columns)
        for key in table.columns:
            if key != "member":
                same(table[key], expected[key])
    with open(tmp_path / f"one{suffix}", "rb") as file:
        assert file.read(4) in (b"PAR1", b't,"x')


def test_csv_files_need_no_library(sol, tmp_path, monkeypatch):
    for name in ("pandas", "pyarrow", "xarray"):
        monkeypatch.setitem(sys.modules, name, None)
    sol.save(tmp_path / "run.csv")
    with open(tmp_path / "run.csv", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["t", *KEYS]
    same([[float(x) for x in row[1:3]] for row in rows], sol.q)


def test_parquet_files_know_units_and_metadata(sol, tmp_path):
    sol.save(tmp_path / "run.parquet")
    schema = parquet.read_schema(tmp_path / "run.parquet")
    assert schema.field("y'").metadata == {b"units": b"m/s"}
    assert json.loads(schema.metadata[b"genalpha"]) == sol.to_pandas().attrs


# --- datasets -------------------------------------------------------------------------------------------


def test_axes_of_a_dataset_have_names(sol):
    data = sol.to_xarray()
    assert data.q.dims == ("time", "coordinate")
    assert data.a.dims == data.v.dims == ("time", "velocity")
    assert data.lam.dims == ("time", "constraint")
    same(data.q.sel(coordinate="y"), sol.q[:, 1])
    same(data.lam.sel(constraint="rod"), sol.lam[:, 0])
    same(data.time, sol.t)
    same(data.residual_velocity, sol.residuals.velocity)
    assert "psi" not in data
    assert "residual_nonholonomic" not in data
    assert (data.q.units, data.v.units, data.lam.units, data.time.units) == ("m", "m/s", "N/m", "s")
    assert data.attrs["message"] == "reached the end of the time span"


def test_different_units_are_a_coordinate():
    system = ga.System(np.eye(2), lambda t, q, v: -q, names={"q": ["x", "φ"]}, units={"q": ["m", "rad"]})
    sol = ga.solve(system, (0.0, 1.0), [1.0, 0.0], [0.0, 1.0], h=0.1, save={"q": None, "v": [0, 1], "a": [1]})
    data = sol.to_xarray()
    assert "units" not in data.q.attrs
    assert data.q_units.values.tolist() == ["m", "rad"]
    assert data.a.dims == ("time", "acceleration")
    assert data.acceleration.values.tolist() == ["φ''"]
    data = sol.labelled(ga.System(np.eye(2), lambda t, q, v: -q).labels).to_xarray()
    assert data.coordinate.values.tolist() == ["q[0]", "q[1]"]


def test_datasets_of_batches_have_members_and_parameters(batch):
    data = batch.to_xarray()
    assert data.q.dims == ("member", "time", "coordinate")
    same(data["args.0"], LENGTHS)
    same(data.q.sel(coordinate="y", member=1), batch.q[1, :, 1])
    same(data.time, batch.t[0])
    assert data.status.values.tolist() == batch.status.tolist()
    assert data.attrs["members"] == 3
    apart = dataclasses.replace(batch, t=batch.t + np.array([[0.0], [0.0], [1.0]]))
    data = apart.to_xarray()
    assert data.t.dims == ("member", "time")
    same(data.t, apart.t)


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_datasets_are_written_without_loss(sol, batch, tmp_path, suffix):
    for name, one in (("one", sol), ("many", batch)):
        path = tmp_path / f"{name}{suffix}"
        one.save(path)
        one.save(path)  # over the first one
        expected = one.to_xarray()
        opened = xarray.open_dataset(path) if suffix == ".nc" else xarray.open_zarr(path)
        with opened as data:
            assert set(data.variables) == set(expected.variables)
            for key in data.variables:
                assert data[key].dims == expected[key].dims
                if expected[key].dtype == float:
                    same(data[key], expected[key])
                else:
                    assert data[key].values.tolist() == expected[key].values.tolist()
                assert data[key].attrs == expected[key].attrs
            assert data.attrs == expected.attrs


# --- what is missing or wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hidden", "action"),
    [
        ("pandas", lambda sol, folder: sol.to_pandas()),
        ("xarray", lambda sol, folder: sol.to_xarray()),
        ("xarray", lambda sol, folder: sol.save(folder / "run.nc")),
        ("zarr", lambda sol, folder: sol.save(folder / "run.zarr")),
        ("pyarrow", lambda sol, folder: sol.save(folder / "run.parquet")),
    ],
)
def test_missing_libraries_are_named(sol, tmp_path, monkeypatch, hidden, action):
    monkeypatch.setitem(sys.modules, hidden, None)
    told = rf"needs {hidden}, which is not installed: pip install genalpha\[tables\]"
    with pytest.raises(ImportError, match=told):
        action(sol, tmp_path)
    assert not list(tmp_path.iterdir())


def test_other_suffixes(sol, tmp_path):
    with pytest.raises(
        ValueError, match=r"cannot be written as .h5: choose .npz, .nc, .zarr, .csv, .parquet"
    ):
        sol.save(tmp_path / "run.h5")
    sol.save(tmp_path / "run.PARQUET")
    with pytest.raises(ValueError, match=r"which ga.load does not read: use pandas.read_parquet"):
        ga.load(tmp_path / "run.PARQUET")
    with pytest.raises(FileNotFoundError):
        ga.load(tmp_path / "nothing.nc")


def test_every_suffix_has_a_reader():
    assert results.tables._WRITERS.keys() == results.files.READERS.keys()

"""Statistics over runs, against formulas and NumPy on the whole data."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import genalpha as ga
from genalpha.sweep import axes
from sweep_models import pendulum

xarray = pytest.importorskip("xarray")


def dataset(y: np.ndarray, status: np.ndarray | None = None, chunk: int = 100) -> xarray.Dataset:
    status = np.zeros(len(y), int) if status is None else status
    dims = ("run", "k")[: y.ndim]
    found = xarray.Dataset({"y": (dims, y), "status": ("run", status)})
    found.status.encoding["chunks"] = (chunk,)
    return found


def samples(over: ga.Samples) -> np.ndarray:
    parts = list(over.parts())
    return np.stack([np.concatenate([part[name] for part in parts]) for name in over.distributions], axis=1)


def test_moments_and_quantiles_are_those_of_the_runs_that_succeeded() -> None:
    rng = np.random.default_rng(1)
    y = rng.normal(1e6, [1.0, 5.0], (1234, 2))  # a large mean, in which naive sums lose digits
    status = np.where(np.arange(1234) % 7 == 0, 2, 0)
    status[5] = -100
    y[status != 0] = np.nan
    good, found = y[status == 0], dataset(y, status)
    np.testing.assert_allclose(ga.reductions.mean(found, "y"), good.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(ga.reductions.variance(found, "y"), good.var(axis=0, ddof=1), rtol=1e-10)
    q = ga.reductions.quantiles(found, "y", [0.0, 0.1, 0.5, 1.0])
    assert q.dims == ("quantile", "k")
    assert np.abs(q - np.quantile(good, q["quantile"], axis=0)).max() <= 2 * q.attrs["error"] < 0.03
    above = ga.reductions.exceedance(found, lambda d: d.y[:, 1] - 1e6, 2.0)
    assert float(above) == np.mean(good[:, 1] - 1e6 > 2.0)
    assert above.attrs["runs"] == len(good)


def test_constant_values_and_no_values() -> None:
    assert (
        ga.reductions.quantiles(dataset(np.full(10, 3.0)), "y", [0.0, 0.5, 1.0]).to_numpy().tolist()
        == [3.0] * 3
    )
    nothing = dataset(np.full(10, np.nan), np.full(10, 3))
    for function in (ga.reductions.mean, ga.reductions.variance):
        with pytest.raises(ValueError, match="no run of the dataset has a result"):
            function(nothing, "y")


def ishigami(x: np.ndarray) -> np.ndarray:
    return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])


def test_sobol_indices_of_the_ishigami_function() -> None:
    names = ("x1", "x2", "x3")
    over = ga.Samples({name: stats.uniform(-np.pi, 2 * np.pi) for name in names}, 2**13, "saltelli")
    x = samples(over)
    assert len(x) == axes.parsed(over).count == 5 * 2**13
    y, status = ishigami(x), np.zeros(len(x), int)
    status[7], y[7] = 1, np.nan  # its group does not count
    found = ga.reductions.sobol_indices(dataset(y, status, 999), "y", names)
    # The variances of Ishigami & Homma's function with a = 7, b = 0.1.
    a, b = 7.0, 0.1
    v1 = 0.5 * (1 + b * np.pi**4 / 5) ** 2
    v2, v13 = a**2 / 8, b**2 * np.pi**8 * (1 / 18 - 1 / 50)
    whole = v1 + v2 + v13
    np.testing.assert_allclose(found["first"], np.array([v1, v2, 0.0]) / whole, atol=0.01)
    np.testing.assert_allclose(found["total"], np.array([v1 + v13, v2, v13]) / whole, atol=0.01)
    with pytest.raises(ValueError, match="are not groups of 4"):
        ga.reductions.sobol_indices(dataset(y[:-1]), "y", names[:2])


@pytest.mark.parametrize("design", ["sobol", "latin", "halton", "random"])
def test_samples_follow_their_distributions(design: axes.Design) -> None:
    given = {"a": stats.norm(2.0, 0.5), "b": stats.uniform(1.0, 3.0)}
    x = samples(ga.Samples(given, 1000, design, seed=3))
    assert x.shape == (1000, 2)
    assert stats.kstest(x[:, 0], given["a"].cdf).pvalue > 1e-3
    assert stats.kstest(x[:, 1], given["b"].cdf).pvalue > 1e-3
    assert np.array_equal(x, samples(ga.Samples(given, 1000, design, seed=3)))
    assert not np.array_equal(x, samples(ga.Samples(given, 1000, design, seed=4)))


def test_sobol_points_in_parts_are_those_of_one_draw() -> None:
    from scipy.stats import qmc

    over = ga.Samples({"a": stats.uniform(), "b": stats.uniform()}, 2**16 + 100)
    whole = qmc.Sobol(2, seed=0).random(2**17)[: 2**16 + 100]
    assert np.abs(samples(over) - whole).max() < 1e-15


@pytest.mark.slow
def test_indices_of_a_sweep(tmp_path: Path) -> None:
    given = {"length": stats.uniform(0.9, 0.2), "speed": stats.uniform(-0.5, 1.0)}
    start = lambda length, speed: {"q0": [length, 0.0], "v0": [0.0, speed], "args": (length,)}
    over = ga.Samples(given, 64, "saltelli")
    found = ga.sweep(pendulum(), (0.0, 0.3), over=over, member=start, h=1e-2, store=tmp_path / "a.zarr")
    indices = ga.reductions.sobol_indices(found.open(), lambda d: d.q[:, 1], tuple(given))
    assert indices["first"].sum() == pytest.approx(1.0, abs=0.1)
    assert float(indices["first"].sel(axis="speed")) > 0.5


@pytest.mark.slow
def test_the_gradient_of_a_sum_is_that_of_one_program() -> None:
    import jax

    system = pendulum()

    def miss(target: jnp.ndarray, length: jnp.ndarray) -> jnp.ndarray:
        start = jnp.stack([length, 0.0])
        return (
            (ga.solve(system, (0.0, 0.3), start, jnp.zeros(2), h=1e-2, args=(length,)).q[-1] - target) ** 2
        ).sum()

    lengths, target = np.linspace(0.5, 1.5, 10), np.array([0.3, -0.4])
    total, slope = ga.sweep_gradient(miss, target, over={"length": lengths}, block=4)
    value = lambda target: sum(miss(target, length) for length in lengths)
    assert total == pytest.approx(float(value(target)), rel=1e-12)
    np.testing.assert_allclose(slope, jax.grad(value)(jnp.asarray(target)), rtol=1e-9)
    with pytest.raises(ValueError, match="the sum over runs 4 to 7 is not finite"):
        ga.sweep_gradient(miss, target, over={"length": np.where(np.arange(10) == 5, 1e200, 1.0)}, block=4)

"""Statistics over the runs of a sweep. Blocks are read one after the other, so that memory stays small.

Each function takes the dataset of ``sweep.open()`` and a quantity: the name of a variable, or a function of a
dataset that returns an array with the dimension ``run`` first, such as ``lambda d: d.q[:, 0] ** 2``. Runs
that failed or are missing do not count.

>>> import numpy as np, xarray, genalpha as ga
>>> runs = xarray.Dataset({"y": ("run", np.arange(5.0)), "status": ("run", [0, 0, 0, 0, 2])})
>>> float(ga.reductions.mean(runs, "y")), float(ga.reductions.variance(runs, "y"))
(1.5, 1.6666666666666667)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Quantity = str | Callable[[Any], Any]
_PART = 2**16  # runs that are read at a time, unless the chunks of the store say otherwise


def _size(dataset: Any) -> int:
    chunks = dataset["status"].encoding.get("chunks") if "status" in dataset else None
    return int(chunks[0]) if chunks else _PART


def _parts(dataset: Any, quantity: Quantity, size: int | None = None) -> Iterator[tuple[Any, np.ndarray]]:
    """The quantity of some runs at a time, as an array of xarray, and which of them count."""
    size = size or _size(dataset)
    for first in range(0, dataset.sizes["run"], size):
        part = dataset.isel(run=slice(first, first + size))
        found = part[quantity] if isinstance(quantity, str) else quantity(part)
        if found.dims[:1] != ("run",):
            raise ValueError(f"the quantity must have the dimension run first, got {found.dims}")
        good = np.ones(found.sizes["run"], bool)
        if "status" in part:
            good &= part["status"].to_numpy() <= 0
            good &= part["status"].to_numpy() > -100
        yield found, good


def _like(found: Any, values: np.ndarray, name: str, *first: tuple[str, list[Any]]) -> Any:
    """Results as an array of xarray: other dimensions, then those of the quantity without ``run``."""
    import xarray

    coordinates = {key: x for key, x in found.coords.items() if "run" not in x.dims} | dict(first)
    dims = (*(dim for dim, _ in first), *found.dims[1:])
    return xarray.DataArray(values, coords=coordinates, dims=dims, name=name)


class _Merged:
    """Count, mean and sum of squared deviations, merged part by part (Chan, Golub and LeVeque)."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(()), np.zeros(())

    def add(self, values: np.ndarray) -> None:
        if not len(values):
            return
        count, mean = len(values), values.mean(axis=0)
        squares = ((values - mean) ** 2).sum(axis=0)
        total, away = self.count + count, mean - self.mean
        self.mean = self.mean + away * (count / total)
        self.squares = self.squares + squares + away**2 * (self.count * count / total)
        self.count = total


def _moments(dataset: Any, quantity: Quantity) -> tuple[_Merged, Any]:
    found, example = _Merged(), None
    for example, good in _parts(dataset, quantity):
        found.add(example.to_numpy()[good])
    if not found.count:
        raise ValueError("no run of the dataset has a result")
    return found, example


def mean(dataset: Any, quantity: Quantity) -> Any:
    """The mean over the runs."""
    found, example = _moments(dataset, quantity)
    return _like(example, found.mean, "mean")


def variance(dataset: Any, quantity: Quantity) -> Any:
    """The variance over the runs, with n − 1 in the denominator."""
    found, example = _moments(dataset, quantity)
    if found.count < 2:
        raise ValueError("a variance needs two runs with results")
    return _like(example, found.squares / (found.count - 1), "variance")


def quantiles(dataset: Any, quantity: Quantity, probabilities: Sequence[float], bins: int = 4096) -> Any:
    """Quantiles over the runs, by a histogram between the smallest and the largest value.

    Returns an array with the dimension ``quantile`` first. Its attribute ``error`` is the width of the widest
    bin, which bounds the error. The store is read twice.
    """
    chosen = np.asarray(probabilities, dtype=float)
    if chosen.ndim != 1 or not ((chosen >= 0) & (chosen <= 1)).all():
        raise ValueError(f"probabilities must be numbers between 0 and 1, got {probabilities!r}")
    low = high = None
    for example, good in _parts(dataset, quantity):
        values = example.to_numpy()[good]
        if len(values):
            low = values.min(axis=0) if low is None else np.minimum(low, values.min(axis=0))
            high = values.max(axis=0) if high is None else np.maximum(high, values.max(axis=0))
    if low is None or high is None:
        raise ValueError("no run of the dataset has a result")
    width = np.where(high > low, (high - low) / bins, 1.0)
    counts = np.zeros((*np.shape(low), bins), dtype=np.int64)
    flat = counts.reshape(-1, bins)
    for example, good in _parts(dataset, quantity):
        values = example.to_numpy()[good]
        index = np.clip(((values - low) / width).astype(int), 0, bins - 1).reshape(len(values), -1)
        for k in range(flat.shape[0]):
            flat[k] += np.bincount(index[:, k], minlength=bins)
    found = _of_histogram(flat, chosen).reshape(*np.shape(low), len(chosen))
    found = np.moveaxis(np.asarray(low)[..., None] + found * np.asarray(width)[..., None], -1, 0)
    result = _like(example, np.minimum(found, high), "quantiles", ("quantile", chosen.tolist()))
    result.attrs["error"] = float(np.max(np.where(high > low, width, 0.0)))
    return result


def _of_histogram(counts: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Where the quantiles (d, p) are in histograms (d, bins), in widths of a bin."""
    sums = np.concatenate([np.zeros((len(counts), 1)), counts.cumsum(axis=1)], axis=1)
    edges = np.arange(counts.shape[1] + 1)
    found = []
    for row in sums:
        inside = np.append(True, np.diff(row) > 0)  # an empty bin has no place of its own
        found.append(np.interp(chosen * row[-1], row[inside], edges[inside]))
    return np.array(found)


def exceedance(dataset: Any, quantity: Quantity, threshold: Any) -> Any:
    """The share of runs in which the quantity is above a threshold; ``attrs["runs"]`` is how many counted."""
    above, count, example = None, 0, None
    for example, good in _parts(dataset, quantity):
        here = (example.to_numpy()[good] > threshold).sum(axis=0)
        above, count = here if above is None else above + here, count + int(good.sum())
    if above is None or not count:
        raise ValueError("no run of the dataset has a result")
    result = _like(example, above / count, "exceedance")
    result.attrs["runs"] = count
    return result


def sobol_indices(dataset: Any, quantity: Quantity, axes: Sequence[str]) -> Any:
    """Sobol' indices of a sweep over ``ga.Samples(..., design="saltelli")``.

    ``axes`` are the names in the order of the distributions. Returns a dataset with the dimension ``axis``:
    ``first`` (the share of the variance that an axis explains alone) and ``total`` (with all interactions),
    by the estimators of Saltelli et al. (2010), table 2 (b) and (f). A group with a failed run does not
    count.
    """
    import xarray

    d = len(axes)
    group = d + 2
    if dataset.sizes["run"] % group:
        raise ValueError(
            f"{dataset.sizes['run']} runs are not groups of {group}, as design='saltelli' has for {d} axes"
        )
    center, example = _moments(dataset, quantity)
    spread, first, total = _Merged(), _Merged(), _Merged()
    for example, good in _parts(dataset, quantity, size=group * max(1, _size(dataset) // group)):
        rows = example.to_numpy().reshape(-1, group, *example.shape[1:])
        rows = rows[good.reshape(-1, group).all(axis=1)] - center.mean
        a, mixed, b = rows[:, 0], rows[:, 1:-1], rows[:, -1]
        first.add(b[:, None] * (mixed - a[:, None]))
        total.add(0.5 * (a[:, None] - mixed) ** 2)
        spread.add(np.concatenate([a, b]))
    if not spread.count:
        raise ValueError("every group has a run without a result")
    whole = spread.squares / spread.count
    of = lambda name, x: _like(example, x.mean / whole, name, ("axis", list(axes)))
    return xarray.Dataset({"first": of("first", first), "total": of("total", total)})

"""What varies in a sweep: the outer product of axes, the rows of a table, or samples of distributions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from genalpha.engine.describe import described
from genalpha.errors import unknown

Design = Literal["sobol", "latin", "halton", "random", "saltelli"]
_RESERVED = ("run", "time", "status", "t_end", "message", "done", "record", "block", "retried")


@dataclass(frozen=True)
class Samples:
    """Samples of independent distributions, as the argument ``over`` of :func:`genalpha.sweep`.

    Parameters
    ----------
    distributions : dict of frozen distributions of ``scipy.stats`` by the names of the axes.
    count : how many samples.
    design : "sobol" (default), "latin" (a Latin hypercube), "halton", "random", or "saltelli", which is the
        design of :func:`genalpha.reductions.sobol_indices`: ``count`` groups of d + 2 runs for d axes.
    seed : the samples of one seed are always the same.

    >>> from scipy import stats
    >>> Samples({"length": stats.uniform(0.9, 0.2), "speed": stats.norm(1.0, 0.1)}, 8).count
    8
    """

    distributions: Mapping[str, Any]
    count: int
    design: Design = "sobol"
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.distributions, Mapping) or not self.distributions:
            raise TypeError(
                "distributions must be a dict of distributions of scipy.stats by the names of the axes"
            )
        for name, one in self.distributions.items():
            if not callable(getattr(one, "ppf", None)):
                raise TypeError(
                    f"the distribution of {name!r} must be one of scipy.stats with its parameters, such as "
                    f"scipy.stats.norm(1.0, 0.1), got {type(one).__name__}"
                )
        if isinstance(self.count, bool) or not isinstance(self.count, int | np.integer) or self.count < 1:
            raise ValueError(f"count must be a whole number above zero, got {self.count!r}")
        if self.design not in get_args(Design):
            raise unknown("design of samples", str(self.design), get_args(Design))

    def unit(self) -> Iterator[np.ndarray]:
        """Points (b, d) of the unit cube, part after part."""
        from scipy.stats import qmc

        size, d = 2**16, len(self.distributions)
        if self.design == "random":
            rng = np.random.default_rng(self.seed)
            draw = lambda b: rng.random((b, d))
        elif self.design == "latin":
            yield qmc.LatinHypercube(d, seed=self.seed).random(self.count)
            return
        elif self.design == "halton":
            draw = qmc.Halton(d, seed=self.seed).random
        else:
            draw = _sobol(qmc.Sobol(2 * d if self.design == "saltelli" else d, seed=self.seed))
        for first in range(0, self.count, size):
            points = draw(min(size, self.count - first))
            yield _saltelli(points, d) if self.design == "saltelli" else points

    def parts(self) -> Iterator[dict[str, np.ndarray]]:
        """The values of all axes, part after part."""
        for points in self.unit():
            inside = np.clip(points, 2.0**-53, 1 - 2.0**-53)  # ppf is infinite at the ends of some
            listed = zip(self.distributions.items(), inside.T, strict=True)
            yield {name: np.asarray(one.ppf(u), dtype=float) for (name, one), u in listed}

    @property
    def runs(self) -> int:
        return self.count * (len(self.distributions) + 2 if self.design == "saltelli" else 1)

    def text(self) -> str:
        """What the samples follow from, the same in every process."""
        name = lambda one: getattr(getattr(one, "dist", one), "name", type(one).__name__)
        of = lambda one: (name(one), getattr(one, "args", ()), getattr(one, "kwds", {}))
        listed = [(key, *of(one)) for key, one in self.distributions.items()]
        return described((listed, int(self.count), self.design, self.seed))


def _sobol(engine: Any) -> Any:
    """Draw so many points; without the warning for numbers that are not powers of two."""

    def draw(count: int) -> np.ndarray:
        whole = engine.random(1 << (count - 1).bit_length()) if engine.num_generated == 0 else None
        if whole is None:
            return engine.random(count)
        if len(whole) > count:
            engine.reset().fast_forward(count)
        return whole[:count]

    return draw


def _saltelli(points: np.ndarray, d: int) -> np.ndarray:
    """Groups of points (b (d + 2), d) from points (b, 2 d): A, A with one column of B each, and B."""
    a, b = points[:, :d], points[:, d:]
    groups = np.repeat(a[:, None], d + 2, axis=1)
    for i in range(d):
        groups[:, i + 1, i] = b[:, i]
    groups[:, -1] = b
    return groups.reshape(-1, d)


@dataclass(frozen=True, eq=False)
class Axes:
    """The runs of a sweep. ``columns`` are arrays by name; ``kind`` says how runs follow from them.

    "product": every combination, the last name varies fastest. "table": one run a row. "samples": drawn from
    ``samples``.
    """

    kind: Literal["product", "table", "samples"]
    columns: dict[str, np.ndarray]
    samples: Samples | None = None

    @property
    def count(self) -> int:
        """The number of runs."""
        if self.samples is not None:
            return self.samples.runs
        sizes = [len(x) for x in self.columns.values()]
        return int(np.prod(sizes)) if self.kind == "product" else sizes[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes of a product."""
        return tuple(len(x) for x in self.columns.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.columns if self.samples is None else self.samples.distributions)

    def parts(self, size: int = 2**16) -> Iterator[dict[str, np.ndarray]]:
        """The values (b, ...) of all axes, part after part, so that memory stays small."""
        if self.samples is not None:
            yield from self.samples.parts()
            return
        for first in range(0, self.count, size):
            at = np.arange(first, min(first + size, self.count))
            index = np.unravel_index(at, self.shape) if self.kind == "product" else [at] * len(self.columns)
            yield {name: x[i] for (name, x), i in zip(self.columns.items(), index, strict=True)}

    def widths(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the values of one run."""
        return {name: self.columns[name].shape[1:] if self.samples is None else () for name in self.names}

    def text(self) -> str:
        """What the runs follow from, the same in every process."""
        if self.samples is not None:
            return self.samples.text()
        digest = hashlib.sha256()
        for name, x in self.columns.items():
            digest.update(f"{name} {x.dtype.str}{x.shape}".encode() + np.ascontiguousarray(x).tobytes())
        return f"{self.kind} {digest.hexdigest()}"


def parsed(over: Any) -> Axes:
    """The axes of the argument ``over``."""
    if isinstance(over, Samples):
        _check_names(list(over.distributions))
        return Axes("samples", {}, over)
    if isinstance(over, Mapping) and not hasattr(over, "dims"):  # an xarray.Dataset is a mapping too
        return Axes("product", _columns(over))
    if hasattr(over, "data_vars"):
        variables = {str(name): over[name] for name in [*over.coords, *over.data_vars]}
        dims = {x.dims[:1] for x in variables.values() if x.dims}
        if len(dims) != 1:
            raise ValueError(
                f"over must have one dimension that all variables share first, one run for each entry, got "
                f"{sorted(d[0] for d in dims)}"
            )
        chosen = {k: x for k, x in variables.items() if (x.dims and (k,) != x.dims) or k in over.data_vars}
        return _table(_columns({name: x.to_numpy() for name, x in chosen.items()}))
    if hasattr(over, "columns") and hasattr(over, "iloc"):
        return _table(_columns({str(name): over[name].to_numpy() for name in over.columns}))
    raise TypeError(
        "over must be a dict of arrays (their outer product), a table (pandas.DataFrame or xarray.Dataset, "
        f"one run a row), or ga.Samples, got {type(over).__name__}"
    )


def _table(columns: dict[str, np.ndarray]) -> Axes:
    return Axes("table", columns)


def _columns(given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    if not given:
        raise ValueError("over is empty: name at least one axis")
    _check_names(list(given))
    found = {}
    for name, values in given.items():
        try:
            array = np.asarray(values, dtype=float)
        except (TypeError, ValueError) as error:
            raise TypeError(f"the values of over[{name!r}] must be numbers: {error}") from error
        if array.ndim == 0 or array.size == 0:
            raise ValueError(f"over[{name!r}] must be an array with one entry for each value, got {values!r}")
        if not np.isfinite(array).all():
            raise ValueError(f"over[{name!r}] has entries that are not finite")
        found[name] = array
    return found


def _check_names(names: list[Any]) -> None:
    for name in names:
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(f"the name of an axis must be a text without '/', got {name!r}")
        if name in _RESERVED:
            raise ValueError(f"an axis cannot be called {name!r}, which is a variable of the store")

"""What can be read from the store of a sweep."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from genalpha.numerics import codes
from genalpha.sweep.store import LOST, MISSING, NOT_RUN, RAISED, SweepStore


class Opened:
    """The store of a sweep, for reading: while the sweep runs too, and without the model."""

    def __init__(self, files: SweepStore) -> None:
        self.store = files

    def open(self, grid: bool = False, chunks: Any = None) -> Any:
        """The store as an ``xarray.Dataset`` with the dimension ``run``; values are read when they are used.

        Axes are coordinates. ``done`` says which runs have a result; the others are NaN, with status −100.
        With ``grid``, each axis of an outer product is a dimension, and everything is read. ``chunks`` is for
        ``xarray.open_zarr``: {} gives arrays of Dask.
        """
        import xarray

        found = xarray.open_zarr(str(self.store.path), consolidated=False, chunks=chunks)
        found = found.drop_vars(["record", "message"]).set_coords(self.store.header["axes"])
        found = found.assign(done=("run", self._done()))
        names = {f"{name}_index": listed for name, listed in self.store.header["names"].items()}
        found = found.assign_coords({dim: x for dim, x in names.items() if dim in found.dims})
        return self._on_grid(found) if grid else found

    def _done(self) -> np.ndarray:
        states = [self.store.record(block)["state"] != MISSING for block in range(self.store.blocks)]
        return np.repeat(states, self.store.block)[: self.store.runs]

    def _on_grid(self, found: Any) -> Any:
        import xarray

        shape, names = tuple(self.store.header["shape"]), self.store.header["axes"]
        if self.store.header["design"] != "product":
            raise ValueError("grid=True is for outer products: a table or samples have no grid")
        dims = [name if found[name].ndim == 1 else f"{name}_point" for name in names]
        coordinates = {}
        for i, name in enumerate(names):
            whole = found[name].to_numpy().reshape(*shape, *found[name].shape[1:])
            own = whole[tuple(slice(None) if k == i else 0 for k in range(len(shape)))]
            coordinates[name] = ((dims[i], *found[name].dims[1:]), own)
        data = {
            name: ((*dims, *x.dims[1:]), x.to_numpy().reshape(*shape, *x.shape[1:]))
            for name, x in found.data_vars.items()
            if x.dims[:1] == ("run",)
        }
        rest = {name: x for name, x in found.coords.items() if "run" not in x.dims}  # times and names
        return xarray.Dataset(data, {**coordinates, **rest})

    @property
    def failures(self) -> Any:
        """The runs that failed, as a ``pandas.DataFrame`` by run: axes, status, t_end, message."""
        import pandas

        found = self.open()
        which = np.flatnonzero(found.status.to_numpy() > 0)
        some = found[["status", "t_end", "steps"]].isel(run=which).load()
        columns = {n: found[n].isel(run=which).to_numpy() for n in self.store.header["axes"]}
        table = {name: list(x) if x.ndim > 1 else x for name, x in columns.items()}
        texts = self.store._arrays["message"].oindex[which] if which.size else np.zeros((0, 1), np.uint8)
        listed = zip(some.status.values, some.t_end.values, some.steps.values, np.asarray(texts), strict=True)
        messages = [self._message(int(status), float(t), int(n), text) for status, t, n, text in listed]
        table |= {"status": some.status.values, "t_end": some.t_end.values, "message": messages}
        return pandas.DataFrame(table, index=pandas.Index(which, name="run"))

    def _message(self, status: int, t: float, steps: int, text: np.ndarray) -> str:
        if status in (RAISED, LOST):
            return text.tobytes().rstrip(b"\0").decode(errors="replace")
        return codes.message(status, t, steps, tuple(self.store.header["rotations"]))

    @property
    def counts(self) -> dict[str, int]:
        """How many runs there are, are done, failed, and are missing."""
        status = np.asarray(self.store._arrays["status"][:])
        missing = int(np.count_nonzero(status == NOT_RUN))
        failed = int(np.count_nonzero(status > 0))
        return {"runs": len(status), "done": len(status) - missing, "failed": failed, "missing": missing}

    def __repr__(self) -> str:
        n = self.counts
        return (
            f"<Sweep of {n['runs']} runs in {self.store.path.name}: {n['done']} done, {n['failed']} failed>"
        )


def open_sweep(store: str | os.PathLike[str]) -> Opened:
    """The store of a sweep, for reading only: while it runs, and without its model."""
    return Opened(SweepStore(store, writing=False))

"""Runs of large assemblies as operations of JAX."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from genalpha.backends.native.code import MAKING
from genalpha.backends.native.kernels import StartValues
from genalpha.backends.sparse import front, models
from genalpha.backends.sparse.copy_functions import CopyArgs, flat_data
from genalpha.backends.sparse.front import SparseRun
from genalpha.backends.sparse.memory import SparseMemory
from genalpha.backends.sparse.start_derivatives import Functions, StartDerivatives
from genalpha.backends.sparse.step_derivatives import AdjointCode, Adjoints, TangentCode, Tangents
from genalpha.backends.transforms import undefined
from genalpha.backends.transforms.base_run import RunOperation
from genalpha.backends.transforms.controlled_runs import ControlledSteps
from genalpha.backends.transforms.records import Taken
from genalpha.backends.transforms.runs import GivenSteps
from genalpha.backends.transforms.sparse_rows import SparseSampling
from genalpha.engine.steps import Steps
from genalpha.errors import InconsistentInitialValues, RedundantConstraints, SingularSystem
from genalpha.mechanics.assembly import Assembly
from genalpha.numerics import codes
from genalpha.numerics.data import Scale


class _Begun(NamedTuple):
    """A start: the run, and its first row of the tape."""

    run: SparseRun
    taped: np.ndarray

    @property
    def t_alpha(self) -> float:
        return float(self.run.t_alpha)


class SparseOperation(RunOperation):
    """A run of an assembly whose matrices are sparse, as an operation."""

    controlled: bool

    def _prepare(self, doubles: list[Any], first: Any) -> None:
        assembly = self.setup.system
        assert isinstance(assembly, Assembly)
        self.staged = self.setup._replace(method=self.setup.method.staged(self.setup.dims))
        args = self.rebuild([np.zeros(np.shape(x)) for x in doubles])
        found = models.of_assembly(assembly, args)
        self.nodes, kinds = found.nodes, [*found.nodes, *found.parts]
        self.copy_args = CopyArgs(kinds, self.rebuild, [np.shape(x) for x in doubles])
        self._data = {model.name: flat_data(model).shape[1] for model in kinds}
        with MAKING:
            self.code = front.code(self.staged, found, args, self.controlled, taped=True)
            self.functions = Functions(self.staged, self.nodes, self.code.blocks)
        self.memory_width = SparseMemory(self.code, self.setup.dims).lengths["record"]

    @property
    def widths(self) -> tuple[int, int]:
        return self.memory_width, self.parts[-1].start

    @functools.cached_property
    def _adjoint(self) -> AdjointCode:
        return AdjointCode(self.staged, self.code)

    @functools.cached_property
    def _tangent(self) -> TangentCode:
        return TangentCode(self.staged, self.code)

    # --- the start --------------------------------------------------------------------------------

    def starting(self, at: StartValues, steps: Steps, doubles: list[np.ndarray]) -> tuple[Any, Any, int]:
        unit, defects = self.functions.placed(np.asarray(at.q))
        if not all(np.isfinite(x).all() for x in (at.t, unit, at.v, *doubles)):
            return None, None, codes.NOT_FINITE
        at = at._replace(q=unit, mode="check" if self.strict else "assume")
        try:
            nothing = lambda state: np.zeros(len(self.setup.crossings))
            run = front.begin(self.setup, at, steps, self.rebuild(doubles), nothing, taped=True)
        except InconsistentInitialValues:
            return None, None, codes.INCONSISTENT
        except (RedundantConstraints, SingularSystem):
            return None, None, codes.SINGULAR
        except ValueError:
            return None, None, codes.NOT_FINITE
        status = int(codes.not_a_rotation(defects))
        begun = _Begun(run, run.runner.taped_row)
        return begun, run.runner if status == codes.SUCCESS else None, status

    def first_rows(self, run: Any) -> tuple[np.ndarray, np.ndarray]:
        if run is None:
            return np.full(self.widths[0], np.nan), np.full(1, np.nan)
        return run.taped, run.run.row

    def scale_of(self, run: Any) -> np.ndarray:
        if run is None:
            return np.full(sum(self.setup.dims[1:]), np.nan)
        return np.concatenate([*run.run.runner.start.scale])

    def guess_of(self, run: Any) -> np.ndarray:
        if run is None or not self.iterates:
            return np.zeros(0)
        return np.concatenate([run.run.runner.start.state.lam, run.run.runner.start.state.psi])

    # --- derivatives ------------------------------------------------------------------------------

    def _of_start(self, taken: Taken) -> StartDerivatives:
        args = self.rebuild(taken.doubles)
        unit, _ = self.functions.placed(taken.q)
        at = front.projector(self.staged, args).equations.at(taken.t0, unit, taken.v)
        guess = np.split(taken.guess, [self.setup.dims.m]) if self.iterates else None
        h = float(taken.sizes[0]) if len(taken.sizes) else 1.0
        return StartDerivatives(self.functions, at, taken.q, h, guess)

    def _models(self, taken: Taken) -> tuple[list[Any], Scale]:
        dims, args = self.setup.dims, self.rebuild(taken.doubles)
        assembly: Any = self.setup.system
        scale = Scale(*np.split(taken.scale, [dims.n, dims.n + dims.m]))  # type: ignore[arg-type]
        return [*self.nodes, *models.of_parts(assembly, args)], scale

    def pulled(self, taken: Taken, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with MAKING:
            code = self._adjoint
        start_of = self._of_start(taken)  # LLVM works in the background
        steps = Adjoints(code, self.setup.dims, *self._models(taken))
        carry, args, of_steps = steps.run(taken.blocks(True), taken.times, taken.sizes, weights)
        found, more = start_of.pulled(carry, weights[0])
        doubles = self.copy_args.pulled({name: a + more[name][:, : a.shape[1]] for name, a in args.items()})
        parts = (found["t"], found["q"], found["v"], found["h"], *doubles)
        start = np.concatenate([np.ravel(x) for x in parts])
        self._examine(taken, np.isnan(start).any() and np.isfinite(weights).all())
        return start, of_steps

    def _reason(self, states: list[np.ndarray], doubles: list[np.ndarray]) -> str | None:
        assembly: Any = self.setup.system
        return undefined.explained_copies(models.of_parts(assembly, self.rebuild(doubles)), states)

    def changed(self, taken: Taken, start: np.ndarray, of_steps: np.ndarray) -> np.ndarray:
        t, q, v, h, *doubles = self.apart(start, taken.doubles)
        data, changes = self.copy_args.spread(doubles, self._data), {"t": t[0], "q": q, "v": v, "h": h[0]}
        with MAKING:
            code = self._tangent
        carry, record = self._of_start(taken).changed(changes, data)  # LLVM works in the background
        steps = Tangents(code, self.setup.dims, *self._models(taken))
        both = np.stack([taken.times, taken.sizes], axis=1)
        found = steps.run(taken.blocks(False), both, carry, data, of_steps)
        changes_of_rows = np.concatenate([record[None], found])
        self._examine(taken, np.isnan(changes_of_rows).any() and np.isfinite(start).all())
        return changes_of_rows


class SparseGivenRun(SparseOperation, GivenSteps):
    """A run with given steps."""

    controlled = False


class SparseControlledRun(SparseOperation, ControlledSteps):
    """A run under error control."""

    controlled = True

    def _make_sampling(self) -> SparseSampling:
        return SparseSampling(self.setup)

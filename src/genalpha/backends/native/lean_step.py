"""The kernels of a step with given size whose stages share one small matrix. They are for GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genalpha.backends.native.step import StepKernels
from genalpha.backends.native.writer import Writer
from genalpha.compiler.differentiate import jacobian
from genalpha.compiler.graph import ZERO
from genalpha.engine.setup import Setup


def lean(setup: Setup) -> Setup | None:
    """The setup with a method whose stages are alike, if there is one and matrices are renewed as needed."""
    method = setup.method.staged(setup.dims)
    return setup._replace(method=method) if method.alike and setup.newton.policy == "modified" else None


class LeanWriter(Writer):
    """Writes the kernels of `LeanKernels`."""

    case = "partial"


@dataclass
class LeanKernels(StepKernels):
    """A step whose Newton matrix is that of the last stage of its method, once for each stage.

    What couples the stages is left out. Equal factors are computed and stored once, so a thread of a GPU
    needs little more than for a method with one stage. If the iteration does not converge, the step may still
    have a solution: the whole matrix must be tried.
    """

    writer = LeanWriter

    def _matrix(self, value: np.ndarray, x: np.ndarray) -> np.ndarray:
        stages = len(self.setup.method.stages(self.setup.dims))
        size = len(x) // stages
        matrix = np.full((len(x), len(x)), ZERO, dtype=np.int64)
        block = jacobian(self.graph, value[-size:], x[-size:])
        for first in range(0, len(x), size):
            matrix[first : first + size, first : first + size] = block
        return matrix

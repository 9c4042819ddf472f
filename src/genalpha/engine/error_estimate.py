"""The estimated local error of a step, from quantities that the step has computed anyway.

The true motion through (q_n, v_n) satisfies the update formulas of a method up to a defect. The defect is
estimated from divided differences of the accelerations (``Method.defect``). The error is the response of the
linearized step to this defect. So components that violate the constraints vanish, and stiff components are
damped. The cost is one product with the inverse of the Newton matrix, which the step has already. There is no
second nonlinear solve.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from genalpha.engine.setup import Setup
from genalpha.mechanics.system import Args
from genalpha.numerics.data import Carry, Scale, StepConstants
from genalpha.numerics.derivatives import value_and_rate


class Linearized(NamedTuple):
    """A step linearized at its solution x (N,), and the defects of its update formulas for q and v, (n,)."""

    setup: Setup
    scale: Scale
    step: StepConstants
    x: Array
    defect: tuple[Array, Array]
    args: Args

    @property
    def _coast(self) -> tuple[Array, Array]:
        return self.step.coast_q, self.step.coast_v

    def disturbance(self) -> Array:
        """The change of the residual (N,) that the defect causes."""
        system, method, _, dims, _ = self.setup
        equations = method.residual if method.exact_matrix else method.linearized

        def at(coast_q: Array, coast_v: Array) -> Array:
            moved = self.step._replace(coast_q=coast_q, coast_v=coast_v)
            return equations(system, moved, dims, self.scale, self.x, self.args)

        return value_and_rate(at, self._coast, self.defect)[1]

    def errors(self, correction: Array) -> Array:
        """Errors of q and v (2n,), from ``correction`` (N,): the inverse matrix times the disturbance."""
        method, dims = self.setup.method, self.setup.dims

        def reached(x: Array, coast_q: Array, coast_v: Array) -> Array:
            moved = self.step._replace(coast_q=coast_q, coast_v=coast_v)
            return jnp.concatenate(method.reached(moved, method.split(dims, self.scale, x)))

        errors = value_and_rate(reached, (self.x, *self._coast), (-correction, *self.defect))[1]
        return errors if method.watches_velocity else jnp.append(errors[: dims.n], jnp.zeros(dims.n))


def linearized(
    setup: Setup, scale: Scale, carry: Carry, step: StepConstants, x: Array, a1: Array, args: Args
) -> Linearized:
    """The step from ``carry`` with the solution x and the acceleration a1 (n,), linearized."""
    defect = setup.method.defect(setup.system.space.bracket, carry, step, a1)
    return Linearized(setup, scale, step, x, defect, args)

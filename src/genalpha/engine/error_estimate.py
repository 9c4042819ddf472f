"""The local error of a step, from what the step computed.

The motion through (q_n, v_n) misses the update formulas of a method by a defect that divided differences of
its accelerations tell (``Method.defect``). The error is the response of the linearized step to that
defect: constraints take away what they forbid, stiff forces what they damp. It takes one product with the
inverse of the Newton matrix that the step has at hand, and no second nonlinear solve.
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
    """A step at its solution x (N,), and the defect of its update formulas, (n,) for q and for v."""

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
        """What the defect leaves in the residual (N,)."""
        system, method, _, dims, _ = self.setup
        equations = method.residual if method.exact_matrix else method.linearized

        def at(coast_q: Array, coast_v: Array) -> Array:
            moved = self.step._replace(coast_q=coast_q, coast_v=coast_v)
            return equations(system, moved, dims, self.scale, self.x, self.args)

        return value_and_rate(at, self._coast, self.defect)[1]

    def errors(self, correction: Array) -> Array:
        """Errors of q and v, one after the other (2n,), from the inverse times the disturbance (N,)."""
        method, dims = self.setup.method, self.setup.dims

        def reached(x: Array, coast_q: Array, coast_v: Array) -> Array:
            moved = self.step._replace(coast_q=coast_q, coast_v=coast_v)
            return jnp.concatenate(method.reached(moved, method.split(dims, self.scale, x)))

        errors = value_and_rate(reached, (self.x, *self._coast), (-correction, *self.defect))[1]
        return errors if method.watches_velocity else jnp.append(errors[: dims.n], jnp.zeros(dims.n))


def linearized(
    setup: Setup, scale: Scale, carry: Carry, step: StepConstants, x: Array, a1: Array, args: Args
) -> Linearized:
    """A step from ``carry`` that led to the unknowns x and the acceleration a1 (n,)."""
    defect = setup.method.defect(setup.system.space.bracket, carry, step, a1)
    return Linearized(setup, scale, step, x, defect, args)

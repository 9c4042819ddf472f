"""Resets of events as functions of arrays, which machine code computes and differentiates."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from genalpha.backends.transforms.rows import RowOperation
from genalpha.compiler.graph import Unsupported
from genalpha.compiler.rows import RowFunction, SingularExample
from genalpha.engine import events
from genalpha.engine.events import Event
from genalpha.engine.setup import Setup
from genalpha.mechanics.system import Args, Dims
from genalpha.mechanics.user_errors import explaining
from genalpha.numerics.data import State
from genalpha.run import arguments
from genalpha.run.native_traced import separated


class Changed(NamedTuple):
    """What holds after a reset: q, v, the arguments that hold doubles, and 1 if the run ends, else 0."""

    q: Any
    v: Any
    doubles: list[Any]
    stop: Any


class ResetOperation(RowOperation):
    """The reset of event ``number``, with an example of ``args``. It may change them, ``changes_args``."""

    def __init__(self, setup: Setup, number: int, event: Event, args: Args) -> None:
        self.setup, self.number, self.event, self.args = setup, number, event, args
        values, self.rebuild, self._about = separated(args)
        self.changes_args = False
        inputs = (blank_state(setup.dims), values)
        super().__init__(f"reset_{number}", self._changed, inputs, [False] * (6 + len(values)))
        try:
            RowFunction("reset", self._changed, inputs, None, False)
        except SingularExample:  # it may work at the event
            pass
        except Unsupported as reason:
            raise ValueError(
                f"events under a JAX transform: the reset of event {number} cannot become machine code: "
                f"{reason}"
            ) from reason

    def _changed(self, state: State, values: list[Any]) -> Changed:
        with explaining(f"the reset of event {self.number}, which is traced under a JAX transform"):
            wanted = events.reset_of(self.event, state, self.rebuild(values))
        self.changes_args |= wanted.args is not None
        q = state.q if wanted.q is None else self.setup.system.space.normalize(jnp.asarray(wanted.q, float))
        v = state.v if wanted.v is None else jnp.asarray(wanted.v, float)
        for name, value, like in (("positions", q, state.q), ("velocities", v, state.v)):
            if jnp.shape(value) != jnp.shape(like):
                raise ValueError(
                    f"the reset of event {self.number} must return {name} of shape {jnp.shape(like)}, got "
                    f"{jnp.shape(value)}"
                )
        after = values if wanted.args is None else self._doubles(wanted.args)
        return Changed(q, v, after, jnp.asarray(wanted.stop, float))

    def _doubles(self, args: Any) -> list[Any]:
        """The doubles in args that the reset has returned. All else must be as it was."""
        told = f"the reset of event {self.number} returned"
        values, _, about = separated(arguments.alike(self.args, args, told))
        if about != self._about:
            raise ValueError(
                f"{told} other arguments that hold no doubles. They are constants of the code, so this is "
                "not possible under a JAX transform"
            )
        return values


def blank_state(dims: Dims) -> State:
    """A state with the right shapes."""
    parts = (np.zeros(k) for k in (dims.size, dims.n, dims.n, dims.m, dims.p))
    return State(np.zeros(()), *parts)  # type: ignore[arg-type]

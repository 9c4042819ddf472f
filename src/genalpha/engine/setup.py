"""The parts of a run that are fixed before anything is traced."""

from __future__ import annotations

from typing import NamedTuple

from genalpha.engine.events import Crossing
from genalpha.mechanics.system import Dims, System
from genalpha.methods import Method
from genalpha.numerics.newton import Newton


class Setup(NamedTuple):
    """A system with its sizes, the method and Newton's settings, and the functions of events."""

    system: System
    method: Method
    newton: Newton
    dims: Dims
    crossings: tuple[Crossing, ...] = ()

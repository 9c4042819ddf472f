"""The unknowns of a step, as a method declares them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

Like = Literal["a", "lam", "psi"]
Start = Literal["a", "v_dot", "lam", "psi"]


@dataclass(frozen=True)
class Unknown:
    """A block of unknowns of a step.

    Parameters
    ----------
    name : its name in the result of :meth:`Method.split`.
    size : how many numbers it has. It may be zero.
    like : it is scaled like accelerations (``"a"``), λ (``"lam"``) or ψ (``"psi"``). None: it is not scaled,
        or the method does it.
    start : the first guess of Newton's iteration in the first step: the method's own acceleration (``"a"``),
        v' (``"v_dot"``), λ (``"lam"``) or ψ (``"psi"``) at the start. None: zero.
    rounding : for an unknown that is determined by rows g/(βh²): the error that Newton's iteration may leave
        in it, in units of ε|q|/h². None: rounding errors of positions do not affect it.
    """

    name: str
    size: int
    like: Like | None = None
    start: Start | None = None
    rounding: float | None = None

    def __post_init__(self) -> None:
        for part, allowed in (("like", get_args(Like)), ("start", get_args(Start))):
            value = getattr(self, part)
            if value is not None and value not in allowed:
                raise ValueError(
                    f"{part} of the unknown {self.name!r} must be None or one of {', '.join(allowed)}, "
                    f"got {value!r}"
                )


class Stage(NamedTuple):
    """Equations that are solved for some of the unknowns, with the others held: names of both."""

    unknowns: tuple[str, ...]
    rows: tuple[str, ...]

"""The integration methods, one file each, and the table of their names.

A method of your own derives from :class:`Method`. The types in the signatures of its functions are here too.
Pass an object of it as ``method=``. To use it by name, add a line to the table below.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from genalpha.errors import unknown
from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args, Dims
from genalpha.methods.base import Method, Unknown
from genalpha.methods.coefficients import Coefficients, chung_hulbert, hht
from genalpha.methods.coordinate_split import CoordinateSplit
from genalpha.methods.dae_alpha import DAEAlpha
from genalpha.methods.generalized_alpha import GeneralizedAlpha
from genalpha.methods.index3 import HHTI3, Index3
from genalpha.methods.projected import ProjectedAlpha
from genalpha.methods.soi2 import HHTSOI2, SOI2
from genalpha.methods.stabilized import StabilizedIndex2
from genalpha.numerics.data import Carry, Scale, StepConstants, StepOutput

__all__ = [
    "HHTI3",
    "HHTSOI2",
    "SOI2",
    "Args",
    "Beginning",
    "Carry",
    "CoordinateSplit",
    "DAEAlpha",
    "Dims",
    "GeneralizedAlpha",
    "Index3",
    "Method",
    "ProjectedAlpha",
    "Scale",
    "StabilizedIndex2",
    "StepConstants",
    "StepOutput",
    "Unknown",
    "by_name",
    "names",
]


def _hht(rho_inf: float) -> Coefficients:
    if rho_inf < 0.5:
        raise ValueError(
            f"rho_inf = {rho_inf:g} must lie in [1/2, 1] for the HHT family: alpha = -(1-rho)/(1+rho) >= -1/3"
        )
    return hht(-(1 - rho_inf) / (1 + rho_inf))


_TABLE: dict[str, Callable[[float], Method]] = {
    "soi2": lambda rho_inf: SOI2(chung_hulbert(rho_inf)),
    "hht-soi2": lambda rho_inf: HHTSOI2(_hht(rho_inf)),
    "index3": lambda rho_inf: Index3(chung_hulbert(rho_inf)),
    "hht-i3": lambda rho_inf: HHTI3(_hht(rho_inf)),
    "stabilized": lambda rho_inf: StabilizedIndex2(chung_hulbert(rho_inf)),
    "dae-alpha": lambda rho_inf: DAEAlpha(chung_hulbert(rho_inf)),
    "cs": lambda rho_inf: CoordinateSplit(chung_hulbert(rho_inf)),
    "cm": lambda rho_inf: CoordinateSplit(chung_hulbert(rho_inf), iteration="cm"),
    "projected": lambda rho_inf: ProjectedAlpha(chung_hulbert(rho_inf)),
    "generalized-alpha": lambda rho_inf: GeneralizedAlpha(chung_hulbert(rho_inf)),
}


def names() -> list[str]:
    """The names of all methods."""
    return list(_TABLE)


def by_name(name: str, rho_inf: float) -> Method:
    """The method ``name`` with the damping ``rho_inf`` in [0, 1].

    >>> by_name("soi2", 0.8).coefficients.name
    'Chung-Hulbert(ρ∞=0.8)'
    """
    if not 0 <= rho_inf <= 1:
        raise ValueError(f"rho_inf = {rho_inf} must lie in [0, 1]: 0 damps most, 1 not at all")
    if name not in _TABLE:
        raise unknown("method", name, _TABLE)
    return _made(name, float(rho_inf))


@functools.lru_cache(maxsize=64)
def _made(name: str, rho_inf: float) -> Method:
    return _TABLE[name](rho_inf)

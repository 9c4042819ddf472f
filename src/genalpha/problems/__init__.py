"""Named problems with parameters, reference solutions and their sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genalpha.errors import unknown
from genalpha.problems import (
    _andrews,
    _bodies,
    _body_chain,
    _jay,
    _mechanisms,
    _rolling_disk,
    _slider_crank,
    _yen,
)
from genalpha.problems._problem import Problem

__all__ = ["Problem", "get", "names"]

_TABLE: dict[str, Callable[..., Problem]] = {
    "jay-negrut": _jay.jay_negrut,
    "pendulum": _jay.pendulum,
    "jay-nonholonomic": _jay.jay_nonholonomic,
    "rolling-disk": _rolling_disk.rolling_disk,
    "slider-crank": _slider_crank.slider_crank,
    "double-pendulum": _mechanisms.double_pendulum,
    "wheel-on-rod": _mechanisms.wheel_on_rod,
    "spring-chain": _mechanisms.spring_chain,
    "andrews": _andrews.andrews,
    "stiff-spring-pendulum": _yen.stiff_spring_pendulum,
    "bushing": _yen.bushing,
    "flexible-slider-crank": _yen.flexible_slider_crank,
    "heavy-top": _bodies.heavy_top,
    "rigid-body": _bodies.rigid_body,
    "body-chain": _body_chain.body_chain,
}


def names() -> list[str]:
    """The names of all problems.

    >>> names()[:2]
    ['jay-negrut', 'pendulum']
    """
    return list(_TABLE)


def get(name: str, **parameters: Any) -> Problem:
    """A problem by name. Parameters that are not given have their default values.

    >>> disk = get("rolling-disk")
    >>> disk.coordinates
    ('x', 'y', 'tilt', 'heading', 'spin')
    >>> len(get("spring-chain", n=3).q0)
    3
    """
    if name not in _TABLE:
        raise unknown("problem", name, _TABLE)
    return _TABLE[name](**parameters)

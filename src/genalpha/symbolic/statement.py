"""What SymPy's objects state, in one form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
from sympy.physics import mechanics


@dataclass
class Statement:
    """Coordinates, speeds, equations of motion in one of three forms, and constraints.

    The equations of motion follow from a Lagrangian and loads, from bodies and loads, or are a mass matrix
    and forcing terms in the speeds. Without ``kinematics`` the speeds are the derivatives of the coordinates.
    """

    coordinates: list[Any]
    speeds: list[Any] = field(default_factory=list)
    kinematics: list[Any] = field(default_factory=list)
    auxiliary: list[Any] = field(default_factory=list)
    frame: Any = None
    bodies: list[Any] = field(default_factory=list)
    loads: list[Any] = field(default_factory=list)
    lagrangian: Any = None
    mass: Any = None
    forcing: Any = None
    configuration: list[Any] = field(default_factory=list)
    velocity: list[Any] = field(default_factory=list)
    acceleration: list[Any] = field(default_factory=list)


def state(source: Any) -> Statement:
    """The statement of a ``LagrangesMethod``, ``KanesMethod`` or ``System`` of SymPy, or of expressions."""
    from genalpha.symbolic.front import Expressions

    if isinstance(source, mechanics.LagrangesMethod):
        return _lagrange(source)
    if isinstance(source, mechanics.KanesMethod):
        return _kane(source)
    if isinstance(source, mechanics.System):
        if isinstance(source.eom_method, mechanics.LagrangesMethod):
            return _lagrange(source.eom_method)
        return _system(source)
    if isinstance(source, Expressions):
        return _expressions(source)
    raise TypeError(
        "from_sympy takes a LagrangesMethod, a KanesMethod or a System of sympy.physics.mechanics, or "
        f"ga.Expressions(...), got {type(source).__name__}"
    )


def _lagrange(source: Any) -> Statement:
    # SymPy has no public name for the holonomic constraints.
    configuration = list(source._hol_coneqs)
    return Statement(
        list(source.q),
        frame=source.inertial,
        loads=_loads(source.forcelist),
        lagrangian=source._L[0],
        bodies=list(source.bodies or []),
        configuration=configuration,
        velocity=list(source.coneqs)[len(configuration) :],
    )


def _kane(source: Any) -> Statement:
    # The equations are formed anew from the bodies, so they need not be formed, and dependent speeds are not
    # eliminated. SymPy has no public names for constraints and for kinematic equations as they were given.
    if not source.bodies:
        raise ValueError(
            "the KanesMethod has no bodies: pass bodies= and forcelist= to it, or call kanes_equations"
        )
    q, u = sympy.Matrix(source.q), sympy.Matrix(source.u)
    rates = q.diff(mechanics.dynamicsymbols._t)
    kinematics: list[Any] = []
    if source._k_kqdot_implicit:
        kinematics = list(source._k_kqdot_implicit * rates + source._k_ku_implicit * u + source._f_k_implicit)
    velocity = list(source._k_nh * u + source._f_nh) if source._k_nh else []
    changes = u.diff(mechanics.dynamicsymbols._t)
    return Statement(
        list(q),
        list(u),
        kinematics,
        list(source._uaux),
        source._inertial,
        list(source.bodies),
        _loads(source.forcelist),
        configuration=list(source._f_h),
        velocity=velocity,
        acceleration=list(source._k_dnh * changes + source._f_dnh) if velocity else [],
    )


def _system(source: Any) -> Statement:
    loads = _loads(source.loads)
    for actuator in source.actuators:
        loads += _loads(actuator.to_loads())
    return Statement(
        list(source.q),
        list(source.u),
        list(source.kdes),
        list(source.u_aux),
        source.frame,
        list(source.bodies),
        loads,
        configuration=list(source.holonomic_constraints),
        velocity=list(source.velocity_constraints),
    )


def _expressions(source: Any) -> Statement:
    listed = {name: _listed(getattr(source, name), name) for name in ("coordinates", "speeds", "forcing")}
    count = len(listed["speeds"] or listed["coordinates"])
    mass = sympy.Matrix(source.mass)
    if mass.shape != (count, count):
        raise ValueError(
            f"mass has shape {mass.shape}, and there are {count} speeds: ({count}, {count}) is needed"
        )
    if len(listed["forcing"]) != count:
        raise ValueError(f"forcing has {len(listed['forcing'])} entries, and there are {count} speeds")
    kinematics = source.kinematics
    if isinstance(kinematics, dict):  # {q': expression of speeds}
        kinematics = [rate - value for rate, value in kinematics.items()]
    return Statement(
        listed["coordinates"],
        listed["speeds"],
        _listed(kinematics, "kinematics"),
        mass=mass,
        forcing=listed["forcing"],
        configuration=_listed(source.configuration, "configuration"),
        velocity=_listed(source.velocity, "velocity"),
    )


def _listed(values: Any, name: str) -> list[Any]:
    if values is None:
        return []
    if not isinstance(values, Sequence | sympy.MatrixBase):
        raise TypeError(f"{name} must be a list or a matrix of expressions, got {type(values).__name__}")
    return [sympy.sympify(x) for x in values]


def _loads(loads: Any) -> list[Any]:
    """Pairs of a point or a frame and a vector."""
    return [(place, vector) for place, vector in loads or []]

"""Wrong input: every message names what is wrong."""

import numpy as np
import pytest
import sympy as sp
from examples import sympy_models as models
from sympy.physics import mechanics as me

import genalpha as ga

x, y, u1, u2 = me.dynamicsymbols("x y u1 u2")
m, k = sp.symbols("m k")
t = me.dynamicsymbols._t


def point(forcing=(0, 0), mass=None, **others):
    """A point in the plane."""
    return ga.Expressions(sp.eye(2) * m if mass is None else mass, list(forcing), [x, y], **others)


def refused(message, source, *options, error=ValueError, **named):
    with pytest.raises(error, match=message):
        ga.from_sympy(source, *options, **named)


def test_sources():
    refused("from_sympy takes a LagrangesMethod.*got int", 3, error=TypeError)
    frame = me.ReferenceFrame("N")
    method = me.KanesMethod(frame, [x], [u1], kd_eqs=[x.diff() - u1])
    refused("KanesMethod has no bodies", method)


def test_expressions_that_are_not_known():
    F = me.dynamicsymbols("F")
    refused(r"forcing contains F\(t\), which is no coordinate.*specified=", point([F, 0]))
    refused(r"unevaluated derivative Derivative\(sin\(x", point([sp.Derivative(sp.sin(x), x), 0]))
    refused(r"contains f\(x\(t\)\), a function that is not known", point([sp.Function("f")(x), 0]))
    refused(r"contains the derivative Derivative\(x\(t\), \(t, 3\)\)", point([x.diff(t, 3), 0]))
    refused("second derivatives of x", point([x.diff(t, 2), 0]))
    refused("contains zeta", point([sp.zeta(x), 0]))
    refused("which is no finite real number", point([sp.I * 2 * sp.pi, 0]))
    refused("mass matrix depends on the derivatives of x", point(mass=[[x.diff() ** 2 + 1, 0], [0, 1]]))
    same = sp.Symbol("m", positive=True)
    refused("a symbol 'm' that is not the 'm' found elsewhere", point([same, 0]))


def test_shapes():
    refused(r"mass has shape \(1, 2\)", point(mass=[[1, 2]]))
    refused("forcing has 3 entries, and there are 2 speeds", point([0, 0, 0]))
    refused("listed twice.*x", ga.Expressions(sp.eye(2), [0, 0], [x, x]))
    refused("there are no coordinates", ga.Expressions(sp.zeros(0), [], []))
    refused("velocity must be a list", point(velocity=x), error=TypeError)


def test_kinematic_equations():
    missing = point(speeds=[u1, u2])
    refused(r"kinematic equations are missing.*u1\(t\), u2\(t\)", missing)
    refused("1 kinematic equations for 2 coordinates", point(speeds=[u1, u2], kinematics=[x.diff() - u1]))
    twice = point(speeds=[u1, u2], kinematics=[x.diff() - u1, y.diff() - u1])
    refused(r"do not determine the speeds u2\(t\)", twice)
    square = point(speeds=[u1, u2], kinematics=[x.diff() - u1**2, y.diff() - u2])
    refused("not linear in the speeds", square)
    mixed = point(speeds=[x.diff(), u2], kinematics=[y.diff() - u2, x.diff() - u2])
    refused("is among the speeds", mixed)
    frame, place = me.ReferenceFrame("N"), me.Point("P")
    place.set_vel(frame, u1 * frame.x)
    bare = me.KanesMethod(frame, [x], [u1], bodies=[me.Particle("P", place, m)])
    refused("kinematic equations are missing", bare)


def test_constraints():
    refused("depends on speeds: it is a velocity constraint", point(configuration=[x.diff() - 1]))
    refused("m - 1 = 0 depends on no coordinate", point(configuration=[m - 1]))
    refused("x.t. - 1 = 0 depends on no speed", point(velocity=[x - 1]))
    refused(r"x\(t\) - 2 = 0 contradicts", point(configuration=[x - 1, x - 2]), {m: 1.0})
    both = point(velocity=[x.diff() - 1, 2 * x.diff() - 4])
    refused("velocity constraint .* contradicts", both)
    refused(
        "velocity constraint .* contradicts", point(configuration=[x + y], velocity=[x.diff() + y.diff() - 1])
    )
    agreeing = point(configuration=[x - 1, 3 * x - 3])
    assert ga.from_sympy(agreeing, {m: 1.0}).names["holonomic"] == ["configuration 1", "configuration 2"]


def test_acceleration_constraints():
    frame, place = me.ReferenceFrame("N"), me.Point("P")
    place.set_vel(frame, u1 * frame.x + u2 * frame.y)
    options = {
        "kd_eqs": [x.diff() - u1, y.diff() - u2],
        "u_dependent": [u2],
        "velocity_constraints": [u2 - x * u1],
    }
    options |= {"bodies": [me.Particle("P", place, m)], "forcelist": [(place, m * frame.x)]}
    make = lambda row: me.KanesMethod(frame, [x, y], [u1], acceleration_constraints=[row], **options)
    right = u2.diff() - x * u1.diff() - u1**2
    assert ga.from_sympy(make(right)).nonholonomic is not None
    refused("acceleration constraint .* is not the derivative", make(right + 1))


def test_parameters():
    refused("unknown parameter 'mm': do you mean 'm'", point(), {"mm": 1.0})
    refused(r"parameter m has shape \(2,\)", point(), {m: [1.0, 2.0]})
    refused("parameters must be a dict", point(), [1.0], error=TypeError)
    system = ga.from_sympy(point([-k * x, 0]))
    assert system.missing == ("m", "k")
    start = (np.zeros(2), np.zeros(2))
    with pytest.raises(ValueError, match="missing parameters: m, k"):
        ga.solve(system, (0.0, 1.0), *start, h=0.1)
    with pytest.raises(ValueError, match="missing parameters: k"):
        ga.solve(system, (0.0, 1.0), *start, h=0.1, args=({"m": 1.0},))
    with pytest.raises(ValueError, match="unknown parameter 'c' in args"):
        ga.solve(system, (0.0, 1.0), *start, h=0.1, args=({"m": 1.0, "k": 1.0, "c": 2.0},))
    with pytest.raises(TypeError, match="one dict of parameters in a tuple"):
        ga.solve(system, (0.0, 1.0), *start, h=0.1, args=(1.0, 2.0))


def test_given_functions():
    F = me.dynamicsymbols("F")
    source = point([F, 0])
    refused("no function of time", source, None, {m: 1.0})
    refused(r"x\(t\), which is a coordinate or a speed", source, None, {x: 1.0})
    refused("must be an expression, a number", source, None, {F: "sin"})
    refused(r"times of shape \(3,\) and values of shape \(2,\)", source, None, {F: ([0, 1, 2], [0, 1])})
    refused("times in the table of F.t. must increase", source, None, {F: ([0, 2, 1], [0, 1, 2])})
    refused(r"returns an array of shape \(2,\)", source, None, {F: lambda t: np.zeros(2)})
    refused("cannot be computed", source, None, {F: lambda t: t.missing})
    refused("specified must be a dict", source, None, [F], error=TypeError)


def test_starts_and_values():
    system = ga.from_sympy(point(), {m: 1.0})
    with pytest.raises(ValueError, match=r"coordinates have shape \(3,\), and there are 2: x, y"):
        system.start([0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="missing coordinates: y"):
        system.start({x: 1.0})
    with pytest.raises(ValueError, match="'z' is none of the coordinates"):
        system.start({"x": 1.0, "y": 0.0, "z": 0.0})
    with pytest.raises(ValueError, match=r"speeds have shape \(1,\), and there are 2: x', y'"):
        system.start([0.0, 1.0], [1.0])
    with pytest.raises(ValueError, match="contains k, which the system does not"):
        system.values(None, k * x)


def test_loads_need_a_frame():
    place, frame = me.Point("P"), me.ReferenceFrame("N")
    place.set_vel(frame, x.diff() * frame.x)
    method = me.LagrangesMethod(m * x.diff() ** 2 / 2, [x], forcelist=[(place, frame.x)])
    refused("no inertial frame", method)


def test_names_of_a_model():
    method, numbers = models.rolling_disc()
    system = ga.from_sympy(method, numbers)
    assert system.coordinates == ("yaw", "lean", "spin", "x", "y")
    assert system.names["v"] == ["yaw'", "u1", "spin'", "u4", "u5"]
    assert repr(system) == "SymbolicSystem(coordinates yaw, lean, spin, x, y; parameters r, m, g)"

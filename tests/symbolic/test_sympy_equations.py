"""Accelerations and multipliers agree with SymPy's own equations at random states."""

import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from examples import sympy_models as models
from sympy.physics import mechanics as me

import genalpha as ga
import sympy_reference as reference


class Row:
    """One row of a solution."""

    def __init__(self, q, v, a):
        self.t, self.q, self.v, self.a = np.zeros(1), q[None], v[None], np.asarray(a)[None]


def rates_of_speeds(system, speeds, q, v):
    """u and u' that the system finds."""
    state = ga.consistent(system, 0.0, q, v)
    row = Row(q, v, state.a)
    found = system.values(row, [*speeds, *(u.diff() for u in speeds)])
    return np.split(np.concatenate(found), 2)


def agree(method, numbers, near, spread, given=None, specified=None, source=None):
    """Compare u' at a random state on the constraints with a ``KanesMethod``."""
    draw = np.random.default_rng(3)
    system = ga.from_sympy(source or method, numbers, specified)
    q, u = list(method.q), list(method.u)
    at = near + spread * draw.uniform(-1, 1, len(q))
    if method._f_h:
        at = reference.closed(method._f_h, q, numbers, at)
    speeds = draw.uniform(-1, 1, len(u))
    if method._k_nh:
        rows = method._k_nh * sp.Matrix(u) + method._f_nh
        speeds = reference.moving(rows, q, u, numbers, at, speeds)
    place, v = system.start(at, speeds)
    found, changes = rates_of_speeds(system, u, place, v)
    np.testing.assert_allclose(found, speeds, atol=1e-12)
    if method._fr is None:
        method.kanes_equations()
    wanted = reference.kane_rates(method, numbers, at, speeds, given)
    np.testing.assert_allclose(changes, wanted, rtol=1e-10, atol=1e-10)
    return system


def test_lagrange_accelerations_and_multipliers():
    """λ has the order and the sign of SymPy's ``eom``. The sign in its ``mass_matrix`` is the other one."""
    method, numbers = models.chain(3)
    q = list(method.q)
    rates = [x.diff() for x in q]
    slip = q[0] * rates[1] - rates[2] * sp.cos(q[1])
    closing = list(method._hol_coneqs)[:1]
    method = me.LagrangesMethod(method._L[0], q, hol_coneqs=closing, nonhol_coneqs=[slip])
    system = ga.from_sympy(method, numbers)
    assert system.names["holonomic"] == ["lam1"]
    assert system.names["nonholonomic"] == ["lam2"]
    at = reference.closed(closing, q, numbers, models.chain_start(3) + np.array([0.2, -0.1, 0.3]))
    speeds = reference.moving(method.coneqs, q, rates, numbers, at, np.array([0.3, -1.0, 0.5]))
    state = ga.consistent(system, 0.0, at, speeds)
    method.form_lagranges_equations()
    accelerations, multipliers = reference.lagrange_rates(method, numbers, at, speeds)
    np.testing.assert_allclose(state.a, accelerations, rtol=1e-10, atol=1e-10)
    found = [*state.lam, *state.psi]
    np.testing.assert_allclose(found, -multipliers, rtol=1e-10, atol=1e-10)
    variables = [*q, *rates, *(x.diff() for x in rates), *method.lam_vec]
    equations = reference.function(method.eom, list(numbers), variables)
    residual = equations(list(numbers.values()), [*at, *speeds, *state.a, *found])
    np.testing.assert_allclose(residual, 0.0, atol=1e-10)


def test_four_bar_linkage_with_dependent_speeds():
    method, numbers = models.four_bar()
    system = agree(method, numbers, np.array([0.5, 1.0, -1.5]), 0.1)
    assert system.names["v"] == ["u1", "u2", "u3"]
    assert system.names["holonomic"] == ["configuration 1", "configuration 2"]
    assert system.nonholonomic is None  # both velocity constraints are derivatives
    assert system.bodies == ("crank", "coupler", "rocker")


def test_rolling_disc_with_speeds_that_are_no_derivatives():
    method, numbers = models.rolling_disc()
    system = agree(method, numbers, np.zeros(5), 0.8)
    assert system.holonomic is None
    assert len(system.names["nonholonomic"]) == 2


def test_a_system_with_joints_and_a_given_torque():
    model, numbers = models.arm_with_slider()
    model.form_eoms()
    torque = me.dynamicsymbols("T")
    given, force = {torque: 1.7}, {"T": lambda t: 1.7 + 0.3 * t}
    system = agree(model.eom_method, numbers, np.array([1.0, -1.6]), 0.1, given, force, source=model)
    assert system.coordinates == ("q1", "q2")
    assert system.missing == ()  # numbers of the ground do not matter


@pytest.mark.slow
def test_bicycle_with_speeds_without_coordinates():
    method, numbers = models.bicycle()
    system = agree(method, numbers, np.zeros(4), 0.3)
    assert system.coordinates[4:] == ("∫u5", "∫u6")
    assert len(system.names["holonomic"]) == 1
    assert len(system.names["nonholonomic"]) == 2  # the third is a derivative


def polar(kinematics=None):
    """A free point in polar coordinates, with the speeds u1 = r' and u2 = r φ'."""
    r, phi, u1, u2 = me.dynamicsymbols("r phi u1 u2")
    m = sp.Symbol("m")
    return ga.Expressions(
        mass=[[m, 0], [0, m]],
        forcing=[m * u2**2 / r, -m * u1 * u2 / r],
        coordinates=[r, phi],
        speeds=[u1, u2],
        kinematics=kinematics or {r.diff(): u1, phi.diff(): u2 / r},
    )


def test_expressions_with_speeds_of_their_own():
    """r'' = r φ'² and φ'' = −2 r' φ' / r, and a mass matrix diag(m, m r²)."""
    system = ga.from_sympy(polar(), {"m": 2.0})
    q, v = system.start([1.5, 0.3], {"u1": 0.7, "u2": -0.9})
    np.testing.assert_allclose(v, [0.7, -0.6], rtol=1e-15)
    M, f = (np.asarray(x) for x in (system.M(0.0, q), system.applied(0.0, q, v)))
    np.testing.assert_allclose(M, np.diag([2.0, 2.0 * 1.5**2]), rtol=1e-15)
    np.testing.assert_allclose(np.linalg.solve(M, f), [1.5 * 0.6**2, 2 * 0.7 * 0.6 / 1.5], rtol=1e-14)


def test_speeds_in_another_order_than_the_coordinates():
    x, y = me.dynamicsymbols("x y")
    stated = ga.Expressions([[1, 0], [0, 2]], [x, y], [x, y], [y.diff(), x.diff()])
    system = ga.from_sympy(stated)
    np.testing.assert_allclose(system.M(0.0, jnp.zeros(2)), np.diag([2.0, 1.0]))
    np.testing.assert_allclose(system.applied(0.0, jnp.array([3.0, 5.0]), jnp.zeros(2)), [5.0, 3.0])


@pytest.mark.slow
def test_more_coordinates_than_speeds():
    """A free body with four Euler parameters and three speeds: Euler's equations, and a unit quaternion."""
    e, u = me.dynamicsymbols("e0:4"), me.dynamicsymbols("u1:4")
    A, B, C = moments = sp.symbols("A B C")
    forcing = [(B - C) * u[1] * u[2], (C - A) * u[2] * u[0], (A - B) * u[0] * u[1]]
    half = sp.Rational(1, 2)
    turned = [
        -half * (e[1] * u[0] + e[2] * u[1] + e[3] * u[2]),
        half * (e[0] * u[0] - e[3] * u[1] + e[2] * u[2]),
        half * (e[3] * u[0] + e[0] * u[1] - e[1] * u[2]),
        half * (-e[2] * u[0] + e[1] * u[1] + e[0] * u[2]),
    ]
    rates = {a.diff(): b for a, b in zip(e, turned, strict=True)}
    stated = ga.Expressions(sp.diag(*moments), forcing, e, u, rates)
    system = ga.from_sympy(stated, {A: 1.0, B: 2.0, C: 3.5})
    start = np.array([0.8, 0.36, 0.48, 0.0])
    speeds = np.array([0.5, -0.8, 1.1])
    q, _ = system.start(start, speeds)
    # q' follows from the rates, since the speeds alone determine three of its four entries
    v = np.array(
        sp.Matrix(turned).subs(dict(zip([*e, *u], [*start, *speeds], strict=True))), dtype=float
    ).ravel()
    found, changes = rates_of_speeds(system, u, q, v)
    np.testing.assert_allclose(found, speeds, atol=1e-13)
    wanted = [(2 - 3.5) * -0.8 * 1.1, (3.5 - 1) * 1.1 * 0.5 / 2, (1 - 2) * 0.5 * -0.8 / 3.5]
    np.testing.assert_allclose(changes, wanted, rtol=1e-11)
    sol = ga.solve(system, (0.0, 1.0), q, v, h=1e-3)
    np.testing.assert_allclose(np.linalg.norm(sol.q, axis=1), 1.0, atol=1e-5)


def test_velocity_constraints_that_follow_only_on_the_configuration_constraints():
    """x x' + y y' = 0 times (1 + g) is recognised, and a constraint in which x² = 1 − y² has been used."""
    x, y = me.dynamicsymbols("x y")
    g, rate = x**2 + y**2 - 1, x * x.diff() + y * y.diff()
    for velocity in ([rate * (1 + g)], [(1 - y**2) * x.diff() + x * y * y.diff()]):
        stated = ga.Expressions(sp.eye(2), [0, -9.81], [x, y], configuration=[g], velocity=velocity)
        assert ga.from_sympy(stated).nonholonomic is None
    other = ga.Expressions(sp.eye(2), [0, 0], [x, y], configuration=[g], velocity=[x.diff() - 1])
    assert ga.from_sympy(other).nonholonomic is not None


def pendulum(support, **options):
    """A pendulum whose support moves by s(t)."""
    phi, s = me.dynamicsymbols("phi s")
    m, g, length = sp.symbols("m g l")
    t = me.dynamicsymbols._t
    x, y = s + length * sp.sin(phi), -length * sp.cos(phi)
    lagrangian = m * (x.diff(t) ** 2 + y.diff(t) ** 2) / 2 - m * g * y
    numbers = {"m": 2.0, "g": 9.81, "l": 0.7}
    return ga.from_sympy(me.LagrangesMethod(lagrangian, [phi]), numbers, {s: support})


def test_given_functions_of_time():
    """φ'' = −(g sin φ + s'' cos φ) / l for an expression, a function of JAX, and a table."""
    t = me.dynamicsymbols._t
    times = np.linspace(0.0, 1.0, 401)
    at, phi = 0.4, jnp.array([0.6])
    wanted = -(9.81 * np.sin(0.6) - 9 * 0.1 * np.sin(3 * at) * np.cos(0.6)) / 0.7
    supports = (sp.sin(3 * t) / 10, lambda t: 0.1 * jnp.sin(3 * t), (times, 0.1 * np.sin(3 * times)))
    for support, tolerance in zip(supports, (1e-13, 1e-13, 1e-5), strict=True):
        system = pendulum(support)
        a = float(system.applied(at, phi, jnp.array([1.3]))[0] / system.M(at, phi)[0, 0])
        assert a == pytest.approx(wanted, rel=tolerance)


def test_a_constraint_that_moves():
    """A bead that is led along x by s(t) = t³, with its velocity constraint: the force is m s''."""
    x, y, u1, u2 = me.dynamicsymbols("x y u1 u2")
    (m, s), frame, place = (sp.Symbol("m"), me.dynamicsymbols("s")), me.ReferenceFrame("N"), me.Point("P")
    place.set_vel(frame, u1 * frame.x + u2 * frame.y)
    rows = {"q_dependent": [x], "configuration_constraints": [x - s]}
    rows |= {"u_dependent": [u1], "velocity_constraints": [u1 - s.diff()]}
    kinematics = [y.diff() - u2, x.diff() - u1]
    bodies = [me.Particle("P", place, m)]
    method = me.KanesMethod(frame, [y], [u2], kinematics, **rows, bodies=bodies, forcelist=[(place, frame.y)])
    system = ga.from_sympy(method, {m: 2.0}, {s: lambda t: t**3})
    assert system.nonholonomic is None
    sol = ga.solve(system, (1.0, 1.1), *system.start({x: 1.0, y: 0.0}, {u1: 3.0, u2: 0.0}), h=0.01)
    np.testing.assert_allclose(system.values(sol, s.diff(me.dynamicsymbols._t, 2)), 6 * sol.t, rtol=1e-12)
    np.testing.assert_allclose(sol.lam[:, 0], -2 * 6 * sol.t, rtol=1e-9)
    np.testing.assert_allclose(system.applied(1.0, sol.q[0], sol.v[0]), [1.0, 0.0], atol=1e-15)


def test_parameters_change_from_run_to_run():
    system = ga.from_sympy(polar(), {"m": 2.0})
    q = jnp.array([1.5, 0.3])
    np.testing.assert_allclose(system.M(0.0, q, ({"m": 3.0},)), np.diag([3.0, 6.75]), rtol=1e-15)
    np.testing.assert_allclose(system.M(0.0, q), np.diag([2.0, 4.5]), rtol=1e-15)

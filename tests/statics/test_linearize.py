"""Linear equations against SymPy, formulas, and differences of the reduced equations of random systems."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

import genalpha as ga
from conftest import problem
from genalpha import multibody as mb
from random_systems import Structure, poly, poly_accelerations, poly_g, poly_member

G = 9.81


def reduced(structure: Structure, member, places, x, y) -> np.ndarray:
    """The rates of some entries of q and v, by NumPy: the others follow from the constraints."""
    a, t, n = member.args, member.span[0], structure.n
    q, v = member.q0.copy(), member.v0.copy()
    rest = [np.setdiff1d(np.arange(n), some) for some in places]
    q[places[0]] += x
    for _ in range(30 if structure.m else 0):
        q[rest[0]] -= np.linalg.lstsq((a["A"] + a["B"] @ q)[:, rest[0]], poly_g(np, t, q, a), rcond=None)[0]
    rows, wanted = [np.zeros((0, n))], [np.zeros(0)]
    if structure.m:
        rows.append(a["A"] + a["B"] @ q)
        wanted.append(a["d"] * a["omega"] * np.cos(a["omega"] * t))
    if structure.p:
        rows.append(a["E"] + a["H"] @ q)
        wanted.append(a["e"] * np.cos(a["omega"] * t))
    B, wanted = np.concatenate(rows), np.concatenate(wanted)
    v[places[1]] += y
    v[rest[1]] += np.linalg.lstsq(B[:, rest[1]], wanted - B @ v, rcond=None)[0]
    return np.concatenate([v[places[0]], poly_accelerations(t, q, v, a)[places[1]]])


def by_differences(structure: Structure, member, places, step: float = 1e-5) -> np.ndarray:
    r, columns = len(places[0]), []
    for e in step * np.eye(r + len(places[1])):
        ends = [reduced(structure, member, places, k * e[:r], k * e[r:]) for k in (1, -1)]
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize(
    "sizes",
    [(4, 2, 1), *(pytest.param(s, marks=pytest.mark.slow) for s in [(3, 1, 0), (4, 0, 2), (5, 1, 2)])],
)
def test_random_systems_in_motion(sizes):
    """With constraints that move and are bent, and nonholonomic ones, at speeds that are not zero."""
    structure, rng = poly(*sizes), np.random.default_rng(1)
    for trait in ("plain", "bent", "linear"):
        member = poly_member(rng, *sizes, trait=trait)
        state = member.span[0], member.q0, member.v0
        linear = ga.linearize(structure.system, state, args=(member.args,))
        places = [[int(name[2:-1]) for name in linear.names if name[0] == kind] for kind in "qv"]
        wanted = by_differences(structure, member, places)
        np.testing.assert_allclose(linear.A, wanted, atol=2e-8 * np.abs(wanted).max())
        assert len(linear.A) == 2 * sizes[0] - 2 * sizes[1] - sizes[2]
        assert linear.steady == (trait == "linear")


def double_pendulum() -> ga.System:
    """Two points on rods, in Cartesian coordinates, with a force on the second along x."""
    return ga.System(
        mass=jnp.diag(jnp.array([2.0, 2.0, 1.0, 1.0])),
        force=lambda t, q, v, push: jnp.array([0.0, -2 * G, push - 0.3 * v[2], -G]),
        holonomic=lambda t, q, push: jnp.array([q[:2] @ q[:2] - 1, (q[2:] - q[:2]) @ (q[2:] - q[:2]) - 0.25]),
        names={"q": ["x", "y", "X", "Y"]},
    )


ANGLES = lambda t, q, *args: jnp.array([jnp.arctan2(q[0], -q[1]), jnp.arctan2(q[2] - q[0], q[1] - q[3])])


@pytest.mark.slow
def test_the_double_pendulum_of_sympy():
    """SymPy's linearizer of Kane's method, in angles, hanging and with a force as input."""
    sympy = pytest.importorskip("sympy")
    from sympy.physics import mechanics as me

    (a, b), (u, w), push = me.dynamicsymbols("a b"), me.dynamicsymbols("u w"), me.dynamicsymbols("F")
    frame, origin = me.ReferenceFrame("N"), me.Point("O")
    origin.set_vel(frame, 0)
    where = sympy.Matrix([sympy.sin(a), -sympy.cos(a)])
    both = where + sympy.Matrix([sympy.sin(b), -sympy.cos(b)]) / 2
    points, t = [], me.dynamicsymbols._t
    for i, at in enumerate((where, both)):
        point = origin.locatenew(f"P{i}", at[0] * frame.x + at[1] * frame.y)
        rate = at.diff(t).subs({a.diff(t): u, b.diff(t): w})
        point.set_vel(frame, rate[0] * frame.x + rate[1] * frame.y)
        points.append(me.Particle(f"p{i}", point, 2 - i))
    drag = -sympy.Rational(3, 10) * points[1].point.vel(frame).dot(frame.x)
    loads = [(p.point, -p.mass * sympy.Float(G) * frame.y) for p in points]
    loads.append((points[1].point, (push + drag) * frame.x))
    kane = me.KanesMethod(frame, [a, b], [u, w], kd_eqs=[a.diff(t) - u, b.diff(t) - w])
    kane.kanes_equations(points, loads)
    at_rest = {a: 0, b: 0, u: 0, w: 0, push: 0}
    A, B, _ = kane.linearize(A_and_B=True, op_point=at_rest, new_method=True)
    system = double_pendulum()
    linear = ga.linearize(system, (0.0, [0.0, -1.0, 0.0, -1.5]), ["args[0]"], args=(0.0,), coordinates=ANGLES)
    np.testing.assert_allclose(linear.A, np.array(A, dtype=float), atol=1e-12)
    np.testing.assert_allclose(linear.B, np.array(B, dtype=float), atol=1e-12)


@pytest.fixture(scope="module")
def hanging() -> ga.Linear:
    outputs = {"x": lambda t, q, v, push: q[2], "force": lambda t, q, v, push: 3 * push + v[2]}
    state = (0.0, [0.0, -1.0, 0.0, -1.5])
    return ga.linearize(double_pendulum(), state, inputs={"F": "args[0]"}, outputs=outputs, args=(0.0,))


def test_matrices_of_the_double_pendulum(hanging):
    """By hand, in x of both points: the tensions are 3 g and g."""
    assert hanging.names == ("x", "X", "x'", "X'")
    assert (hanging.input_names, hanging.output_names) == (("F",), ("x", "force"))
    np.testing.assert_allclose(hanging.mass, np.diag([2.0, 1.0]), atol=1e-14)
    np.testing.assert_allclose(hanging.stiffness, G * np.array([[3 + 2, -2], [-2, 2]]), atol=1e-12)
    np.testing.assert_allclose(hanging.damping, np.diag([0, 0.3]), atol=1e-14)
    np.testing.assert_allclose(hanging.forces, [[0], [1]], atol=1e-14)
    np.testing.assert_allclose(hanging.C, [[0, 1, 0, 0], [0, 0, 0, 1]], atol=1e-14)
    np.testing.assert_allclose(hanging.D, [[0], [3]])
    assert hanging.steady


def test_scipy_takes_the_matrices(hanging):
    """The step response settles where stiffness says; the frequency response is that of a linear solve."""
    system = scipy.signal.StateSpace(*hanging.state_space)
    omega = np.array([[0.5, 2.0], [10.0, 0.0]])
    found = hanging.frequency_response(omega)
    assert found.shape == (2, 2, 2, 1)
    for index, value in np.ndenumerate(omega):
        inside = np.linalg.solve(1j * value * np.eye(4) - hanging.A, hanging.B)
        np.testing.assert_allclose(found[index], hanging.C @ inside + hanging.D, rtol=1e-9, atol=1e-12)
    static = np.linalg.solve(hanging.stiffness, hanging.forces)[1, 0]
    assert scipy.signal.step(system, T=np.linspace(0, 200, 500))[1][-1, 0] == pytest.approx(static, rel=1e-3)


def test_a_disk_rolls_stably_above_its_critical_speed():
    """λ² = (m g r − ω² C (C + m r²)/A)/(A + m r²) for the lean of an upright disk that rolls straight on."""
    p = problem("rolling-disk", sense=-1.0)
    m, r, A, C, g = (float(p.args[0][key]) for key in ("m", "r", "I1", "I2", "g"))
    critical = np.sqrt(A * m * g * r / (C * (C + m * r**2)))
    for share in (0.5, 0.99, 1.01, 2.0):
        spin = share * critical
        linear = ga.linearize(p.system, (0.0, np.zeros(5), [-r * spin, 0, 0, 0, spin]), args=p.args)
        wanted = np.sqrt(complex(m * g * r - spin**2 * C * (C + m * r**2) / A) / (A + m * r**2))
        assert linear.A.shape == (8, 8)  # five positions, three velocities
        assert linear.steady
        found = linear.eigenvalues
        assert found[np.abs(found).argmax()] ** 2 == pytest.approx(wanted**2, abs=1e-9)
        assert (found.real.max() > 1e-3) == (share < 1)


@pytest.mark.slow
def test_a_rolling_body_needs_coordinates_that_do_not_turn_with_it():
    """The same disk on R3xSO3: its own axes turn, so its equations change, but not those of the lean."""
    p = problem("rolling-disk", space="R3xSO3")
    of, spin = p.args[0], 3.0
    m, r, g, (A, C, _) = float(of["m"]), float(of["r"]), float(of["g"]), of["J"]
    q, v = np.array([0, 0, r, 1, 0, 0, 0.0]), np.array([spin * r, 0, 0, 0, spin, 0])
    axis = lambda q: ga.rotation.rotate(q[3:], jnp.array([0.0, 1.0, 0.0]))

    def speeds(t, q, v, of):
        along, turning = axis(q), ga.rotation.rotate(q[3:], v[3:])
        return jnp.stack([jnp.cross(turning, along)[2], turning[2], v[4]])

    assert not ga.linearize(p.system, (0.0, q, v), args=p.args).steady
    lean = ga.linearize(
        p.system, (0.0, q, v), args=p.args, coordinates=lambda t, q, of: axis(q)[2:], speeds=speeds
    )
    assert lean.steady
    assert lean.A.shape == (4, 4)
    with pytest.raises(ValueError, match="output 'x' depends on motions that change none"):
        ga.linearize(
            p.system,
            (0.0, q, v),
            outputs={"x": lambda t, q, v, of: q[0]},
            args=p.args,
            coordinates=lambda t, q, of: axis(q)[2:],
            speeds=speeds,
        )
    wanted = (m * g * r - spin**2 * C * (C + m * r**2) / A) / (A + m * r**2)
    assert (lean.eigenvalues**2).real.min() == pytest.approx(wanted, rel=1e-9)


def test_friction_that_grows_with_the_reaction():
    """A reaction of the user's own: at rest the rod carries m g, so the damping is 0.2 m g."""
    system = ga.System(
        2 * jnp.eye(2),
        lambda t, q, v: jnp.array([0.0, -2 * G]),
        holonomic=lambda t, q: jnp.array([q @ q - 1]),
        reaction=lambda t, q, v, lam, psi: -2 * lam[0] * (q + 0.2 * v),
    )
    rest = ga.equilibrium(system, [0.4, -0.5])
    np.testing.assert_allclose(rest.lam, [G], rtol=1e-10)
    linear = ga.linearize(system, rest)
    np.testing.assert_allclose(linear.A, [[0, 1], [-G, -0.2 * G]], atol=1e-9)
    need = ga.inverse_dynamics(system, [0.0], lambda t: jnp.array([jnp.sin(t), -jnp.cos(t)]), actuators=[0])
    np.testing.assert_allclose(2 * need.lam[0], 2 * G + 2, rtol=1e-10)  # m g + m v²/l
    np.testing.assert_allclose(need.u[0], 0.2 * 2 * need.lam[0], rtol=1e-10)


def test_inputs_and_outputs_of_a_model_by_names_of_joints():
    """A rod on a hinge: J φ'' = torque − m g (l/2) φ, hanging down."""
    model = mb.Model()
    rod = model.add(mb.Body("rod", mb.rod(3.0, 2.0), at=(0, 0, -1.0)))
    model.add(mb.Revolute("hinge", model.ground, rod, at=(0, 0, 0), axis=(0, 1, 0)))
    linear = model.linearize(inputs=["hinge"], outputs=["hinge"])
    J, omega = rod.inertia.tensor[1, 1] + 3.0, np.array([0.0, 1.0, 5.0])
    wanted = 1 / (3.0 * G - J * omega**2)
    np.testing.assert_allclose(linear.frequency_response(omega)[:, 0, 0], wanted, rtol=1e-10)
    assert model.modes().omega == pytest.approx([np.sqrt(3.0 * G / J)])
    with pytest.raises(KeyError, match="do you mean 'hinge'"):
        model.linearize(inputs=["hing"])


def test_errors(hanging):
    system, state = double_pendulum(), (0.0, [0.0, -1.0, 0.0, -1.5])
    with pytest.raises(ValueError, match="holonomic constraints are broken by 3"):
        ga.linearize(system, (0.0, [0.0, -2.0, 0.0, -2.5]), args=(0.0,))
    with pytest.raises(ValueError, match=r"constraints on velocities are broken"):
        ga.linearize(system, (*state, [0.0, 1.0, 0.0, 0.0]), args=(0.0,))
    with pytest.raises(ValueError, match=r"inputs: 'k' is unknown. Known: args\[0\]"):
        ga.linearize(system, state, inputs=["k"], args=(0.0,))
    with pytest.raises(ValueError, match="there is no velocity 4"):
        ga.linearize(system, state, inputs=[4], args=(0.0,))
    with pytest.raises(ValueError, match=r"must be a direction of shape \(4,\)"):
        ga.linearize(system, state, inputs={"F": [1.0, 0.0]}, args=(0.0,))
    with pytest.raises(TypeError, match="outputs must be a function"):
        ga.linearize(system, state, outputs=["x"], args=(0.0,))
    with pytest.raises(ValueError, match="1 more motions are possible"):
        ga.linearize(
            system, state, args=(0.0,), coordinates=lambda t, q, p: q[:1], speeds=lambda t, q, v, p: v[::2]
        )
    with pytest.raises(ValueError, match="some are not independent"):
        ga.linearize(system, state, args=(0.0,), coordinates=lambda t, q, p: q[:2])
    with pytest.raises(TypeError, match="state must have t, q and v"):
        ga.linearize(system, [0.0, -1.0])
    moved = ga.System(jnp.eye(1), lambda t, q, v, p: -q, lambda t, q, p: q - p)
    with pytest.raises(ValueError, match="moves constraints"):
        ga.linearize(moved, (0.0, [0.0]), inputs=["args[0]"], args=(0.0,))
    with pytest.raises(ValueError, match="needs inputs"):
        ga.linearize(system, state, args=(0.0,)).frequency_response(1.0)

"""What a model consists of: copies, joints of the user's own, frames, units, and what cannot be set."""

import copy
import dataclasses
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb


def four_bar():
    """A linkage in space with three rows too many."""
    model = mb.Model(gravity=(0, 0, -9.81))
    points = (0, 0, 0), (0.2, 0, 0.3), (1.0, 0, 0.7), (1.2, 0, 0)
    bars = [
        model.add(mb.Body.bar(name, 1.0, *points[i : i + 2]))
        for i, name in enumerate(("one", "two", "three"))
    ]
    chain = [model.ground, *bars, model.ground]
    for i, name in enumerate("ABCD"):
        model.add(mb.Revolute(name, *chain[i : i + 2], at=points[i], axis=(0, 1, 0)))
    model.add(mb.Motor("motor", model["A"], effort=1.0))
    return model


RUN = {"t_span": (0.0, 0.05), "h": 0.01}


def test_rows_left_out_after_a_run_are_seen():
    model = four_bar()
    model.assemble(redundant="keep")
    sol = model.solve(**RUN, redundant="min_norm")
    force = model.motion(sol).reaction("D").force
    model.assemble(redundant="drop")
    with pytest.raises(ValueError, match=r"were added or left out after the run, or rows of joints"):
        model.motion(sol)
    model.assemble(redundant="keep")
    np.testing.assert_allclose(model.motion(sol).reaction("D").force, force, atol=0)


def test_a_copy_is_independent():
    model = four_bar()
    model.frames["tool"] = model["two"].frame((0.1, 0, 0))
    twin = copy.copy(model)
    twin.assemble(redundant="drop")
    twin["one"].x = (5, 0, 0)
    twin["two"].R[:] = 0.0
    twin.add(mb.PointMass("more", 1.0))
    twin.gravity = (0, 0, 0)
    assert not any(joint.dropped for joint in model.joints)
    assert "more" not in model
    assert model.gravity[2] == -9.81
    np.testing.assert_allclose(model["one"].x, [0.1, 0, 0.15])
    assert np.linalg.det(model["two"].R) == pytest.approx(1.0)
    assert twin["motor"].joint is twin["A"]
    assert twin["A"].markers[0].body is twin.ground
    assert twin["tool"].body is twin["two"]
    again = copy.copy(model)
    for one in (model, again):
        one.assemble(redundant="drop")
    np.testing.assert_allclose(again.solve(**RUN).q, model.solve(**RUN).q, atol=0)


class Hinge(mb.Revolute):
    """A hinge with a label of its own."""

    label = "hinge"


def test_joints_of_the_users_own_between_bodies_in_the_plane():
    model = mb.Model(gravity=(0, -9.81, 0))
    bar = model.add(mb.PlanarBody("bar", 1.0, 1 / 12, at=(0.5, 0)))
    own = model.add(Hinge("pin", model.ground, bar, at=(0, 0)))
    assert isinstance(own, Hinge)
    assert (own.name, own.label, own.rows) == ("pin", "hinge", ("x", "y"))
    usual = mb.Model(gravity=(0, -9.81, 0))
    bar = usual.add(mb.PlanarBody("bar", 1.0, 1 / 12, at=(0.5, 0)))
    usual.add(mb.Revolute("pin", usual.ground, bar, at=(0, 0)))
    np.testing.assert_allclose(model.solve(**RUN).q, usual.solve(**RUN).q, atol=0)


@pytest.mark.parametrize("kind", [mb.Revolute, mb.Prismatic, mb.Weld])
def test_axes_of_joints_in_the_plane(kind):
    model = mb.Model(gravity=(0, -9.81, 0))
    bar = model.add(mb.PlanarBody("bar", 1.0, 1 / 12))
    tilted = model.ground.frame(axis=(1, 0, 1)), bar.frame(axis=(1, 0, 1))
    with pytest.raises(ValueError, match="axis of 'j' must be that of the plane"):
        kind("j", *tilted)
    if kind is not mb.Prismatic:
        with pytest.raises(ValueError, match="axis of 'j' must be that of the plane"):
            kind("j", model.ground.frame(axis=(1, 0, 0)), bar.frame(axis=(1, 0, 0)))


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_bodies_far_from_their_joints(unit):
    """A slider 300 away, in metres, and a linkage in millimetres: a step is as long as the way to go."""
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.Body("body", mb.box(1.0, (unit,) * 3), at=(0, 300 * unit, 1)))
    model.add(mb.Prismatic("guide", model.ground.frame(), body.frame()))
    model.assemble()
    np.testing.assert_allclose(body.x, [0, 0, 1], atol=1e-9)
    linkage, expected = mb.Model(), mb.Model()
    for one, size in ((linkage, unit), (expected, 1.0)):
        bars = [one.add(mb.Body(f"bar {i}", mb.rod(1.0, size), at=(0, 0, 0.3 * size * i))) for i in range(3)]
        ends = [one.ground.frame((0, 0, 0), axis=(0, 1, 0))]
        for bar in bars:
            ends += [bar.frame((s * size / 2, 0, 0), axis=(0, 1, 0)) for s in (-1, 1)]
        ends.append(one.ground.frame((1.5 * size, 0, 0), axis=(0, 1, 0)))
        for i in range(4):
            one.add(mb.Revolute(f"pin {i}", ends[2 * i], ends[2 * i + 1]))
        one.assemble(redundant="drop")
    for bar in linkage.bodies:
        np.testing.assert_allclose(bar.x / unit, expected[bar.name].x, atol=1e-9)


def test_a_drive_by_a_table_counts_as_a_drive():
    model = mb.Model(gravity=(0, 0, 0))
    wheel = model.add(mb.PlanarBody("wheel", 1.0, 1.0))
    hinge = model.add(mb.Revolute("hinge", model.ground, wheel, at=(0, 0)))
    table = ga.LookupTable(np.linspace(0.0, 1.0, 9), np.linspace(0.0, 1.0, 9) ** 2, kind="cubic")
    model.add(mb.Driven("drive", hinge, table))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.assemble().freedom == 0


def test_what_bodies_cannot_be_set_to():
    model = mb.Model()
    flat = mb.PlanarBody("flat", 1.0, 1.0)
    for body, key, value, message in (
        (model.ground, "x", (5, 0, 0), "the ground does not move"),
        (model.ground, "R", np.eye(3), "the ground does not move"),
        (flat, "x", (1, 0, 5), "moves in the plane of x and y: z of x must be 0"),
    ):
        with pytest.raises((AttributeError, ValueError), match=message):
            setattr(body, key, value)
    flat.x = (1, 2)
    assert flat.x.tolist() == [1, 2, 0]


@dataclasses.dataclass
class Cubic:
    """A law that cannot be hashed."""

    k: float

    def __call__(self, length, rate):
        return self.k * (length - 1.0) ** 3


def test_objects_as_laws():
    """Two objects with equal fields are two laws; a field that changes is seen."""
    model, laws = mb.Model(gravity=(0, 0, 0)), (Cubic(40.0), Cubic(40.0))
    for i, law in enumerate(laws):
        cart = model.add(mb.PointMass(f"cart {i}", 1.0, at=(2.0, 0, i)))
        model.add(mb.SpringDamper(f"spring {i}", model.ground.frame((0, 0, i)), cart, law=law))
    found = model.solve((0.0, 0.1), h=1e-3).q
    np.testing.assert_allclose(found[:, 0], found[:, 3], atol=0)
    laws[0].k = 0.0
    found = model.solve((0.0, 0.1), h=1e-3).q
    assert (found[-1, 0], found[-1, 3] < 1.9) == (2.0, True)


def test_a_coupling_of_velocities_may_be_one_number():
    model = mb.Model(gravity=(0, 0, 0))
    cart = model.add(mb.PointMass("cart", 1.0, velocity=(1, 0, 0)))
    model.add(mb.VelocityCoupling("no x", model.ground, cart, lambda t, a, b: b.v[1]))
    model.add(mb.AppliedForce("push", cart, force=(0, 1, 0)))
    sol = model.solve((0.0, 0.1), h=0.05)
    np.testing.assert_allclose(sol.q[-1], [0.1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(model.motion(sol).reaction("no x").force, [[0, -1, 0]] * 3, atol=1e-9)


def test_energy_of_a_ball_far_from_its_plane():
    model = mb.Model(gravity=(0, 0, 0))
    ball = model.add(mb.PointMass("ball", 1.0, at=(0, 0, 200.0)))
    for exponent in (1.0, 1.5, 2.0):
        model.add(mb.SphereContact(f"floor {exponent}", model.ground, ball, 0.1, 1e4, exponent=exponent))
    near = model.motion((0.0, [0, 0, 0.05], np.zeros(3))).energy()["springs"]
    far = model.motion((0.0, [0, 0, 200.0], np.zeros(3))).energy()["springs"]
    assert np.isfinite(far).all()
    expected = sum(1e4 * 0.05 ** (e + 1) / (e + 1) for e in (1.0, 1.5, 2.0))
    np.testing.assert_allclose(near - far, expected, rtol=1e-4)


def test_stops_of_batches_know_the_numbers_of_members():
    model = mb.Model(gravity=(0, 0, 0))
    cart = model.add(mb.Body("cart", mb.box(1.0, (1, 1, 1)), at=(0, 0, 0.2), velocity=(0, 0, -1)))
    model.add(mb.Prismatic("guide", model.ground, cart, at=(0, 0, 0)))
    stops = model.stops("guide", lower=-0.1)
    values = {"guide.a": [[0, 0, 0], [0, 0, 0.5]]}
    with pytest.raises(ValueError, match=r"'guide' of .* starts beyond its stop, by 0\.4"):
        model.solve((0.0, 0.1), {"guide.a": (0, 0, 0.5)}, h=0.05, events=stops)
    with pytest.raises(ValueError, match=r"'guide' of .* starts beyond its stop, by 0\.4"):
        model.solve_batch((0.0, 0.1), values, h=0.05, events=stops)
    values = {"guide.a": [[0, 0, 0], [0, 0, 0.05]]}
    assert (model.solve_batch((0.0, 0.05), values, h=0.05, events=stops).status == 0).all()


def test_values_of_planar_joints_are_three():
    model = mb.Model()
    body = model.add(mb.Body("body", mb.box(1.0, (1, 1, 1))))
    model.add(mb.Planar("table", model.ground, body, at=(0, 0, 0)))
    with pytest.raises(ValueError, match="value of 'table' must be 3 numbers"):
        model.pose({"table": (0.1, 0.2)})
    np.testing.assert_allclose(model.pose({"table": (0.1, 0.2, 0.0)})[0][:3], [0.1, 0.2, 0.0], atol=1e-15)


def test_springs_with_a_law_need_a_direction_too():
    model = mb.Model()
    one = model.add(mb.PointMass("one", 1.0))
    with pytest.raises(ValueError, match="ends of 's' are at the same point"):
        mb.SpringDamper("s", model.ground, one, law=lambda length, rate: jnp.zeros(()))


def test_attributes_that_change_nothing_are_refused():
    model = mb.Model()
    body = model.add(mb.Body("body", mb.box(1.0, (1, 1, 1))))
    for thing, key, message in (
        (body, "v", "has no v that can be set"),
        (body, "velocities", "do you mean 'velocity'"),
        (model, "gravty", "do you mean 'gravity'"),
        (model, "ground", "the ground of a model cannot be changed"),
    ):
        with pytest.raises(AttributeError, match=message):
            setattr(thing, key, (1, 0, 0))


def test_things_are_in_one_model():
    model, other = mb.Model(), mb.Model()
    body = model.add(mb.Body("body", mb.box(1.0, (1, 1, 1))))
    with pytest.raises(ValueError, match="<Body 'body'> is in another model: make another one"):
        other.add(body)
    assert "body" not in other


def test_models_with_forces_on_joints_are_pickled():
    model = mb.Model(gravity=(0, -9.81, 0))
    bars = [model.add(mb.PlanarBody(f"bar {i}", 1.0, 0.1, at=(i + 0.5, 0))) for i in range(3)]
    joints = [model.add(mb.Revolute("hinge", model.ground, bars[0], at=(0, 0)))]
    joints.append(model.add(mb.Revolute("elbow", bars[0], bars[1], at=(1, 0))))
    slider = model.add(mb.Prismatic("slider", model.ground, bars[2], at=(2.5, 0), axis=(1, 0)))
    model.add(mb.Motor("motor", joints[0], effort=2.0))
    model.add(mb.JointSpring("coil", joints[1], 3.0))
    model.add(mb.Limit("range", joints[1], -1.0, 1.0, 100.0))
    model.add(mb.DryFriction("rub", joints[0], 0.1))
    model.add(mb.Rotor("rotor", joints[0], 0.1))
    model.add(mb.Rack("rack", joints[0], slider, radius=0.5))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.solve(**RUN).q, model.solve(**RUN).q, atol=0)
    assert model.motion(again.solve(**RUN)).coordinate("hinge").shape == (6,)


def test_the_second_axis_of_a_cardan_joint_may_be_left_out():
    for axis in ((0, 1, 0), (0, 0, 1), (1, 1, 0)):
        model = mb.Model()
        body = model.add(mb.Body("body", mb.box(1.0, (1, 1, 1))))
        joint = model.add(mb.Universal("cross", model.ground, body, at=(0, 0, 0), axis=axis))
        a, b = (marker.state.axis for marker in joint.markers)
        np.testing.assert_allclose(a, np.array(axis) / np.linalg.norm(axis), atol=1e-15)
        assert abs(a @ b) < 1e-12
    with pytest.raises(ValueError, match="axis and second of 'c' must be perpendicular"):
        mb.Universal("c", model.ground, body, at=(0, 0, 0), axis=(0, 1, 0), second=(0, 1, 1))


def test_traced_numbers_that_would_be_refused():
    """Runs under JAX's transforms end in NaN, and have the usual derivatives otherwise."""
    model = mb.Model(gravity=(0, 0, 0))
    cart = model.add(mb.PointMass("cart", 1.0, at=(1.5, 0, 0)))
    model.add(mb.SpringDamper("spring", model.ground, cart, 8.0, length=1.0))
    end = lambda m, k: model.solve((0.0, 0.5), {"cart.mass": m, "spring.stiffness": k}, h=0.01).q[-1, 0]
    found = [float(jax.jit(end)(m, k)) for m, k in ((1.0, 8.0), (-1.0, 8.0), (0.0, 8.0), (1.0, -1.0))]
    np.testing.assert_allclose(found, [1.0 + 0.5 * np.cos(0.5 * np.sqrt(8.0)), *[np.nan] * 3], atol=1e-3)
    slope = float(jax.grad(end, argnums=1)(1.0, 8.0))
    np.testing.assert_allclose(slope, -0.125 * np.sin(0.5 * np.sqrt(8.0)) / np.sqrt(8.0), rtol=1e-2)


class Belt(mb.Custom):
    """A force of the user's own, whose number may have any sign."""

    def __init__(self, name, a, b):
        mb.Force.__init__(self, name, (a.frame(), b.frame()), {"speed": -1.0})

    @staticmethod
    def force(t, a, b, speed):
        zero = jnp.zeros(3)
        return mb.Wrench(zero, zero), mb.Wrench(zero + speed - b.v, zero)


def test_values_with_signs_and_ranges():
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.Body("body", mb.box(1.0, (1, 1, 1))))
    screw = model.add(mb.Screw("screw", model.ground, body, 0.1, at=(0, 0, 0)))
    model.add(mb.Rotor("rotor", screw, 1.0, coordinate="angle"))
    model.add(mb.Limit("limit", screw, -1.0, 1.0, 100.0))
    model.add(mb.Limit("sector", screw, -1.0, 1.0, 100.0, coordinate="angle"))
    model.add(Belt("belt", model.ground, body))
    for values, message in (
        ({"rotor.inertia": -1.0}, "rotor.inertia must be positive"),
        ({"screw.pitch": 0.0}, "screw.pitch must not be zero"),
        ({"limit.lower": 2.0}, "limit.lower must not be above limit.upper"),
        ({"limit.lower": 2.0, "limit.upper": 30.0}, ""),
        ({"sector.upper": 6.0}, "from sector.lower to sector.upper must be less than one turn"),
        ({"belt.speed": -2.0}, ""),
    ):
        if message:
            with pytest.raises(ValueError, match=message):
                model.solve((0.0, 0.1), values, h=0.05)
        else:
            model.solve((0.0, 0.1), values, h=0.05)
    with pytest.raises(
        ValueError, match="'turn' has a torque on <PointMass 'point'>, which cannot be turned"
    ):
        mb.AppliedForce("turn", mb.PointMass("point", 1.0), torque=(0, 0, 1))


def test_arguments_of_joints_that_do_not_exist():
    model = mb.Model()
    bar = model.add(mb.Body.bar("bar", 1.0, (0, 0, 0), (1, 0, 0)))
    with pytest.raises(TypeError, match="Revolute has no argument 'axs': do you mean 'axis'"):
        mb.Revolute("hinge", model.ground, bar, at=(0, 0, 0), axs=(0, 1, 0))
    with pytest.raises(ValueError, match="the function of 'wire' returns no number: it has no row"):
        mb.OnSurface("wire", model.ground, bar, lambda x: [])


@pytest.mark.parametrize("end", [(1, 0, 0), (0, -2, 0), (1, 2, 0.5), (0, 0, 1), (0, 0, -1), (-1, 0, 0.2)])
def test_the_axes_of_a_bar(end):
    """x is along it, y is horizontal, and z does not point down."""
    R = mb.Body.bar("bar", 1.0, (0, 0, 0), end).R
    np.testing.assert_allclose(R[:, 0], np.array(end) / np.linalg.norm(end), atol=1e-15)
    np.testing.assert_allclose(R.T @ R, np.eye(3), atol=1e-15)
    assert np.linalg.det(R) == pytest.approx(1.0)
    assert abs(R[2, 1]) < 1e-15
    assert R[2, 2] >= 0


def test_a_bushing_half_a_turn_off_is_told():
    model = mb.Model(gravity=(0, 0, 0))
    bar = model.add(mb.Body.bar("bar", 1.0, (0, 0, 0), (1, 0, 0)))
    turned = model.ground.frame((0.5, 0, 0), rotation=np.diag([1.0, -1.0, -1.0]))
    model.add(mb.Bushing("bush", turned, bar, 10.0))
    with pytest.warns(UserWarning, match="'bush'.* nearly half a turn apart, where its torque jumps"):
        model.solve((0.0, 0.01), h=0.005)

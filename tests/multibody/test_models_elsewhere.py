"""Models with everything else: derivatives, batches, statics, states, and numbers that nothing has."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb


def arm(**model: Any) -> mb.Model:
    found = mb.Model(**model)
    bar = found.add(mb.Body.bar("bar", 1.0, (0, 0, 0), (1, 0, 0)))
    found.add(mb.Revolute("hinge", found.ground, bar, at=(0, 0, 0), axis=(0, 1, 0)))
    return found


@pytest.fixture(scope="module")
def four_bar() -> mb.Model:
    found = mb.Model()
    A, B, C, D = (0, 0, 0), (0.3, 0, 0), (1.0, 0, 0.6), (1.2, 0, 0)
    ends = (("crank", A, B), ("rod", B, C), ("rocker", C, D))
    crank, rod, rocker = (found.add(mb.Body.bar(name, 1.0, p, q)) for name, p, q in ends)
    ground = found.ground
    for name, a, b, at in (("A", ground, crank, A), ("B", crank, rod, B), ("C", rod, rocker, C)):
        found.add(mb.Revolute(name, a, b, at=at, axis=(0, 1, 0)))
    found.add(mb.Revolute("D", rocker, ground, at=D, axis=(0, 1, 0)))
    found.add(mb.SpringDamper("spring", ground.frame((0.5, 0, -1)), rod, 50.0, 1.0))
    found.assemble(redundant="drop")
    return found


# --- derivatives -----------------------------------------------------------------------------------


def test_gradients_with_error_control() -> None:
    """Of a model with sparse matrices: equal to those with the steps that were taken."""
    model, last = mb.Model(), None
    for i in range(5):
        bar = model.add(mb.Body.bar(f"bar {i}", 1.0, (i, 0, 0), (i + 1, 0, 0)))
        joint = mb.Revolute(f"hinge {i}", last or model.ground, bar, at=(i, 0, 0), axis=(0, 1, 0))
        model.add(joint)
        last = bar
    run = lambda mass, **how: model.solve((0.0, 0.1), values={"bar 0.mass": mass}, **how)
    steps = np.diff(run(1.0, rtol=1e-4).t)
    end = lambda **how: lambda mass: run(mass, save="final", **how).q[-1, 2]
    found, expected = jax.grad(end(rtol=1e-4))(1.0), jax.grad(end(h=steps))(1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    assert abs(expected) > 1e-4


def test_points_with_traced_numbers_among_others() -> None:
    """A tuple of which one entry is traced is one point."""
    model = arm()
    height = lambda x: model.solve((0.0, 0.1), values={"hinge.b": (x, 0.0, 0.0)}, h=0.01, initial="assume")
    slope = jax.jvp(lambda x: height(x).q[-1, 2], (-0.5,), (1.0,))[1]
    assert np.isfinite(slope)
    args = model.args({"gravity": (0.0, 0.0, -1.0)})
    assert [float(x) for x in args[0][1:]] == [0.0, 0.0, -1.0]


def test_stops_under_transforms() -> None:
    """Short rebounds after an impact are found, although a new start changes quaternions by rounding."""
    model = arm()
    events = model.stops("hinge", upper=0.5, restitution=0.1)
    plain = model.solve((0.0, 1.0), h=0.01, events=events)

    @jax.jit
    def traced(mass: Any) -> Any:
        sol = model.solve((0.0, 1.0), values={"bar.mass": mass}, h=0.01, events=events)
        return sol.t_events[0], sol.q[-1], sol.status

    times, q, status = traced(1.0)
    np.testing.assert_allclose(times[: len(plain.t_events[0])], plain.t_events[0], rtol=1e-9)
    assert np.isnan(times[len(plain.t_events[0]) :]).all()
    np.testing.assert_allclose(q, plain.q[-1], atol=1e-9)
    assert status == plain.status


# --- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_a_frame_that_two_springs_share(shared: bool) -> None:
    """Other points belong to one of them."""
    model = arm()
    one = model["bar"].frame((0.5, 0, 0))
    ends = one, one if shared else model["bar"].frame((0.5, 0, 0))
    for k, (end, z) in enumerate(zip(ends, (1.0, -1.0), strict=True)):
        model.add(
            mb.SpringDamper(f"spring {k}", model.ground.frame((1, 0, z)), end, 50.0 - 20 * k, length=0.5)
        )
    values = {"spring 0.b": (0.2, 0, 0)}
    z = lambda values: model.solve((0.0, 0.1), values=values, h=0.01).q[-1, 2]
    assert z(values) == z(values | {"spring 1.b": (0.5, 0, 0)})
    other = arm()
    other.add(
        mb.SpringDamper(
            "spring 0", other.ground.frame((1, 0, 1)), other["bar"].frame((0.2, 0, 0)), 50.0, length=0.5
        )
    )
    other.add(
        mb.SpringDamper(
            "spring 1", other.ground.frame((1, 0, -1)), other["bar"].frame((0.5, 0, 0)), 30.0, length=0.5
        )
    )
    np.testing.assert_allclose(z(values), other.solve((0.0, 0.1), h=0.01).q[-1, 2], atol=1e-13)


def test_motors_follow_the_points_of_their_joint() -> None:
    model = arm()
    model.add(mb.Motor("motor", model["hinge"], effort=5.0))
    values = {"hinge.b": (-0.4, 0, 0), "hinge.a": (0.1, 0, 0)}
    copy = model.motion(model.solve((0.0, 0.01), h=0.01), values).model
    assert copy["motor"].markers[0] is copy["hinge"].markers[0]
    np.testing.assert_allclose(copy["hinge"].markers[1].r, (-0.4, 0, 0))
    ends = model.args(values)[-1][0]
    np.testing.assert_allclose(ends[1]["r"], [(-0.4, 0, 0)])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"crank.inertia": -np.eye(3)}, "crank.inertia: inertia has the negative principal moment"),
        ({"crank.inertia": np.eye(3) + np.eye(3, k=1)}, "crank.inertia: inertia must be symmetric"),
        ({"spring.stiffness": -1.0}, "spring.stiffness must be zero or positive, got -1.0"),
        ({"crank.mass": 0.0}, "crank.mass must be positive"),
        ({"crank.mass": "heavy"}, "crank.mass must be a number or an array of numbers, got 'heavy'"),
        ({"crank.mass": None}, "crank.mass must be a number or an array of numbers, got None"),
        (["crank.mass"], "values must be a dictionary"),
        ({"crank.mas": 1.0}, "crank.mass"),
        ({"crank.mass": [1.0, 2.0]}, "crank.mass must have the shape"),
    ],
    ids=str,
)
def test_values_that_constructors_would_refuse(four_bar: mb.Model, values: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message.replace("(", r"\(")):
        four_bar.solve((0.0, 0.1), values=values, h=0.01)
    with pytest.raises(ValueError, match=r"numbers of a batch must have .* not zero, got \[0\]"):
        four_bar.args({"crank.mass": []})
    with pytest.raises(ValueError, match="numbers of a batch must have the same length"):
        four_bar.args({"crank.mass": [1.0, 2.0], "rod.mass": [1.0]})


def test_options_of_solve(four_bar: mb.Model) -> None:
    with pytest.raises(TypeError, match="values or args, not both"):
        four_bar.solve((0.0, 0.1), values={"crank.mass": 2.0}, args=four_bar.args({}), h=0.01)
    with pytest.raises(TypeError, match="state is None"):
        four_bar.solve((0.0, 0.1), state=None, h=0.01)
    with pytest.raises(TypeError, match=r"pass model\.system, or call model\.solve"):
        ga.solve(four_bar, (0.0, 0.1), four_bar.q0, four_bar.v0, h=0.01)  # type: ignore[arg-type]


def test_args_of_a_batch(four_bar: mb.Model) -> None:
    masses = np.array([0.5, 2.0])
    args = four_bar.args({"crank.mass": masses, "gravity": (0, 0, -5.0)})
    start = np.stack([four_bar.q0] * 2)
    batch = ga.solve_batch(four_bar.system, (0.0, 0.1), start, four_bar.v0, args=args, h=0.01)
    for k, mass in enumerate(masses):
        values = {"crank.mass": mass, "gravity": (0, 0, -5.0)}
        alone = four_bar.solve((0.0, 0.1), values=values, h=0.01)
        np.testing.assert_allclose(batch[k].q[-1], alone.q[-1], atol=1e-12)


# --- statics ---------------------------------------------------------------------------------------


def test_statics_with_other_values() -> None:
    """A pendulum in four times the gravity swings twice as fast, and a point moved on a joint counts."""
    model = mb.Model(gravity=(0, 0, -9.81))
    bar = model.add(mb.Body.bar("bar", 1.0, (0, 0, 0), (0, 0, -1)))
    model.add(mb.Revolute("hinge", model.ground, bar, at=(0, 0, 0), axis=(0, 1, 0)))
    strong = {"gravity": (0, 0, -4 * 9.81)}
    np.testing.assert_allclose(model.modes(values=strong).omega, 2 * model.modes().omega, rtol=1e-9)
    linear = model.linearize(["hinge"], ["hinge"], values=strong)
    np.testing.assert_allclose(np.abs(linear.eigenvalues.imag), 2 * model.modes().omega[0], rtol=1e-9)
    with pytest.raises(TypeError, match="values or args, not both"):
        model.modes(values=strong, args=model.args({}))
    with pytest.raises(TypeError, match="is no joint"):
        model.linearize(["hinge"], ["bar"])


def test_inputs_and_outputs_at_other_points() -> None:
    def table(r: Any) -> mb.Model:
        model = mb.Model(gravity=(0, 0, 0))
        body = model.add(mb.Body("body", mb.box(1.0, (1, 1, 0.1))))
        model.add(mb.Planar("plane", model.ground, body.frame(r)))
        model.add(mb.Bushing("springs", model.ground, body, [100.0, 100.0, 0, 0, 0, 20.0]))
        return model

    model = table((0, 0, 0))
    found = model.linearize(["plane"], ["plane"], values={"plane.b": (0, 0.5, 0)})
    np.testing.assert_allclose(found.frequency_response([0.0]).real.ravel(), 1 / 100 + 0.25 / 20, rtol=1e-9)


# --- motions of states ------------------------------------------------------------------------------


def test_motion_of_a_state_and_of_an_equilibrium(four_bar: mb.Model) -> None:
    sol = four_bar.solve((0.0, 0.1), h=0.01)
    one, many = four_bar.motion(sol(0.05)), four_bar.motion(sol)
    np.testing.assert_allclose(one.reaction("B").force, many.reaction("B").force[5:6], rtol=1e-9)
    model = arm(gravity=(0, 0, -9.81))
    at = model.equilibrium()
    force = model.motion(at).reaction("hinge").force
    np.testing.assert_allclose(np.linalg.norm(force), 9.81, rtol=1e-9)


def test_what_a_motion_cannot_be_made_of(four_bar: mb.Model) -> None:
    sol = four_bar.solve((0.0, 0.02), h=0.01)
    batch = ga.solve_batch(four_bar.system, (0.0, 0.02), np.stack([four_bar.q0] * 2), four_bar.v0, h=0.01)
    with pytest.raises(ValueError, match=r"batch\[i\]"):
        four_bar.motion(batch)
    with pytest.raises(TypeError, match="a solution, a state or an equilibrium of the model, got NoneType"):
        four_bar.motion(None)
    for frame in (5, -1, "b"):
        with pytest.raises(ValueError, match="0 to 1, got"):
            four_bar.motion(sol).reaction("A", frame=frame)  # type: ignore[arg-type]
    values = lambda mass: {"crank.mass": mass}
    traced = lambda mass: four_bar.motion(four_bar.solve((0.0, 0.02), values(mass), h=0.01), values(mass)).t
    with pytest.raises(TypeError, match="this run is traced by JAX"):
        jax.jit(traced)(1.0)
    with pytest.raises(ValueError, match="about must be a point"):
        four_bar.motion(sol).momentum(about="x")


# --- functions of the user ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda m: mb.Motor("x", m["hinge"], effort=lambda t: jnp.ones(3)), "effort must return one number"),
        (
            lambda m: mb.Motor("x", m["hinge"], target=lambda t: jnp.ones(2), kp=1.0),
            "target must return one number",
        ),
        (
            lambda m: mb.JointSpring("x", m["hinge"], law=lambda x, v: jnp.ones(1)),
            "law must return one number",
        ),
        (
            lambda m: mb.Bushing("x", m.ground, m["bar"], 1.0, law=lambda d, v: d[:3]),
            r"law must return an array of shape \(6,\)",
        ),
        (
            lambda m: mb.Custom("x", m.ground, m["bar"], lambda t, a, b: jnp.zeros(3)),
            r"must return 2 Wrenches, \(force, torque\)",
        ),
        (lambda m: mb.Driven("x", m["hinge"], lambda t: jnp.sqrt(t - 1)), "'x' .drive: nan"),
    ],
)
def test_functions_that_return_something_else(add: Any, message: str) -> None:
    model = arm()
    model.add(add(model))
    with pytest.raises(ValueError, match=message) as caught:
        model.assemble()
    assert "'x'" in str(caught.value) + " ".join(getattr(caught.value, "__notes__", ()))


def test_a_joint_that_friction_may_jam() -> None:
    """A slider on a base that swings, with a load off its guide."""
    model = mb.Model(gravity=(1, 2, -9.0))
    moving = {"velocity": (0.1, 0.2, 0.3), "angular_velocity": (0.5, -0.4, 0.6)}
    base = model.add(mb.Body("base", mb.Inertia(3.0, [0.5, 0.6, 0.7]), **moving))
    inertia = mb.Inertia(2.0, [0.3, 0.4, 0.5], center=(0.1, -0.05, 0.2))
    turned = {"rotation": (np.cos(0.3), np.sin(0.3), 0, 0), "angular_velocity": (0.7, 0.2, -0.3)}
    body = model.add(mb.Body("body", inertia, at=(0.6, 0.1, 0.2), velocity=(0.2, 0.1, -0.1), **turned))
    model.add(mb.Bushing("bush", model.ground, base, [30, 40, 50, 3, 4, 5], [1, 1, 1, 0.1, 0.1, 0.1]))
    rubs = mb.Friction(0.3, radius=0.05, length=0.2, speed=0.1)
    model.add(mb.Prismatic("slider", base, body, at=(0.3, 0.2, 0.1), axis=(1, 2, 2), friction=rubs))
    model.assemble()
    with pytest.raises(ga.errors.NoMultipliers, match="found no consistent accelerations") as caught:
        model.solve((0.0, 0.1), h=1e-3)
    assert "Friction in 'slider'" in str(caught.value)


def test_numbers_by_name(four_bar: mb.Model) -> None:
    with pytest.raises(TypeError, match="the value of 'A' must be a number"):
        four_bar.pose({"A": "x"})
    with pytest.raises(ValueError, match="count must be a whole number"):
        four_bar.modes("x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="t must be a finite number"):
        four_bar.assemble(t=np.nan)


# --- universal joints ----------------------------------------------------------------------------------


def test_angles_of_a_universal_joint() -> None:
    """They are those of `pose`; a motor on the second does the work that its rate says."""
    model = mb.Model(gravity=(1.0, 0.5, -9.81))
    body = model.add(mb.Body("body", mb.box(2.0, (0.4, 0.3, 0.2)), at=(0.1, 0, -0.5)))
    joint = model.add(
        mb.Universal("joint", model.ground, body, at=(0, 0, 0), axis=(1, 0, 0), second=(0, 1, 0))
    )
    model.place(*model.pose({"joint": (0.4, -0.7)}, {"joint": (1.0, 2.0)}))
    model.add(mb.Motor("motor", joint, effort=lambda t: 3 * jnp.cos(5 * t), coordinate="second"))
    lost = []
    for h in (2e-3, 1e-3):
        sol = model.solve((0.0, 0.5), h=h)
        motion = model.motion(sol)
        for name, angle, rate in (("first", 0.4, 1.0), ("second", -0.7, 2.0)):
            values, rates = motion.coordinate("joint", name), motion.rate("joint", name)
            np.testing.assert_allclose((values[0], rates[0]), (angle, rate), rtol=1e-12)
            np.testing.assert_allclose(np.diff(values) / h, (rates[1:] + rates[:-1]) / 2, atol=50 * h**2)
        power, energy = motion.power("motor"), motion.energy()["total"]
        np.testing.assert_allclose(power, 3 * np.cos(5 * sol.t) * motion.rate("joint", "second"), rtol=1e-12)
        lost.append(energy[-1] - energy[0] - np.sum((power[1:] + power[:-1]) / 2) * h)
    assert abs(lost[1]) < 1e-3 * np.ptp(energy)
    assert 3 < lost[0] / lost[1] < 5  # of second order


def test_a_driven_universal_joint() -> None:
    """At constant rates about both axes, the drives do what `pose` says."""
    model = mb.Model()
    body = model.add(mb.Body("body", mb.box(2.0, (0.4, 0.3, 0.2)), at=(0.1, 0, -0.5)))
    joint = model.add(
        mb.Universal("joint", model.ground, body, at=(0, 0, 0), axis=(1, 0, 0), second=(0, 1, 0))
    )
    start = {
        name: float(
            model.motion(ga.State(0.0, model.q0, model.v0, *[np.zeros(0)] * 3)).coordinate("joint", name)[0]
        )
        for name in ("first", "second")
    }
    for name, rate in (("first", 0.8), ("second", 5.0)):
        law = lambda t, a=start[name], rate=rate: a + rate * t
        model.add(mb.Driven(f"drive {name}", joint, law, coordinate=name))
    model.assemble()
    sol = model.solve((0.0, 1.0), h=0.01)
    q, v = model.pose({"joint": (start["first"] + 0.8, start["second"] + 5.0)}, {"joint": (0.8, 5.0)})
    np.testing.assert_allclose(sol.q[-1, :3], q[:3], atol=1e-9)
    np.testing.assert_allclose(sol.v[-1], v, atol=1e-9)
    assert model.motion(sol).coordinate("joint", "second")[-1] == pytest.approx(start["second"] + 5.0)


# --- assemble ------------------------------------------------------------------------------------------


def test_rates_and_holds_of_several_coordinates() -> None:
    """A cylindrical joint keeps both coordinates, or one of them, and takes two rates."""
    model = mb.Model()
    body = model.add(mb.Body("body", mb.box(2.0, (0.4, 0.3, 0.2)), at=(0.3, 0.2, 0.5), velocity=(0, 0, 3.0)))
    model.add(mb.Cylindrical("axle", model.ground, body, at=(0, 0, 0), axis=(0, 0, 1)))
    state = lambda: model.motion(ga.State(0.0, model.q0, model.v0, *[np.zeros(0)] * 3))
    values = lambda: [state().coordinate("axle", name)[0] for name in ("displacement", "angle")]
    rates = lambda: [state().rate("axle", name)[0] for name in ("displacement", "angle")]
    before = values()
    model.assemble(rates={"axle": (0.5, 2.0)})
    np.testing.assert_allclose((values(), rates()), (before, (0.5, 2.0)), atol=1e-12)
    model.assemble(rates={("axle", "angle"): -1.0}, hold=[("axle", "displacement")])
    np.testing.assert_allclose((values(), rates()), (before, (0.5, -1.0)), atol=1e-12)
    model.assemble(hold=["axle"], rates={"axle": 0.7})  # one number is the rate of the first
    np.testing.assert_allclose((values(), rates()), (before, (0.7, -1.0)), atol=1e-12)
    with pytest.raises(ValueError, match="'axle' has 2 coordinates, but 3 rates are given"):
        model.assemble(rates={"axle": (0.5, 2.0, 1.0)})
    with pytest.raises(ValueError, match="no coordinate 'way'"):
        model.assemble(rates={("axle", "way"): 0.5})


def test_rates_that_contradict_each_other() -> None:
    model = mb.Model()
    bars = [model.add(mb.Body.bar(f"bar {k}", 1.0, (k, 0, 0), (k + 1, 0, 0))) for k in range(2)]
    model.add(mb.Revolute("first", model.ground, bars[0], at=(0, 0, 0), axis=(0, 1, 0)))
    model.add(mb.Weld("weld", bars[0], bars[1], at=(1, 0, 0)))
    model.add(mb.Revolute("second", model.ground, bars[1], at=(0, 0, 0), axis=(0, 1, 0)))
    with pytest.raises(
        ValueError, match=r"no velocities satisfy all joints.*angle of (first|second) is held"
    ):
        model.assemble(rates={"first": 1.0, "second": -2.0})

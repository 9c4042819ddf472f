"""What models do when they are changed, mixed, continued and asked: runs of small models."""

from __future__ import annotations

import threading
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb
from genalpha.multibody.closing.geometry import Geometry
from genalpha.multibody.motion import sharing


def wheel(speed: float = 0.0, **gravity: Any) -> tuple[mb.Model, Any, Any]:
    """A planar body on a hinge at its centre: moment 1."""
    model = mb.Model(**{"gravity": (0, 0, 0)} | gravity)
    body = model.add(mb.PlanarBody("wheel", 1.0, 1.0, angular_velocity=speed))
    return model, body, model.add(mb.Revolute("hinge", model.ground, body, at=(0, 0)))


# --- changes ------------------------------------------------------------------------------------------


def test_functions_read_values_that_have_changed() -> None:
    """In the same model, in a new one, and in what a motion says."""

    class Drive:
        torque = 1.0

    drive = Drive()
    effort = lambda t: drive.torque + 0.0 * t
    model, _, hinge = wheel()
    model.add(mb.Motor("motor", hinge, effort=effort))
    for drive.torque in (1.0, 2.0):
        sol = model.solve((0.0, 1.0), h=0.1)
        assert sol.v[-1, 2] == pytest.approx(drive.torque)
        assert model.motion(sol).power("motor")[-1] == pytest.approx(drive.torque**2)
    drive.torque = 3.0
    other, _, hinge = wheel()
    other.add(mb.Motor("motor", hinge, effort=effort))
    sol = other.solve((0.0, 1.0), h=0.1)
    assert sol.v[-1, 2] == pytest.approx(3.0)
    assert other.motion(sol).power("motor")[-1] == pytest.approx(9.0)


@pytest.mark.parametrize("first", ["assemble", "system"])
def test_values_that_change_before_the_first_run(first: str) -> None:
    """Functions have been traced already. Arguments with defaults count too."""
    numbers = {"torque": 0.0}
    model, _, hinge = wheel()
    model.add(mb.Motor("motor", hinge, effort=lambda t, of=numbers: of["torque"]))
    model.assemble() if first == "assemble" else model.system
    for numbers["torque"] in (10.0, 20.0):
        assert model.solve((0.0, 0.1), h=0.01).v[-1, 2] == pytest.approx(0.1 * numbers["torque"])


def test_joints_close_with_values_that_have_changed() -> None:
    class Drive:
        speed = 1.0

    drive = Drive()
    model, body, hinge = wheel()
    model.add(mb.Driven("drive", hinge, lambda t: drive.speed * t))
    for drive.speed in (1.0, 3.0):
        model.assemble()
        assert body.angular_velocity == pytest.approx(drive.speed)
        assert model.solve((0.0, 0.1), h=0.01).v[-1, 2] == pytest.approx(drive.speed)


def test_gravity_may_be_changed_and_masses_may_not() -> None:
    model = mb.Model()
    ball = model.add(mb.PointMass("ball", 1.0))
    fall = lambda: model.solve((0.0, 1.0), h=0.1).v[-1, 2]
    assert fall() == pytest.approx(-9.81)
    model.gravity = (0, 0, -1)
    assert fall() == pytest.approx(-1.0)
    with pytest.raises(ValueError, match="read-only"):
        model.gravity[2] = 0.0
    with pytest.raises(ValueError, match="gravity must be 3"):
        model.gravity = (1,)
    with pytest.raises(AttributeError, match=r"values=\{'ball.mass'"):
        ball.mass = 2.0
    assert model.solve((0.0, 1.0), h=0.1, values={"ball.mass": 2.0}).success
    with pytest.raises(ValueError, match=r"ball\.mass must be positive"):
        model.solve((0.0, 1.0), h=0.1, values={"ball.mass": -1.0})


def test_points_of_a_joint_are_those_of_its_springs_and_events() -> None:
    def build(at: float) -> mb.Model:
        model = mb.Model(gravity=(0, 0, 0))
        block = model.add(mb.Body("block", mb.box(1.0, (0.1, 0.1, 0.1))))
        slider = model.add(mb.Prismatic("slider", model.ground.frame((0, 0, at)), block.frame()))
        model.add(mb.JointSpring("spring", slider, 10.0, free=0.1))
        return model

    moved, model = build(-0.2), build(0.0)
    assert "spring.a" not in model.values
    runs = [
        m.solve((0.0, 1.0), h=0.01, values=values, events=m.event("slider", 0.05))
        for m, values in ((moved, None), (model, {"slider.a": (0, 0, -0.2)}))
    ]
    assert np.allclose(runs[0].q, runs[1].q, atol=1e-12)
    assert np.allclose(runs[0].t_events[0], runs[1].t_events[0], atol=1e-12)
    assert len(runs[0].t_events[0])
    bounced = [
        m.solve((0.0, 1.0), h=0.01, values=values, events=m.stops("slider", 0.02, 1.0, restitution=0.5))
        for m, values in ((moved, None), (model, {"slider.a": (0, 0, -0.2)}))
    ]
    assert np.allclose(bounced[0].q, bounced[1].q, atol=1e-10)


def test_motions_with_other_values() -> None:
    """Forces and energies are those of a model that was built with these numbers."""
    values = {"bob.mass": 3.0, "bob.inertia": np.diag([0.3, 0.6, 0.75]), "spring.stiffness": 20.0}
    runs = []
    for mass, stiffness, given in ((1.0, 5.0, values), (3.0, 20.0, None)):
        model = mb.Model()
        tensor = mass * np.array([0.1, 0.2, 0.25])
        bob = model.add(mb.Body("bob", mb.Inertia(mass, tensor), at=(0.5, 0, 0)))
        hinge = model.add(mb.Revolute("hinge", model.ground, bob, at=(0, 0, 0), axis=(0, 1, 0)))
        model.add(mb.JointSpring("spring", hinge, stiffness))
        runs.append(model.motion(model.solve((0.0, 0.5), h=0.01, values=given), given))
    assert np.allclose(runs[0].reaction("hinge").force, runs[1].reaction("hinge").force, atol=1e-9)
    for name, energy in runs[1].energy().items():
        assert np.allclose(runs[0].energy()[name], energy, atol=1e-9), name
    assert np.allclose(runs[0].power("spring"), runs[1].power("spring"), atol=1e-9)


def test_motions_with_other_values_do_not_copy_functions() -> None:
    class Machine:
        lock = threading.Lock()

        def effort(self, t: Any) -> Any:
            return 1.0 + 0.0 * t

    model, _, hinge = wheel()
    machine = Machine()
    machine.own = threading.Lock()
    model.add(mb.Motor("motor", hinge, effort=machine.effort))
    values = {"wheel.mass": 2.0}
    motion = model.motion(model.solve((0.0, 0.1), h=0.01, values=values), values)
    assert motion.power("motor")[-1] == pytest.approx(0.1)


def test_an_inertia_about_another_frame() -> None:
    whole = mb.box(2.0, (1.0, 2.0, 3.0)).plus(1.0, (0.5, 0.2, 0.1))
    R = ga.rotation.matrix(ga.rotation.from_rotation_vector([0.3, -0.5, 0.9]))
    R, at = np.asarray(R), (0.4, -1.0, 0.3)
    again = mb.Inertia.in_frame(3.0, R.T @ whole.about(at) @ R, whole.center, at, R)
    assert np.allclose(again.tensor, whole.tensor)


def door() -> mb.Model:
    """A door on two hinges in line, pushed, with stops."""
    model = mb.Model()
    leaf = model.add(
        mb.Body("leaf", mb.box(20.0, (0.8, 0.04, 2.0)), at=(0.4, 0, 1.0), angular_velocity=(0, 0, 1))
    )
    leaf.velocity = np.array([0.0, 0.4, 0.0])
    for name, z in (("low", 0.3), ("high", 1.7)):
        model.add(mb.Revolute(name, model.ground, leaf, at=(0, 0, z)))
    return model


def test_loads_are_shared_among_redundant_rows() -> None:
    """As multipliers of least norm in a run with all rows; also after events, which such a run has not."""
    kept, model = door(), door()
    assert len(kept.assemble(redundant="keep").redundant) == 5
    model.assemble(redundant="drop")
    reference = kept.motion(kept.solve((0.0, 0.1), h=0.01, redundant="min_norm"))
    motion = model.motion(model.solve((0.0, 0.1), h=0.01))
    for name in ("low", "high"):
        expected, found = reference.reaction(name), motion.reaction(name, redundant="min_norm")
        assert np.allclose(found.force, expected.force, atol=1e-6)
        assert np.allclose(found.torque, expected.torque, atol=1e-6)
    stopped = model.solve((0.0, 1.0), rtol=1e-5, events=model.stops("low", upper=0.3, restitution=0.4))
    assert len(stopped.t_events[0])
    motion = model.motion(stopped)
    total = sum(motion.reaction(name, redundant="min_norm").force[:, 2] for name in ("low", "high"))
    assert total == pytest.approx(20.0 * 9.81, rel=1e-9)
    assert not motion.reaction("high").force.any()  # all of its rows were left out
    assert motion.coordinate("high") == pytest.approx(motion.coordinate("low"))
    assert model.solve(
        (0.0, 0.1), h=0.01, values={"leaf.mass": 10.0}, events=model.event("high", 0.05)
    ).success
    with pytest.raises(ValueError, match="redundant must be"):
        motion.reaction("low", redundant="half")


def test_loads_of_many_joints_are_those_of_a_dense_matrix() -> None:
    """A screen of 22 leaves, each on two hinges: with sparse matrices, and by the pseudoinverse."""
    model = mb.Model()
    before: Any = model.ground
    for k in range(22):
        leaf = model.add(mb.Body(f"leaf {k}", mb.box(1.0 + k, (1, 0.1, 2)), at=(k + 0.5, 0, 0)))
        for z in (-0.8, 0.5):
            model.add(mb.Revolute(f"hinge {k} {z}", before, leaf, at=(k, 0, z), axis=(0, 0, 1)))
        before = leaf
    model.assemble(redundant="drop")
    sol = model.solve((0.0, 0.02), h=0.01)
    full, lam, _ = sharing.shared(model, sol.t, sol.q, sol.v, lambda name: getattr(sol, name))
    kept, every = (Geometry(x).at(sol.q[-1], sol.v[-1], 0.02).B for x in (model, full))
    expected = np.linalg.pinv(every.toarray().T, rcond=1e-10) @ (kept.T @ sol.lam[-1])
    np.testing.assert_allclose(lam[-1], expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    assert np.linalg.norm(expected) < 0.9 * np.linalg.norm(sol.lam[-1])


def test_a_run_goes_on_from_its_state() -> None:
    model, _, _ = wheel(1.0)
    whole = model.solve((0.0, 1.0), h=0.1)
    half = model.solve((0.0, 0.5), h=0.1)
    assert np.array_equal(model.solve((0.5, 1.0), h=0.1, state=half.state).q[-1], whole.q[-1])


# --- bodies of different kinds ------------------------------------------------------------------------


@pytest.mark.parametrize(("joint", "freedom"), [(mb.Revolute, 4), (mb.Prismatic, 4), (mb.Weld, 3)])
def test_a_joint_of_a_planar_and_a_spatial_body_holds_both(joint: Any, freedom: int) -> None:
    model = mb.Model()
    flat = model.add(mb.PlanarBody("flat", 1.0, 1.0))
    block = model.add(mb.Body("block", mb.box(1.0, (0.1, 0.2, 0.3))))
    model.add(joint("joint", flat, block, at=(0, 0, 0), axis=None if joint is mb.Weld else (0, 1, 0)))
    found = model.assemble()
    assert found.freedom == freedom
    sol = model.solve((0.0, 0.2), h=0.01)
    if joint is mb.Weld:
        assert np.abs(sol.q[:, 5]).max() < 1e-12  # z of the block
        assert model.motion(sol).reaction("joint").force[:, 2] == pytest.approx(9.81)


def test_frames_on_point_masses() -> None:
    """Axes count, and do not turn; an offset is refused."""
    model = mb.Model()
    point = model.add(mb.PointMass("point", 1.0))
    model.add(mb.PointOnLine("line", point, model.ground, at=(0, 0, 0), axis=(1, 0, 0)))
    assert np.abs(model.solve((0.0, 0.1), h=0.01).q).max() < 1e-12
    with pytest.raises(ValueError, match="must be at the point"):
        point.frame((1, 0, 0))
    with pytest.raises(ValueError, match="must be at the point"):
        mb.Spherical("ball", model.ground, point, at=(1, 0, 0))


def test_axes_in_the_plane() -> None:
    model = mb.Model(gravity=(1.0, 0, 0))
    block = model.add(mb.PlanarBody("block", 1.0, 1.0))
    slider = mb.Prismatic("slider", model.ground.frame(axis=(1, 0, 0)), block.frame(axis=(1, 0, 0)))
    model.add(slider)
    motion = model.motion(model.solve((0.0, 1.0), h=0.1))
    assert motion.coordinate("slider")[-1] == pytest.approx(0.5)
    with pytest.raises(ValueError, match="must be that of the plane"):
        mb.Revolute("hinge", model.ground, block, at=(0, 0), axis=(1, 0, 0))
    with pytest.raises(ValueError, match="z must be 0"):
        mb.PlanarBody("high", 1.0, 1.0, at=(0, 0, 5))


# --- joint coordinates --------------------------------------------------------------------------------


def test_a_spring_on_a_hinge_counts_from_its_free_angle() -> None:
    """Half a turn to both sides, wherever it is free; its energy agrees with its torque."""
    model, _, hinge = wheel(2.5)
    model.add(mb.JointSpring("spring", hinge, 1.0, free=3.0))
    model.place(*model.pose({"hinge": 3.0}, {"hinge": 2.5}))
    motion = model.motion(model.solve((0.0, 6.0), h=0.01))
    assert motion.coordinate("hinge").max() == pytest.approx(3.0 + 2.5 - 2 * np.pi + 2 * np.pi, abs=1e-3)
    total = motion.energy()["total"]
    assert total == pytest.approx(total[0], rel=1e-3)


def test_whole_turns_between_rows() -> None:
    model, _, _ = wheel(50.0)
    motion = model.motion(model.solve((0.0, 3.0), h=0.01, save=100))
    assert motion.coordinate("hinge") == pytest.approx([0.0, 50.0, 100.0, 150.0])


@pytest.mark.parametrize("speed", [-1.0, 0.0])
def test_a_run_that_starts_at_a_stop(speed: float) -> None:
    """It moves into the stop, or a torque turns it there."""
    model, _, hinge = wheel(speed)
    model.add(mb.Motor("motor", hinge, effort=-1.0))
    sol = model.solve((0.0, 1.5), h=0.01, events=model.stops("hinge", lower=0.0, restitution=0.5))
    assert sol.q[:, 2].min() > -1e-6
    if speed:
        assert sol.t_events[0][0] == pytest.approx(0.0, abs=1e-8)
        assert sol.t_events[0][1] == pytest.approx(1.0, abs=1e-2)


def test_a_plastic_stop_ends_the_run() -> None:
    model, _, _ = wheel(-1.0)
    model.place(*model.pose({"hinge": 0.5}, {"hinge": -1.0}))
    sol = model.solve((0.0, 1.0), h=0.01, events=model.stops("hinge", lower=0.0, restitution=0.0))
    assert sol.t[-1] == pytest.approx(0.5, abs=1e-8)
    rest = model.solve((sol.t_end, 1.0), h=0.1, state=sol.state)  # without the stop
    assert np.abs(rest.v[:, 2]).max() < 1e-12


# --- energies and what was saved ----------------------------------------------------------------------


def test_energy_of_a_bushing() -> None:
    model = mb.Model(gravity=(0, 0, 0))
    spin = {"velocity": (0.5, 0.2, 0.1), "angular_velocity": (1.0, 2.0, -1.0)}
    block = model.add(mb.Body("block", mb.box(1.0, (1, 1, 2)), at=(0.1, 0, 0), **spin))
    model.add(mb.Bushing("rubber", model.ground, block, (100.0, 50.0, 80.0, 20.0, 20.0, 20.0), at=(0, 0, 0)))
    total = model.motion(model.solve((0.0, 1.0), rtol=1e-7)).energy()["total"]
    assert total == pytest.approx(total[0], rel=1e-4)


def test_quantities_that_were_not_saved_are_named() -> None:
    model, _, _ = wheel(1.0)
    motion = model.motion(model.solve((0.0, 0.1), h=0.01, save=["q", "v"]))
    with pytest.raises(ValueError, match="not saved lam"):
        motion.reaction("hinge")
    with pytest.raises(ValueError, match="not saved a,"):
        motion.acceleration("wheel")


# --- bad input ----------------------------------------------------------------------------------------


def _motor(**options: Any) -> Any:
    model, _, hinge = wheel()
    return model.add(mb.Motor("motor", hinge, **options))


def _other_joint() -> Any:
    model, body, _ = wheel()
    return model.add(mb.Motor("motor", mb.Revolute("new", model.ground, body, at=(0, 0)), effort=1.0))


def _geared() -> Any:
    _, _, hinge = wheel()
    return mb.Gear("gear", hinge, hinge, (1, 2))


def _pushed() -> Any:
    model, body, _ = wheel()
    model.add(mb.AppliedForce("push", body, lambda t: jnp.ones(2)))
    return model.solve((0.0, 0.1), h=0.01)


def _placed() -> Any:
    model, _, _ = wheel()
    return model.place([0.0, np.nan, 0.0], [0.0] * 3)


def _spring() -> mb.SpringDamper:
    return mb.SpringDamper("spring", mb.Model().ground.frame((1, 0, 0)), _one(), 1.0)


WRONG = {
    "has kp or kd and no target": lambda: _motor(kp=1.0),
    "has a target and no kp or kd": lambda: _motor(target=lambda t: t),
    "effort of 'motor' must be a number": lambda: _motor(effort="x"),
    "the joint 'new' is not in the model": _other_joint,
    "couples <PlanarRevolute 'hinge' of 'ground' and 'wheel'> with itself": _geared,
    r"force must return an array of shape \(3,\), got an array of shape \(2,\)": _pushed,
    "q must be 3 finite numbers": _placed,
    "stiffness of 'b' must be zero or positive": lambda: mb.Bushing("b", mb.Model().ground, _one(), -1.0),
    "pitch of 's' must be a finite number": lambda: mb.Screw("s", mb.Model().ground, _one(), np.nan),
    "has axes and no at": lambda: mb.Universal("u", mb.Model().ground, _one(), second=(0, 1, 0)),
    "'hinge' of 'ground' and 'wheel'> has no limit$": lambda: setattr(wheel()[2], "limit", 1.0),
    "has no stifness: do you mean 'stiffness'": lambda: setattr(_spring(), "stifness", 1.0),
    "angular_velocity of 'p' must be a finite": lambda: mb.PlanarBody("p", 1, 1, angular_velocity=np.nan),
}


def _one() -> mb.Body:
    return mb.Body("one", mb.sphere(1.0, 0.1))


@pytest.mark.parametrize("message", WRONG)
def test_bad_input_of_models_in_use(message: str) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError), match=message):
        WRONG[message]()


def test_a_structure_says_that_nothing_moves() -> None:
    model = mb.Model()
    model.add(mb.Weld("weld", model.ground, model.add(_one()), at=(0, 0, 0)))
    with pytest.warns(RuntimeWarning, match="no motion"):
        assert model.assemble().freedom == 0
    assert isinstance(model.solve((0.0, 0.1), h=0.05), ga.Solution)

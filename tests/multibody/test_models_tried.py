"""Defects that trials of models have found: meshes, limits, stops, equilibria, rows that were left out."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb

CORNERS = np.array([[x, y, z] for x in (1, 2) for y in (1, 2) for z in (1, 2)], float)
SIDES = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
CUBE = np.array([f for a, b, c, d in SIDES for f in ((a, b, c), (a, c, d))])


def test_meshes_must_be_closed() -> None:
    """Corners may be written once for each triangle, as in STL files."""
    whole = mb.mesh(CORNERS, CUBE, density=2.0)
    apart = mb.mesh(CORNERS[CUBE.ravel()], np.arange(CUBE.size).reshape(-1, 3), density=2.0)
    for found in (whole, apart):
        np.testing.assert_allclose((found.mass, *found.center), (2.0, 1.5, 1.5, 1.5))
    flipped = CUBE.copy()
    flipped[0] = flipped[0][::-1]
    for wrong, count in ((CUBE[2:], 4), (flipped, 3)):
        with pytest.raises(ValueError, match=f"{count} edges of the mesh do not belong to two triangles"):
            mb.mesh(CORNERS, wrong, density=2.0)
    with pytest.raises(ValueError, match="encloses the volume -1"):
        mb.mesh(CORNERS, CUBE[:, ::-1], density=2.0)


def test_meshes_from_files_and_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"v {x} {y} {z}" for x, y, z in CORNERS] + [f"f {a} {b} {c}" for a, b, c in CUBE + 1]
    (tmp_path / "cube.obj").write_text("\n".join(lines))
    monkeypatch.setitem(sys.modules, "trimesh", None)
    of_object = SimpleNamespace(vertices=CORNERS, faces=CUBE)
    for found in (mb.mesh(tmp_path / "cube.obj", density=2e9, scale=1e-3), mb.mesh(of_object, density=2.0)):
        assert found.mass == pytest.approx(2.0)
    with pytest.raises(FileNotFoundError, match=r"no mesh 'cube\.obj'"):
        mb.mesh("cube.obj", density=1.0)
    (tmp_path / "cube.ply").touch()
    with pytest.raises(ValueError, match=r"a \.ply file needs trimesh: pip install trimesh, or write \.stl"):
        mb.mesh(str(tmp_path / "cube.ply"), density=1.0)
    with pytest.raises(TypeError, match="got list and no triangles"):
        mb.mesh(CORNERS.tolist(), density=1.0)


def slider() -> mb.Model:
    model = mb.Model()
    body = model.add(mb.Body("body", mb.box(2.0, (0.1, 0.1, 0.1))))
    model.add(mb.Prismatic("slider", model.ground, body, at=(0, 0, 0), axis=(0, 0, 1)))
    return model


def test_a_run_goes_on_at_a_stop() -> None:
    """After a plastic impact the joint rests at its stop, and stays there."""
    model = slider()
    stops = model.stops("slider", lower=-0.5, restitution=0.0)
    first = model.solve((0.0, 10.0), rtol=1e-6, events=stops)
    again = model.solve((first.t_end, 2.0), state=first.state, rtol=1e-6, events=stops)
    assert again.t_end - first.t_end < 1e-4
    assert again.q[-1, 2] == pytest.approx(-0.5, abs=1e-8)


def test_starts_beyond_a_stop_are_refused() -> None:
    model = slider()
    with pytest.raises(ValueError, match=r"'slider' .* starts beyond its stop, by 0\.5"):
        model.solve((0.0, 1.0), h=0.01, events=model.stops("slider", lower=0.5, restitution=0.5))


def test_an_angle_has_limits_on_both_sides() -> None:
    """With one end, a wheel that turns away from it would gain energy in every turn."""
    model = mb.Model(gravity=(0, 0, 0))
    wheel = model.add(mb.PlanarBody("wheel", 1.0, 0.5, angular_velocity=-3.0))
    hinge = model.add(mb.Revolute("hinge", model.ground, wheel, at=(0, 0)))
    with pytest.raises(ValueError, match="an angle comes back after a turn: pass both"):
        mb.Limit("limit", hinge, upper=1.0, stiffness=100.0)
    model.add(mb.Limit("limit", hinge, -1.0, 1.0, stiffness=100.0))
    energy = model.motion(model.solve((0.0, 3.0), rtol=1e-7)).energy()["total"]
    np.testing.assert_allclose(energy, energy[0], rtol=1e-4)


def door(*hinges: str) -> mb.Model:
    model = mb.Model()
    body = model.add(mb.Body("door", mb.box(10.0, (1, 0.05, 2)), at=(0.5, 0, 0)))
    for name, z in zip(hinges, (0.8, -0.8), strict=False):
        model.add(mb.Revolute(name, model.ground, body, at=(0, 0, z)))
    return model


def test_equilibria_where_a_motion_needs_no_force() -> None:
    """They are where the bodies are, and their stability is not decided."""
    wheel = mb.Model()
    disk = wheel.add(mb.Body("disk", mb.cylinder(1.0, 0.1, 0.1)))
    wheel.add(mb.Revolute("axle", wheel.ground, disk, at=(0, 0, 0), axis=(0, 1, 0)))
    ball = mb.Model()
    body = ball.add(mb.Body("ball", mb.sphere(1.0, 0.1), at=(0, 0, 0.1)))
    ball.add(mb.RollingSphere("table", ball.ground, body, 0.1))
    both = door("top", "bottom")
    both.assemble(redundant="keep")
    for model in (wheel, ball, door("top"), both):
        before = model.q0.copy()
        found = model.equilibrium()
        assert found.stable is None
        np.testing.assert_array_equal(model.q0, before)
    free = ga.equilibrium(ga.System(jnp.eye(2), lambda t, q, v: 0 * q), [1.0, 2.0])
    assert (free.stable, free.q.tolist()) == (None, [1.0, 2.0])


def test_unstable_equilibria_are_left() -> None:
    model = mb.Model(gravity=(0, 0, -9.81))
    bar = model.add(mb.Body.bar("bar", 1.0, (0, 0, 0), (0, 0, 1)))
    model.add(mb.Revolute("hinge", model.ground, bar, at=(0, 0, 0), axis=(0, 1, 0)))
    assert model.equilibrium().stable
    np.testing.assert_allclose(bar.x, (0, 0, -0.5), atol=1e-8)


def test_rows_that_were_left_out_are_listed_and_come_back() -> None:
    model = door("top", "bottom")
    first = model.assemble(redundant="drop")
    assert str(first).startswith("1 degree of freedom; left out: 'bottom', x")
    assert model.assemble() == first._replace(gap=model.assemble().gap)
    kept = model.assemble(redundant="keep")
    assert (kept.redundant, kept.dropped) == (first.redundant, False)
    assert model.solve((0.0, 0.1), h=0.01, redundant="min_norm").lam.shape[1] == 10


def test_energy_of_a_contact() -> None:
    """A ball without damping bounces for ever."""
    model = mb.Model(gravity=(0, 0, -9.81))
    ball = model.add(mb.Body("ball", mb.sphere(1.0, 0.1), at=(0, 0, 0.3)))
    model.add(mb.SphereContact("floor", model.ground, ball, 0.1, 1e5))
    sol = model.solve((0.0, 0.5), rtol=1e-8, atol=1e-10)
    energy = model.motion(sol).energy()
    assert energy["springs"].max() > 1.0
    np.testing.assert_allclose(energy["total"], energy["total"][0], rtol=1e-5)


def test_angles_of_a_universal_joint_start_at_zero() -> None:
    for second in ((0, 1, 0), (0, 0, 1), (0, 1, 1)):
        model = mb.Model()
        body = model.add(mb.Body("body", mb.box(1.0, (0.1, 0.2, 0.3)), at=(0, 0, -0.5)))
        model.add(mb.Universal("joint", model.ground, body, at=(0, 0, 0), axis=(1, 0, 0), second=second))
        motion = model.motion(ga.State(0.0, model.q0, model.v0, *[np.zeros(0)] * 3))
        for name in ("first", "second"):
            assert motion.coordinate("joint", name)[0] == pytest.approx(0.0, abs=1e-15)


def _limited() -> Any:
    model = door("top")
    return model, model.solve((0.0, 0.02), h=0.01)


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("a view has no option 'colour'", lambda: _limited()[0].view(_limited()[1], colour="red")),
        ("the model has no body", lambda: mb.Model().q0),
        ("rates names 'door', which is no joint of the model: it has top", lambda: _with_rate(door("top"))),
        ("total needs one or more of Inertia", mb.total),
        ("motion must return one number", lambda: _driven(lambda t: jnp.array([t, t]))),
    ],
)
def test_messages(message: str, wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        wrong()


def _with_rate(model: mb.Model) -> None:
    model.assemble(rates={"door": 1.0})


def _driven(motion: Any) -> None:
    model = door("top")
    model.add(mb.Driven("drive", model["top"], motion))
    model.assemble()


def test_planar_bodies_that_do_not_fall() -> None:
    model = mb.Model()
    model.add(mb.PlanarBody("body", 1.0, 1.0))
    with pytest.warns(UserWarning, match="they do not fall"):
        assert model.solve((0.0, 1.0), h=0.1).q[-1].tolist() == [0, 0, 0]


def test_the_angle_of_a_planar_body_turns_its_axes() -> None:
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.PlanarBody("body", 1.0, 1.0))
    body.angle = 0.5
    model.add(mb.Revolute("hinge", model.ground, body, at=(1, 0)))
    assert model.assemble().gap < 1e-15
    assert model.q0.tolist() == [0, 0, 0.5]


def test_motions_of_one_joint_that_contradict_each_other() -> None:
    """Two motions with the same rate at the start depend on each other, but want different accelerations."""

    def model(second: Callable[[Any], Any]) -> mb.Model:
        found = mb.Model()
        bar = found.add(mb.Body.bar("bar", 1.0, (0, 0, 0), (1, 0, 0)))
        hinge = found.add(mb.Revolute("hinge", found.ground, bar, at=(0, 0, 0), axis=(0, 1, 0)))
        found.add(mb.Driven("first", hinge, lambda t: t))
        found.add(mb.Driven("second", hinge, second))
        return found

    twice = model(lambda t: t + 0.0)
    with pytest.raises(ga.RedundantConstraints, match="at most 6 can be independent") as caught:
        twice.solve((0.0, 0.1), h=0.01)
    assert str(caught.value).endswith("model.assemble(redundant='drop') leaves redundant rows of joints out.")
    assert twice.assemble(redundant="drop").redundant == ("'second', drive",)
    for second, what in ((lambda t: 2 * t, "velocities"), (lambda t: t + t**2, "accelerations")):
        for redundant in ("drop", "keep"):
            with pytest.raises(ValueError, match=f"no {what} satisfy all joints.*'first', drive"):
                model(second).assemble(redundant=redundant)


def test_a_singular_position_is_not_taken_for_redundancy() -> None:
    """A parallelogram in line: elsewhere the rows along the line do not depend on each other."""
    model = mb.Model(gravity=(0, -9.81, 0))
    ends = {"crank": (0, 1), "coupler": (1, 3), "rocker": (2, 3)}
    crank, coupler, rocker = (
        model.add(mb.Body.bar(name, 1.0, (a, 0, 0), (b, 0, 0))) for name, (a, b) in ends.items()
    )
    pairs = [(model.ground, crank, 0), (crank, coupler, 1), (coupler, rocker, 3), (model.ground, rocker, 2)]
    for name, (a, b, x) in zip("ABCD", pairs, strict=True):
        model.add(mb.Revolute(name, a, b, at=(x, 0, 0), axis=(0, 0, 1)))
    assert model.assemble(redundant="drop").freedom == 1
    with pytest.raises(ga.RedundantConstraints, match="kinematic singularity") as caught:
        model.solve((0.0, 0.1), h=0.01)
    assert "away from this singular position" in str(caught.value)

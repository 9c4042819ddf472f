"""Many runs of a model: batches and sweeps with numbers by name, and the motions of their members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb
from genalpha.run.batch import Batch


@pytest.fixture(scope="module")
def model() -> mb.Model:
    """Two bars that swing, with a spring at the tip."""
    found = mb.Model()
    one = found.add(mb.Body.bar("one", 1.0, (0, 0, 0), (1, 0, 0)))
    two = found.add(mb.Body.bar("two", 2.0, (1, 0, 0), (2, 0, 0)))
    found.add(mb.Revolute("top", found.ground, one, at=(0, 0, 0), axis=(0, 1, 0)))
    found.add(mb.Revolute("middle", one, two, at=(1, 0, 0), axis=(0, 1, 0)))
    tip = two.frame((0.5, 0, 0))
    found.add(mb.SpringDamper("spring", found.ground.frame((2, 0, 1)), tip, 50.0, 1.0, length=0.5))
    return found


MEMBERS: dict[str, Any] = {
    "spring.stiffness": np.array([20.0, 50.0, 90.0]),
    "gravity": np.array([[0, 0, -9.81], [1, 0, -9.81], [0, 0, 0]]),
    "two.inertia": np.array([np.diag([0.02, k, k]) for k in (0.1, 0.2, 0.3)]),
    "spring.b": np.array([[0.5, 0, 0], [0.4, 0, 0], [0.3, 0, 0.1]]),
    "one.mass": 1.5,
}


def of_member(k: int) -> dict[str, Any]:
    return {name: x[k] if np.ndim(x) else x for name, x in MEMBERS.items()}


def test_members_are_runs_with_their_numbers(model: mb.Model) -> None:
    """Numbers, vectors, tensors and points vary; motions of members have the numbers of their runs."""
    batch = model.solve_batch((0.0, 0.2), MEMBERS, h=0.01, save="all")
    for k, member in enumerate(batch):
        alone = model.solve((0.0, 0.2), of_member(k), h=0.01)
        np.testing.assert_allclose(member.q, alone.q, rtol=0, atol=1e-12)
        np.testing.assert_allclose(member.lam, alone.lam, rtol=0, atol=1e-8)
        for of in (
            lambda motion: motion.energy()["total"],
            lambda motion: motion.power("spring"),
            lambda motion: motion.reaction("top").force,
        ):
            np.testing.assert_allclose(
                of(model.motion(member)), of(model.motion(alone)), rtol=1e-9, atol=1e-9
            )
    assert np.ptp([model.motion(member).energy()["gravity"][-1] for member in batch]) > 1
    both = batch[1:]  # some members of a batch are a batch
    np.testing.assert_array_equal(both.args[-1][1]["stiffness"][:, 0], [50.0, 90.0])
    assert both[1].args[-1][1]["stiffness"][0] == 90.0


def test_starts_of_members(model: mb.Model) -> None:
    """From joint coordinates; a start with open joints has a status."""
    rest = {"middle": 0.0}
    starts = [model.pose({"top": angle} | rest, {"top": 1.0} | rest) for angle in (0.1, 0.5)]
    q0, v0 = (np.stack(x) for x in zip(*starts, strict=True))
    batch = model.solve_batch((0.0, 0.1), h=0.01, q0=q0, v0=v0, save="all")
    assert batch.success.all()
    angles = [model.motion(member).coordinate("top")[0] for member in batch]
    np.testing.assert_allclose(angles, [0.1, 0.5], atol=1e-12)
    q0[1, 0] += 0.1
    open_too = model.solve_batch((0.0, 0.1), h=0.01, q0=q0, v0=v0)
    np.testing.assert_array_equal(open_too.success, [True, False])
    closed = model.solve_batch((0.0, 0.1), h=0.01, q0=q0, v0=v0, initial="project")
    assert closed.success.all()


def test_stops_in_a_batch() -> None:
    """A slide hits its stop, sooner if it is pushed harder: √(2 m s / F)."""
    model = mb.Model(gravity=(0, 0, 0))
    cart = model.add(mb.Body("cart", mb.box(mass=2.0, size=(1, 1, 1))))
    slide = model.add(mb.Prismatic("slide", model.ground, cart, at=(0, 0, 0), axis=(1, 0, 0)))
    model.add(mb.Motor("push", slide, effort=1.0))
    stops = model.stops("slide", upper=0.25, restitution=0.5)
    forces = np.array([1.0, 4.0])
    batch = model.solve_batch((0.0, 1.2), {"push.effort": forces}, h=0.01, events=stops)
    found = [member.t_events[0][0] for member in batch if len(member.t_events[0])]
    np.testing.assert_allclose(found, np.sqrt(2 * 2.0 * 0.25 / forces), rtol=1e-9)


def test_batches_that_cannot_be(model: mb.Model) -> None:
    with pytest.raises(ValueError, match=r"the model has no number 'spring.stifness': do you mean"):
        model.solve_batch((0.0, 0.1), {"spring.stifness": [1.0, 2.0]}, h=0.01)
    with pytest.raises(ValueError, match=r"spring.stiffness must be zero or positive, got \[1.0, -2.0\]"):
        model.solve_batch((0.0, 0.1), {"spring.stiffness": [1.0, -2.0]}, h=0.01)
    with pytest.raises(ValueError, match=r"two.inertia: "):
        model.solve_batch((0.0, 0.1), {"two.inertia": [np.eye(3), np.diag([1.0, 1.0, 3.0])]}, h=0.01)
    with pytest.raises(ValueError, match="nothing varies over the batch"):
        model.solve_batch((0.0, 0.1), {"spring.stiffness": 1.0}, h=0.01)
    with pytest.raises(TypeError, match="values or args, not both"):
        model.solve_batch((0.0, 0.1), {"spring.stiffness": [1.0]}, args=model.args({}), h=0.01)


def wheels(coefficients: Any) -> mb.Model:
    """A wheel that turns, and another one that follows it."""
    model = mb.Model(gravity=(0, 0, 0))
    pins = []
    for name, x in (("one", 0.0), ("two", 3.0)):
        body = model.add(mb.PlanarBody(name, 1.0, 1.0, at=(x, 0)))
        pins.append(model.add(mb.Revolute(f"pin {name}", model.ground, body, at=(x, 0))))
    model.add(mb.Mimic("mimic", *pins, coefficients))
    model.assemble(rates={"pin two": 3.0})
    return model


def test_members_half_a_turn_off_are_named(tmp_path: Path) -> None:
    """With values, with args, and in a sweep. Starts that the values make right are right."""
    model, values = wheels([0.0, 1.0]), {"mimic.coefficients": [[0.0, 1.0], [np.pi, 1.0]]}
    args = model.args(values)
    axes = jax.tree.map(lambda x: 0, args)
    message = "frames of 'mimic' are more than a quarter of a turn .* in member 1: "
    for run in (
        lambda: model.solve_batch((0.0, 0.1), values, h=0.05),
        lambda: model.solve_batch((0.0, 0.1), args=args, args_axes=axes, h=0.05),
        lambda: model.sweep((0.0, 0.1), over=values, store=tmp_path / "a.zarr", h=0.05),
        lambda: model.solve_batch((0.0, 0.1), values, h=0.05, q0=np.stack([model.q0] * 2)),
    ):
        with pytest.raises(ga.InconsistentInitialValues, match=message):
            run()
    with pytest.raises(ga.InconsistentInitialValues, match="frames of 'mimic'"):
        model.solve((0.0, 0.1), args=model.args({"mimic.coefficients": [np.pi, 1.0]}), h=0.05)
    model.place(*model.pose({"pin one": np.pi}, {"pin one": 3.0, "pin two": 3.0}))
    values = {"mimic.coefficients": [[np.pi, 1.0], [np.pi, 1.0]], "one.mass": [1.0, 2.0]}
    assert model.solve_batch((0.0, 0.1), values, h=0.05).success.all()


def test_rows_of_members_that_were_left_out(recwarn: Any) -> None:
    """A door on two hinges, one of which is elsewhere in a member."""
    door = mb.Model()
    leaf = door.add(mb.Body("leaf", mb.box(1.0, (1, 0.1, 2)), at=(0.5, 0, 0)))
    for name, z in (("low", -0.5), ("high", 0.5)):
        door.add(mb.Revolute(name, door.ground, leaf, at=(0, 0, z), axis=(0, 0, 1)))
    door.assemble(redundant="drop")
    door.solve_batch((0.0, 0.1), {"leaf.mass": [1.0, 2.0]}, h=0.05)
    assert not recwarn
    moved = [[0.0, 0, 0.5], [0.3, 0, 0.5], [0.0, 0, 0.5]]
    with pytest.warns(
        UserWarning, match="in member 1 of the batch: the row 'high', x was left out .* by 0.3"
    ):
        door.solve_batch((0.0, 0.1), {"high.a": moved}, h=0.05)


def test_members_that_a_motion_that_jumps_leads_astray() -> None:
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.PlanarBody("body", 1.0, 1.0))
    hinge = model.add(mb.Revolute("hinge", model.ground, body, at=(0, 0)))
    model.add(mb.Driven("drive", hinge, lambda t: jnp.where(t < 0.05, 0.0, np.pi)))
    with pytest.warns(UserWarning, match=r"in member 0, 1 of the batch: .*'drive' .* is half a turn from"):
        model.solve_batch(
            (0.0, 0.1), {"body.mass": [1.0, 2.0]}, h=0.05, q0=np.array([[0, 0, 0], [0, 0, 1e-9]])
        )


def test_traced_starts_of_a_batch(model: mb.Model) -> None:
    def end(q0: Any) -> Any:
        return model.solve_batch((0.0, 0.1), {"one.mass": np.ones(1)}, q0=q0, h=0.05).q.sum()

    with pytest.raises(TypeError, match="solve_batch cannot be traced"):
        jax.grad(end)(jnp.array(model.q0))


def test_motions_of_runs_with_smallest_multipliers() -> None:
    """A door on two hinges, heavier than in the model: the loads are those of the run."""
    model = mb.Model()
    door = model.add(mb.Body("door", mb.box(mass=1.0, size=(1, 0.1, 2)), at=(0.5, 0, 0)))
    for name, z in (("low", -0.5), ("high", 0.5)):
        model.add(mb.Revolute(name, model.ground, door, at=(0, 0, z), axis=(0, 0, 1)))
    sol = model.solve((0.0, 0.1), {"door.mass": 10.0}, h=0.01, redundant="min_norm")
    motion = model.motion(sol)
    loads = [motion.reaction(name).force[-1, 2] for name in ("low", "high")]
    assert sum(loads) == pytest.approx(98.1)
    assert motion.energy()["gravity"][0] == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(motion.momentum().linear, 10 * model.motion(sol).velocity("door"), atol=1e-12)


# --- sweeps -----------------------------------------------------------------------------------------


def test_a_sweep_with_axes_by_name(model: mb.Model, tmp_path: Path) -> None:
    """A product of two axes; it resumes, and its runs are those of a batch."""
    pytest.importorskip("zarr")
    over = {"spring.stiffness": [20.0, 50.0], "one.mass": [1.0, 2.0, 3.0]}
    run = lambda: model.sweep((0.0, 0.1), over=over, store=tmp_path / "a.zarr", h=0.01)
    found = run().open()
    k, m = (x.reshape(-1) for x in np.meshgrid(*over.values(), indexing="ij"))
    batch = model.solve_batch((0.0, 0.1), {"spring.stiffness": k, "one.mass": m}, h=0.01)
    np.testing.assert_allclose(found.q.values, batch.q[:, -1], rtol=0, atol=1e-13)
    np.testing.assert_array_equal(found["spring.stiffness"].values, k)
    assert run().tally.runs == 0


def test_a_sweep_with_a_function(model: mb.Model, tmp_path: Path) -> None:
    """One axis sets two numbers and the start; another one is a setting, a third a number by name."""
    pytest.importorskip("zarr")
    over = {"scale": [1.0, 2.0], "one.mass": [1.0, 2.0], "h": [0.01, 0.005]}

    def member(scale: Any) -> dict[str, Any]:
        values = {"two.mass": 2.0 * scale, "spring.stiffness": 50.0 * scale}
        return {"values": values, "v0": model.v0 * scale}

    found = model.sweep((0.0, 0.1), over=over, store=tmp_path / "a.zarr", member=member).open(grid=True)
    values = {"two.mass": 4.0, "spring.stiffness": 100.0, "one.mass": 2.0}
    alone = model.solve((0.0, 0.1), values, h=0.005)
    last = found.q.sel(scale=2.0, h=0.005).sel({"one.mass": 2.0})
    np.testing.assert_allclose(last, alone.q[-1], rtol=0, atol=1e-12)


def test_sweeps_that_cannot_be(model: mb.Model, tmp_path: Path) -> None:
    run = lambda over, **more: model.sweep((0.0, 0.1), over=over, store=tmp_path / "a.zarr", h=0.01, **more)
    with pytest.raises(ValueError, match=r"'one.mas' is no number of the model: do you mean 'one.mass'"):
        run({"one.mas": [1.0]})
    with pytest.raises(ValueError, match=r"one.mass must be positive"):
        run({"one.mass": [1.0, -1.0]})
    with pytest.raises(TypeError, match="returns values by name"):
        run({"x": [1.0]}, member=lambda x: {"args": (x,)})
    with pytest.raises(ValueError, match=r"member takes none of the axes one.mass"):
        run({"one.mass": [1.0]}, member=lambda: {"values": {"two.mass": 3.0}})
    with pytest.raises(ValueError, match="args of the sweep are not those of the model"):
        run({"one.mass": [1.0]}, args=(1.0,))
    with pytest.raises(ValueError, match=r"the axis 'args\[0\].*exclude each other"):
        run({"one.mass": [1.0], "args[0][1]": [1.0]})
    assert not list(tmp_path.iterdir())


def test_sweeps_about_args_and_about_members(model: mb.Model, tmp_path: Path) -> None:
    """Other numbers are those of args. An axis may have the name of a number that a function takes."""
    pytest.importorskip("zarr")
    stores = iter(tmp_path / f"{k}.zarr" for k in range(3))

    def run(**more: Any) -> Any:
        found = model.sweep((0.0, 0.1), store=next(stores), h=0.05, **more).open()
        return found.q.values, found.status.values

    alone = lambda **values: model.solve(
        (0.0, 0.1), {k.replace("_", "."): x for k, x in values.items()}, h=0.05
    )
    q, _ = run(over={"one.mass": [1.0, 2.0]}, args=model.args({"two.mass": 4.0}))
    np.testing.assert_allclose(q[1], alone(one_mass=2.0, two_mass=4.0).q[-1], atol=1e-12)
    gravity = [[0, 0, -9.81], [1.0, 0, 0]]
    q, _ = run(over={"gravity": gravity}, member=lambda gravity: {"values": {"gravity": 2 * gravity}})
    np.testing.assert_allclose(q[1], alone(gravity=np.array([2.0, 0, 0])).q[-1], atol=1e-12)
    q, status = run(over={"k": [-4.0, 8.0]}, member=lambda k: {"values": {"spring.stiffness": k}})
    assert status[0] > 0
    np.testing.assert_allclose(q[1], alone(spring_stiffness=8.0).q[-1], atol=1e-12)


@pytest.mark.parametrize("run", [False, True], ids=["new", "after a run"])
def test_events_and_stops_of_sweeps(tmp_path: Path, run: bool) -> None:
    """They travel to workers as the model does. Times of a pendulum are those of single runs."""
    pytest.importorskip("zarr")
    model = mb.Model()
    arm = model.add(mb.Body("arm", mb.rod(1.0, 1.0), at=(0.5, 0, 0)))
    model.add(mb.Revolute("hinge", model.ground, arm, at=(0, 0, 0), axis=(0, 1, 0)))
    events = [
        model.event("hinge", np.pi / 2, direction=1),
        *model.stops("hinge", lower=-1.0, upper=2.5, restitution=0.5),
    ]
    if run:  # machine code has been made
        assert model.solve((0.0, 1.0), rtol=1e-6, events=events).t_events[0].size
    gravity = np.array([[0, 0, -9.81], [0, 0, -5.0]])
    found = model.sweep(
        (0.0, 2.0), rtol=1e-6, store=tmp_path / "a.zarr", events=events, over={"gravity": gravity}
    ).open()
    for i, one in enumerate(gravity):
        times = model.solve((0.0, 2.0), rtol=1e-6, events=events, values={"gravity": one}).t_events
        for k, expected in enumerate(times):
            given = np.asarray(found[f"t_event_{k}"][i])
            np.testing.assert_allclose(given[np.isfinite(given)], expected, atol=1e-6)
        assert all(times[k].size for k in (0, 2))


def test_batches_with_friction_start_by_machine_code(monkeypatch: Any) -> None:
    """XLA compiled the iteration for consistent values for ten seconds. Members are single runs."""
    monkeypatch.setattr(Batch, "_begun", None)
    model = mb.Model()
    nut = model.add(mb.Body("nut", mb.box(2.0, (0.2, 0.2, 0.1))))
    model.add(mb.Screw("screw", model.ground, nut, pitch=0.5, at=(0, 0, 0)))
    arm = model.add(mb.Body("arm", mb.rod(1.0, 0.5), at=(0.4, 0, 0)))
    rubs = mb.Friction(0.1, radius=0.05, speed=0.05)
    model.add(mb.Revolute("hinge", nut, arm, at=(0.1, 0, 0), axis=(0, 1, 0), friction=rubs))
    masses = [1.0, 2.0, 3.0]
    batch = model.solve_batch((0.0, 0.1), {"nut.mass": masses}, h=0.01, save="all")
    for i, mass in enumerate(masses):
        one = model.solve((0.0, 0.1), h=0.01, values={"nut.mass": mass})
        np.testing.assert_allclose(batch.q[i], one.q, atol=1e-13)
        np.testing.assert_allclose(batch.lam[i], one.lam, atol=1e-10)

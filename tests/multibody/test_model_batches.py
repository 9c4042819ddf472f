"""Many runs of a model: batches and sweeps with numbers by name, and the motions of their members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genalpha import multibody as mb


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
    batch = model.solve_batch((0.0, 1.2), {"push.constant": forces}, h=0.01, events=stops)
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
    assert not list(tmp_path.iterdir())

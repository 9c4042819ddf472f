"""Which redundant rows are left out: the others must stay independent while the mechanism moves."""

import numpy as np
import pytest
import scipy.optimize

from genalpha import multibody as mb
from genalpha.multibody.closing import left_out


def link(theta, length, twist):
    """The pose of the next hinge of a chain (Denavit and Hartenberg)."""
    c, s, C, D = np.cos(theta), np.sin(theta), np.cos(twist), np.sin(twist)
    return np.array(
        [[c, -s * C, s * D, length * c], [s, c * C, -c * D, length * s], [0, D, C, 0], [0, 0, 0, 1]]
    )


def bennett():
    """Bennett's linkage: four hinges in space whose axes are neither parallel nor meet, and one freedom."""
    a, alpha, beta = 1.0, 0.7, 1.1
    sides = ((a, alpha), (a * np.sin(beta) / np.sin(alpha), beta)) * 2

    def loop(angles):
        found = np.eye(4)
        for angle, side in zip((1.0, *angles), sides, strict=True):
            found = found @ link(angle, *side)
        return (found - np.eye(4))[:3].reshape(-1)

    other = 2 * np.arctan(np.sin((beta + alpha) / 2) / np.sin((beta - alpha) / 2) / np.tan(0.5))
    starts = [(s * other, r, -s * other) for s in (1, -1) for r in (1, -1)]
    angles = min((scipy.optimize.least_squares(loop, x, xtol=1e-15) for x in starts), key=lambda x: x.cost).x
    poses = [np.eye(4)]
    for angle, side in zip((1.0, *angles), sides[:3], strict=False):
        poses.append(poses[-1] @ link(angle, *side))
    model = mb.Model(gravity=(1, 2, -9.81))
    place = [pose[:3, 3] for pose in poses[:4]]
    bars = [model.add(mb.Body.bar(f"bar {i}", 1.0, *place[i : i + 2])) for i in range(3)]
    bodies = [model.ground, *bars, model.ground]
    for i in range(4):
        model.add(mb.Revolute(f"hinge {i}", *bodies[i : i + 2], at=place[i], axis=poses[i][:3, 2]))
    return model


def test_reactions_of_bennetts_linkage_stay_small():
    """By the first rows that are independent at the start, forces grew to 9e4 at t = 0.8."""
    model = bennett()
    assert model.assemble(redundant="drop").freedom == 1
    motion = model.motion(model.solve((0.0, 1.5), h=5e-3, method="index3"))
    for i in range(4):
        assert np.abs(motion.reaction(f"hinge {i}").force).max() < 60.0
    energy = motion.energy()
    assert np.abs(energy["total"] - energy["total"][0]).max() < 1e-3 * np.ptp(energy["kinetic"])


def parallelogram():
    """Hinges in a plane, in a loop in space."""
    model = mb.Model()
    points = [(0, 0, 0), (0.2, 0, 0.3), (1.0, 0, 0.7), (1.2, 0, 0)]
    bars = [model.add(mb.Body.bar(f"bar {i}", 1.0, *points[i : i + 2])) for i in range(3)]
    bodies = [model.ground, *bars, model.ground]
    for i, name in enumerate("ABCD"):
        model.add(mb.Revolute(name, *bodies[i : i + 2], at=points[i], axis=(0, 1, 0)))
    return model


@pytest.mark.parametrize("driven", [False, True])
def test_a_good_choice_is_kept(driven):
    """That of the last joint is easy to understand."""
    model = parallelogram()
    if driven:
        model.add(mb.Driven("drive", model["A"], lambda t: t))
    closed = model.assemble(redundant="drop")
    assert closed.redundant == ("'D', y", "'D', about x", "'D', about y")


@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e4, 1e6])
@pytest.mark.filterwarnings("ignore:the mechanism has a size")
def test_the_size_of_a_mechanism_does_not_count(size):
    model = mb.Model()
    points = size * np.array([(0, 0, 0), (0.2, 0, 0.3), (1.0, 0, 0.7), (1.2, 0, 0)])
    bars = [model.add(mb.Body.bar(f"bar {i}", 1.0, *points[i : i + 2])) for i in range(3)]
    bodies = [model.ground, *bars, model.ground]
    for i, name in enumerate("ABCD"):
        model.add(mb.Revolute(name, *bodies[i : i + 2], at=points[i], axis=(0, 1, 0)))
    closed = model.assemble(redundant="drop")
    assert (closed.freedom, closed.redundant) == (1, ("'D', y", "'D', about x", "'D', about y"))


def test_small_units_are_told():
    model = mb.Model()
    bar = model.add(mb.Body.bar("bar", 1.0, (0, 0, 0), (1e-6, 0, 0)))
    model.add(mb.Revolute("hinge", model.ground, bar, at=(0, 0, 0), axis=(0, 1, 0)))
    with pytest.warns(UserWarning, match="size of about 5e-07, .* take smaller units of length"):
        model.assemble()


def test_choices_by_hand():
    """The sum of rows 0 and 1 is zero at first, later that of rows 1 and 2: row 1 is good at both."""
    first = np.array([[1.0, 0, 0], [-1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])
    later = np.array([[0, 1.0, 0], [1.0, 0, 0], [-1.0, 0, 0], [0, 0, 1.0]])
    assert left_out.chosen([0], [first, later]) == [1]
    assert left_out.chosen([2], [first, later]) == [1]
    assert left_out.chosen([0], [first]) == [0]


# --- friction in joints that are redundant ----------------------------------------------------------------


def door(heights, **options):
    """A door of 10 kg on hinges with friction along one line."""
    model = mb.Model(gravity=(0, 0, -9.81))
    body = model.add(mb.Body("door", mb.box(10.0, (0.9, 0.04, 2.0)), at=(0.45, 0, 1.0)))
    for i, height in enumerate(heights):
        friction = mb.Friction(0.3, radius=0.02, **options)
        model.add(
            mb.Revolute(f"h{i}", model.ground, body, at=(0, 0, height), axis=(0, 0, 1), friction=friction)
        )
    return model


def torque(model):
    """The friction of all hinges at the start of a run with one radian per second."""
    model.assemble(redundant="drop", rates={"h0": 1.0})
    motion = model.motion(model.solve((0.0, 0.01), h=0.001))
    return float(sum(motion.friction(joint.name).torque[0, 2] for joint in model.joints))


def test_friction_of_a_door_on_two_hinges():
    """Both pins carry the couple of the weight, and half of the centripetal force each."""
    couple, pull = 98.1 * 0.45 / 1.6, 10 * 0.45 / 2
    by_hand = -0.3 * 0.02 * (couple - pull + couple + pull)
    assert torque(door([0.2, 1.8])) == pytest.approx(by_hand, rel=1e-3)
    one = door([1.0], length=1.6)
    assert torque(one) == pytest.approx(torque(door([0.2, 1.8])), rel=1e-9)


@pytest.mark.parametrize(
    ("heights", "options", "lost"),
    [([0.2, 1.0, 1.8], {}, "'h2', x"), ([0.2, 1.8], {"face": 0.03}, "'h1', z")],
)
def test_friction_that_is_lost_is_named(heights, options, lost):
    """Nobody knows how three pins share a load, or which of two collars carries the weight."""
    with pytest.warns(UserWarning, match=f"friction is too small: .*{lost}"):
        door(heights, **options).assemble(redundant="drop")

"""Modes against formulas, dense against sparse matrices, and pictures."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from examples import linear_analysis
from scipy.special import jn_zeros

import genalpha as ga
from genalpha import multibody as mb
from genalpha.statics import modes as module
from test_equilibrium import arch, chain


def string(count: int, damping: float) -> ga.Assembly:
    """Masses between springs of stiffness one with dampers, in a row between two walls, rods across."""
    force = lambda x: jnp.array([-x, x])
    points = ga.Part(mass=jnp.eye(2), holonomic=lambda t, q: q[1:], nodes=np.arange(count))
    springs = ga.Part(
        force=lambda t, q, v: jnp.stack(
            [force(q[0, 0] - q[1, 0] + damping * (v[0, 0] - v[1, 0])), jnp.zeros(2)], axis=1
        ),
        nodes=np.stack([np.arange(count - 1), np.arange(1, count)], axis=1),
    )
    walls = ga.Part(
        force=lambda t, q, v: -jnp.array([q[0] + damping * v[0], 0.0]),
        nodes=[0, count - 1],
    )
    return ga.Assembly([points, springs, walls], space=ga.Euclidean(2), count=count)


def in_a_row(count: int) -> np.ndarray:
    """Squares of the frequencies of such masses."""
    return (2 * np.sin(np.arange(1, count + 1) * np.pi / (2 * count + 2))) ** 2


def test_masses_in_a_row():
    system = string(6, 0.0)
    found = ga.modes(system, (0.0, np.zeros(12)))
    np.testing.assert_allclose(found.omega**2, in_a_row(6), rtol=1e-12)
    np.testing.assert_allclose(found.damping, 0, atol=1e-12)
    np.testing.assert_allclose(found.shapes.T @ found.shapes, np.eye(6), atol=1e-12)
    shape = np.sin(np.pi * np.arange(1, 7) / 7)
    np.testing.assert_allclose(np.abs(found.shapes[::2, 0]), shape / np.linalg.norm(shape), rtol=1e-10)
    assert len(ga.modes(system, (0.0, np.zeros(12)), 2)) == 2
    highest = ga.modes(system, (0.0, np.zeros(12)), 1, near=10.0)
    assert highest.omega**2 == pytest.approx(in_a_row(6)[-1:])


@pytest.mark.parametrize("damping", [0.0, pytest.param(0.1, marks=pytest.mark.slow)])
def test_sparse_matrices_give_the_same(damping, monkeypatch):
    """Damping in proportion to stiffness: ζ = ω/2 times the factor."""
    monkeypatch.setattr(module, "DENSE", 3)
    count = 40
    found = ga.modes(string(count, damping), (0.0, np.zeros(2 * count)), 4)
    omega = np.sqrt(in_a_row(count)[: len(found)])
    np.testing.assert_allclose(found.omega, omega, rtol=1e-9)
    np.testing.assert_allclose(found.damping, damping * omega / 2, atol=1e-9)
    shape = np.sin(np.pi * np.arange(1, count + 1) / (count + 1))
    first = found.shapes[::2, 0]
    np.testing.assert_allclose(first / first[count // 2], shape / shape[count // 2], atol=1e-7)


@pytest.mark.slow
def test_a_chain_of_a_thousand_rods():
    """Frequencies of a hanging chain approach a limit at order two."""
    found = []
    for count in (250, 500, 1000):
        net = chain(count, 0.6)
        found.append(ga.modes(net, ga.equilibrium(net, arch(count, 0.6, -0.3)), 4).omega)
    steps = np.diff(found, axis=0)
    np.testing.assert_allclose(steps[0] / steps[1], 4, rtol=0.05)


@pytest.mark.slow
def test_a_thousand_bodies_on_hinges():
    """They hang straight down: ω = j/2 √(g/l) with zeros j of the Bessel function J0, in both directions."""
    model, length = mb.Model(), 10.0
    body: Any = model.ground
    for i in range(1000):
        new = model.add(mb.Body(f"{i}", mb.rod(0.01, length / 1000), at=(0, 0, -length / 1000 * (i + 0.5))))
        axis = (0, 1, 0) if i % 2 else (1, 0, 0)
        model.add(mb.Revolute(f"hinge {i}", body, new, at=(0, 0, -length / 1000 * i), axis=axis))
        body = new
    wanted = jn_zeros(0, 2) / 2 * np.sqrt(9.81 / length)
    np.testing.assert_allclose(model.modes(4).omega, np.repeat(wanted, 2), rtol=1e-3)
    np.testing.assert_allclose(model.modes(4).omega[[0, 2]], wanted, rtol=1e-5)
    assert model.equilibrium().stable


@pytest.mark.slow
def test_redundant_rows_of_large_systems_do_not_matter():
    """Every rod of a chain of 300 is given twice."""
    single, double = chain(300, 0.6), chain(300, 0.6, rows=2)
    start = arch(300, 0.6, -0.3)
    rests = [ga.equilibrium(net, start) for net in (single, double)]
    np.testing.assert_allclose(rests[1].q, rests[0].q, atol=1e-9)
    found = [ga.modes(net, rest, 4).omega for net, rest in zip((single, double), rests, strict=True)]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-7)


def test_an_overdamped_and_a_growing_motion():
    """q'' + 3 q' + 2 q = 0 decays by −1 and −2; q'' = 4 q grows by 2."""
    system = ga.System(jnp.eye(2), lambda t, q, v: jnp.array([-3 * v[0] - 2 * q[0], 4 * q[1]]))
    found = ga.modes(system, (0.0, np.zeros(2)))
    np.testing.assert_allclose(np.sort(found.eigenvalues.real), [-2, -2, -1, 2], atol=1e-12)
    np.testing.assert_allclose(found.damping[found.eigenvalues.real > 0], -1)
    alone = ga.System(jnp.eye(1), lambda t, q, v: 4 * q)
    assert ga.modes(alone, (0.0, [0.0])).eigenvalues == pytest.approx([2.0])


@pytest.mark.slow
def test_tables_and_pictures(tmp_path):
    system = ga.System(
        jnp.eye(2), lambda t, q, v: jnp.array([-4 * q[0] - 0.4 * v[0], -q[1]]), names={"q": ["x", "y"]}
    )
    state = (0.0, np.zeros(2))
    lines = str(ga.modes(system, state)).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["y", "x"]
    assert float(lines[2].split()[2]) == pytest.approx(0.1)
    linear = ga.linearize(system, state, inputs=[0], outputs=lambda t, q, v: q[0])
    for number, figure in enumerate((ga.modes(system, state).plot(), linear.plot())):
        figure.savefig(tmp_path / f"{number}.png")
    assert [ax.get_title() for ax in figure.axes] == [
        "eigenvalues",
        "size of the response",
        "phase [degrees]",
    ]
    curve = figure.axes[1].lines[0]
    peak = curve.get_xdata()[np.argmax(curve.get_ydata())]
    assert peak == pytest.approx(2 * np.sqrt(1 - 2 * 0.1**2), rel=0.02)


@pytest.mark.slow
def test_the_example(capsys, tmp_path):
    """The bicycle is stable between the weave speed 4.292 and the capsize speed 6.024 m/s of the paper."""
    linear_analysis.main(["--save", str(tmp_path / "picture.png")])
    assert "stable by itself from 4.3 to 6.0 m/s" in capsys.readouterr().out
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_the_lowest_modes_of_a_damped_system_with_a_stiff_spring():
    """The first shift of the sparse search lies far above them."""
    count = 450
    omega = np.append(np.arange(1.0, count), 1e6)
    system = ga.Assembly(
        [
            ga.Part(
                mass=np.eye(1),
                force=lambda t, q, v, w: -(w**2) * q - 1e-3 * v,
                nodes=np.arange(count),
                args=(omega,),
            )
        ],
        space=ga.Euclidean(1),
        count=count,
    )
    found = ga.modes(system, (0.0, np.zeros(count)), 5)
    np.testing.assert_allclose(np.abs(found.eigenvalues), np.arange(1.0, 6.0), rtol=1e-9)
    np.testing.assert_allclose(found.eigenvalues.real, -5e-4, rtol=1e-6)

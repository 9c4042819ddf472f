"""Words and pictures of a solution: summaries, small tables in notebooks, plots by name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga

SYSTEM = ga.System(
    mass=lambda t, q: jnp.diag(jnp.array([2.0, 3.0])),
    force=lambda t, q, v: -q,
    holonomic=lambda t, q: q[:1] - 1.0,
    names={"q": ["<x>", "angle"], "holonomic": ["a & b"]},
    units={"q": ["m", "rad"], "t": "s"},
)


@pytest.fixture(scope="module")
def sol():
    return ga.solve(SYSTEM, (0.0, 1.0), [1.0, 0.5], [0.0, 2.0], h=0.1)


@pytest.fixture(scope="module")
def chain():
    system = ga.System(np.eye(11), lambda t, q, v: -q, names={"q": [f"x{i}" for i in range(11)]})
    return ga.solve(system, (0.0, 1.0), np.ones(11), np.zeros(11), h=0.5)


def test_a_summary_has_values_by_name(sol):
    lines = sol.summary().splitlines()
    assert lines[0] == "soi2, native: reached the end of the time span"
    assert "t: 0 to 1 s, 11 rows" in lines
    cells = {line.split()[0]: line.split()[1:] for line in lines if line[:1] not in " "}
    assert cells["<x>"] == ["1", "1", "m"]
    assert cells["angle"] == ["0.5", f"{sol.q[-1, 1]:.6g}", "rad"]
    assert cells["angle'"] == ["2", f"{sol.v[-1, 1]:.6g}", "rad/s"]
    energies = 1.5 * sol.v[[0, -1], 1] ** 2  # m v²/2 with the mass 3
    assert f"kinetic energy: {energies[0]:.6g} in the first row, {energies[1]:.6g} in the last" in lines
    assert not any("what to look at" in line for line in lines)


def test_a_summary_of_many_coordinates_is_short(chain):
    text = chain.summary()
    assert text.count("and 3 more") == 2
    assert "x7'" in text
    assert "x8" not in text


def test_a_summary_of_a_batch_counts_its_members():
    batch = ga.solve_batch(SYSTEM, (0.0, 1.0), [[1.0, 0.0], [2.0, 0.0], [1.0, 1.0]], [0.0, 1.0], h=0.1)
    lines = batch.summary().splitlines()
    assert lines[0] == "soi2, native: 2 of 3 runs reached the end of the time span"
    assert lines[1] == "steps: 0 to 10 a member, 1 rows kept"
    assert lines[2].endswith("break the constraints: 1 members, numbers 1")
    html = batch._repr_html_()
    assert "<caption>soi2, native: 2 of 3 runs" in html


def test_tables_for_notebooks_are_escaped(sol):
    for thing in (sol, SYSTEM):
        html = thing._repr_html_()
        assert html.startswith("<table><caption>")
        assert "&lt;x&gt;" in html
        assert "a &amp; b" in html
        assert "<x>" not in html
        assert len(html) < 4000
    assert "<td>0.5</td>" in sol._repr_html_()
    assert "angle [rad]" in SYSTEM._repr_html_()
    seen = []
    jax.eval_shape(
        lambda q: seen.append(ga.solve(SYSTEM, (0.0, 1.0), q, [0.0, 2.0], h=0.1)), jnp.array([1.0, 0])
    )
    assert "traced" in seen[0]._repr_html_()


def test_panels_belong_to_kinds_and_units(sol):
    figure = sol.plot("lam[0]", "angle", "<x>", "<x>'")
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert labels == ["coordinates [rad]", "coordinates [m]", "velocities [m/s]", "multipliers"]
    assert figure.axes[-1].get_xlabel() == "t [s]"
    np.testing.assert_array_equal(figure.axes[0].get_lines()[0].get_ydata(), sol.q[:, 1])
    assert [text.get_text() for text in figure.axes[3].get_legend().get_texts()] == ["lam[a & b]"]
    assert [ax.get_ylabel() for ax in sol.plot("residuals.velocity").axes] == ["constraint residuals"]
    with pytest.raises(KeyError, match="Near names: angle, angle'"):
        sol.plot("angel")
    with pytest.raises(TypeError, match="must be strings"):
        sol.plot(["angle"])


@pytest.mark.parametrize(("count", "legend"), [(10, True), (11, False)])
def test_many_curves_get_a_colour_bar(chain, count, legend):
    ax = chain.plot(*[f"x{i}" for i in range(count)]).axes[0]
    assert (ax.get_legend() is not None) == legend
    bars = [[label.get_text() for label in bar.get_yticklabels()] for bar in ax.child_axes]
    assert bars == ([] if legend else [["x0", "x2", "x5", "x8", "x10"]])
    colours = {tuple(np.atleast_1d(line.get_color())) for line in ax.get_lines()}
    assert len(colours) == count

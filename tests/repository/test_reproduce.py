"""The reproductions themselves: bands, tables, pictures and the exit code."""

from pathlib import Path

import numpy as np
import pytest
from reproduce import __main__ as reproduce
from reproduce.common import Check, Result, convergence_plot, convergence_result

from genalpha.convergence import Study


@pytest.mark.parametrize(
    "name",
    [
        "JN08-figure1",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("JN08-figure2", "J11-figure7.1")),
    ],
)
def test_figures_of_the_papers(name, tmp_path, capsys):
    assert reproduce.main(["--to", str(tmp_path), name]) == 0
    assert "within their bands" in capsys.readouterr().out
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert f"## {name}" in page
    assert "| slope |" in page
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(reproduce.EXPERIMENTS) - {"JN08-figure1", "JN08-figure2"}))
def test_all_experiments(name):
    """All numbers are in their bands, but for those that the published page names."""
    page = (Path(__file__).parents[2] / "docs" / "reproduction" / "README.md").read_text(encoding="utf-8")
    for check in reproduce.EXPERIMENTS[name].run().checks:
        assert check.passed or f"OUT OF BAND: {check.name} =" in page, check


def test_a_slope_out_of_its_band_fails(tmp_path, monkeypatch, capsys):
    h = np.array([0.1, 0.05, 0.025, 0.0125])
    first_order = Study("made up", "soi2", h, {"q": h, "v": h**2})
    bands = {"q": (2.0, 0.15), "v": (2.0, 0.15)}
    experiment = reproduce.EXPERIMENTS["JN08-figure1"]
    fake = type(experiment)(
        name="fake",
        title="fake",
        paper="order 2",
        run=lambda: convergence_result(first_order, bands),
        plot=lambda data: convergence_plot(data, ["q", "v"], "fake"),
    )
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {"fake": fake})
    assert reproduce.main(["--to", str(tmp_path)]) == 1
    assert "OUT OF BAND: y = 1.000, expected 2 ± 0.15" in capsys.readouterr().out
    assert "**out of band**" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_bands_include_their_ends():
    assert Check("x", 2.15, 2.0, 0.15 + 1e-12).passed
    assert not Check("x", 2.16, 2.0, 0.15).passed
    assert not Check("x", float("nan"), 2.0, 0.15).passed
    assert reproduce.verdict(Result(None, "", [])) == "all 0 numbers within their bands"


def test_unknown_experiment(capsys):
    with pytest.raises(SystemExit):
        reproduce.main(["figure99"])
    assert "unknown: figure99. Known: JN08-figure1" in capsys.readouterr().err

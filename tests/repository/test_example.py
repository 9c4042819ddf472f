"""The output of `make run` and of the other examples."""

import re

import numpy as np
import pytest
from examples import leaving_a_sphere, pendulum_at_a_wall, slider_crank_with_a_stop
from examples.slider_crank import main


def test_the_summary_of_the_run(tmp_path, capsys):
    main("wheel-on-rod", str(tmp_path))
    out = capsys.readouterr().out
    number = lambda pattern: float(re.search(pattern, out)[1])
    assert number(r"steps +(\d+)") == 400
    assert 400 < number(r"Newton iterations +(\d+)") < 4000
    assert abs(number(r"energy change +([+-][\d.e+-]+) J")) < 1e-3
    assert number(r"position ([\d.e+-]+)") < 1e-13
    assert number(r"velocity ([\d.e+-]+)") < 1e-11
    assert number(r"compile time +([\d.]+) s") > 0
    assert number(r"run time +([\d.]+) ms") > 0
    assert number(r"error of q at the end +([\d.e+-]+)") < 1e-4
    assert (tmp_path / "wheel-on-rod.png").stat().st_size > 10_000


def test_impact_times_of_a_pendulum_agree_with_elliptic_integrals(tmp_path, capsys):
    pendulum_at_a_wall.main(str(tmp_path))
    assert "reached the end of the time span" in capsys.readouterr().out
    assert (tmp_path / "pendulum-at-a-wall.png").stat().st_size > 10_000
    errors = []
    for rtol in (1e-5, 1e-8):
        sol = pendulum_at_a_wall.simulate(rtol=rtol, atol=rtol / 100)
        (times,) = sol.t_events
        errors.append(np.abs(times - pendulum_at_a_wall.exact(len(times))).max())
        speeds = np.sqrt(2 * 9.81) * 0.8 ** np.arange(len(times))
        np.testing.assert_allclose(-sol.v_events[0][:, 0], speeds, rtol=100 * rtol ** (2 / 3))
        assert sol.q[:, 0].min() > -1e-12
    assert errors[1] < 3e-5
    assert errors[1] < errors[0] / 50  # 100 = 1000 to the power of 2/3


@pytest.mark.slow
def test_the_energy_lost_in_an_impact_agrees_with_the_law_of_impact(tmp_path, capsys):
    slider_crank_with_a_stop.main(str(tmp_path))
    rows = re.findall(
        r"([\d.]+)s +(-[\d.]+)m/s +([\d.]+)m/s +([\d.e+-]+)J +([\d.e+-]+)J", capsys.readouterr().out
    )
    assert len(rows) == 2
    for _, before, after, lost, law in np.array(rows, dtype=float):
        assert after == pytest.approx(-0.5 * before, abs=1e-4)
        assert lost == pytest.approx(law, rel=1e-3)
    assert (tmp_path / "slider-crank-with-a-stop.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_ball_leaves_a_sphere_at_the_known_height(tmp_path, capsys):
    leaving_a_sphere.main(str(tmp_path))
    assert "leaves at" in capsys.readouterr().out
    assert (tmp_path / "leaving-a-sphere.png").stat().st_size > 10_000
    errors = []
    for tolerance in (1e-5, 1e-8):
        sliding, flying = leaving_a_sphere.simulate(tolerance)
        errors.append(abs(sliding.q[-1, 1] - 2 / 3 - 0.1**2 / (3 * 9.81)))
        fall = 1 + flying.q[0, 1]
        time = (flying.v[0, 1] + np.sqrt(flying.v[0, 1] ** 2 + 2 * 9.81 * fall)) / 9.81
        assert flying.t[-1] - flying.t[0] == pytest.approx(time, rel=1e-9)
    assert errors[1] < 1e-5
    assert errors[1] < errors[0] / 30

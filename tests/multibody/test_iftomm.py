"""Problems of the IFToMM benchmark library as models, against exact solutions and reference values.

A01: exact (elliptic functions). A02: the regular branch is a pendulum, θ'' = −(g/L) ((N + 1)/2 + N) /
((N + 1)/3 + N) cos θ, and the library's own file agrees with it to 4e-6. A04 and A05: our own reference
solutions in minimal coordinates, to 10 digits. They match the plots of MBS-BOS. A03 is in test_mechanisms.py.

The error of the library is the root mean square of relative errors at output points, where values below 1e-3
count as 1e-3. It allows 1e-3.
"""

import numpy as np
import pytest
from examples import iftomm
from scipy.integrate import solve_ivp
from scipy.special import ellipj, ellipk


def run(model, end, **options):
    model.assemble(redundant="drop")
    sol = model.solve((0.0, end), **options)
    assert sol.backend == "native"
    return model.motion(sol)


def test_a01_pendulum():
    motion = run(iftomm.pendulum(), 10.0, rtol=1e-6)
    np.testing.assert_allclose(
        motion.position("bob")[-1], [-0.27508746257611686, -0.9614192050991251, 0.0], atol=1e-4
    )


def library_error(found, wanted):
    return np.sqrt(np.mean((np.abs(found - wanted) / np.maximum(np.abs(wanted), 1e-3)) ** 2))


@pytest.mark.slow
def test_a01_by_the_measure_of_the_library():
    """4000 points in 2000 s, which are 845 periods."""
    motion = run(iftomm.pendulum(), 2000.0, h=5e-5, save=10_000)
    sn = ellipj(ellipk(0.5) + np.sqrt(9.81) * motion.t, 0.5)[0]
    angle = 2 * np.arcsin(np.sqrt(0.5) * sn)
    wanted = np.stack([-np.sin(angle), -np.cos(angle)], axis=1)
    assert len(wanted) == 4001
    assert library_error(motion.position("bob")[:, :2], wanted) < 1e-3


def top_of_the_crank(count, t):
    share = ((count + 1) / 2 + count) / ((count + 1) / 3 + count)
    rate = lambda t, y: [y[1], -9.81 * share * np.cos(y[0])]
    angle = solve_ivp(rate, (0, t[-1]), [np.pi / 2, -1.0], rtol=1e-11, atol=1e-11, t_eval=t).y[0]
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def test_a02_four_bars_pass_their_singular_positions():
    """All cranks lie flat twice in three seconds, where the mechanism has N + 1 degrees of freedom."""
    motion = run(iftomm.four_bars(2), 3.0, h=2e-3)
    top = motion.position("crank 0", at=(0.5, 0))[:, :2]
    np.testing.assert_allclose(top, top_of_the_crank(2, motion.t), atol=1e-3)
    for i in (1, 2):
        np.testing.assert_allclose(motion.position(f"crank {i}", at=(0.5, 0))[:, 0], top[:, 0] + i, atol=1e-8)


@pytest.mark.slow
def test_a02_by_the_measure_of_the_library():
    """40 four-bars, 400 points in 20 s."""
    motion = run(iftomm.four_bars(40), 20.0, h=5e-4, method="index3", save=100)
    top = motion.position("crank 0", at=(0.5, 0))[:, :2]
    assert len(top) == 401
    assert library_error(top, top_of_the_crank(40, motion.t)) < 1e-3


BRICARD = {  # P3 at t
    1.0: (0.27448131926462704, -0.8867079387346701, -0.46233000268736957),
    2.5: (-0.999983185293, -0.999999999859, -0.000016814566),
    5.0: (0.999932742302, -0.999999997738, -0.000067255436),
    10.0: (0.999730987304, -0.999999963826, -0.000268976512),
}


@pytest.mark.slow
def test_a04_bricard_with_its_redundant_row():
    model = iftomm.bricard()
    found = model.assemble(redundant="drop")
    assert (found.freedom, len(found.redundant)) == (1, 1)
    motion = run(model, 10.0, h=2.5e-3)
    for t, wanted in BRICARD.items():
        at = round(t / 2.5e-3)
        np.testing.assert_allclose(motion.position("rod 2", at=(0.5, 0, 0))[at], wanted, atol=1e-5)
    energy = motion.energy()["total"]
    assert np.ptp(energy) < 1e-4 * np.ptp(motion.energy()["kinetic"])


GOVERNOR = {  # height of the slider at t
    0.5: 0.7432494247863257,
    1.0: 0.501420922379568,
    2.0: 0.505909294297,
    5.0: 0.535563103722,
    10.0: 0.619622917061,
}


@pytest.mark.slow
def test_a05_governor_with_stiff_springs():
    motion = run(iftomm.governor(), 10.0, h=2e-3, method="index3")
    s = motion.position("slider")[:, 2]
    for t, wanted in GOVERNOR.items():
        assert s[round(t / 2e-3)] == pytest.approx(wanted, rel=3e-4)
    assert motion.coordinate("bearing")[500] == pytest.approx(5.586346965868998, abs=1e-3)


@pytest.mark.slow
def test_a05_with_error_control():
    """It goes on with coupled stages after some 0.85 s, in the middle of a block of steps."""
    motion = run(iftomm.governor(), 1.0, rtol=1e-4)
    assert motion.position("slider")[-1, 2] == pytest.approx(GOVERNOR[1.0], rel=1e-3)

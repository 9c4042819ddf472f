"""Problems of the IFToMM benchmark library as models, against exact solutions and reference values.

A01: exact (elliptic functions). A02: the regular branch is a pendulum, θ'' = −(g/L) ((N + 1)/2 + N) /
((N + 1)/3 + N) cos θ, and the library's own file agrees with it to 4e-6. A04 and A05: our own reference
solutions in minimal coordinates, to 10 digits. They match the plots of MBS-BOS.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import iftomm


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


@pytest.mark.parametrize(("count", "end"), [(2, 3.0), pytest.param(40, 10.0, marks=pytest.mark.slow)])
def test_a02_four_bars_pass_their_singular_positions(count, end):
    """All cranks lie flat twice in three seconds, where the mechanism has N + 1 degrees of freedom."""
    motion = run(iftomm.four_bars(count), end, h=2e-3)
    share = ((count + 1) / 2 + count) / ((count + 1) / 3 + count)
    exact = solve_ivp(
        lambda t, y: [y[1], -9.81 * share * np.cos(y[0])],
        (0, end),
        [np.pi / 2, -1.0],
        rtol=1e-11,
        atol=1e-11,
        t_eval=motion.t[motion.t <= end],
    )
    top = motion.position("crank 0", at=(0.5, 0))
    wanted = np.stack([np.cos(exact.y[0]), np.sin(exact.y[0])], axis=1)
    np.testing.assert_allclose(top[: len(wanted), :2], wanted, atol=1e-3)
    for i in range(1, count + 1):
        np.testing.assert_allclose(motion.position(f"crank {i}", at=(0.5, 0))[:, 0], top[:, 0] + i, atol=1e-8)


BRICARD = {  # P3 at t
    1.0: (0.27448131926462704, -0.8867079387346701, -0.46233000268736957),
    2.5: (-0.999983185293, -0.999999999859, -0.000016814566),
}


def test_a04_bricard_with_its_redundant_row():
    model = iftomm.bricard()
    found = model.assemble(redundant="drop")
    assert (found.freedom, len(found.redundant)) == (1, 1)
    motion = run(model, 2.5, h=2.5e-3)
    for t, wanted in BRICARD.items():
        at = round(t / 2.5e-3)
        np.testing.assert_allclose(motion.position("rod 2", at=(0.5, 0, 0))[at], wanted, atol=1e-3)
    energy = motion.energy()["total"]
    assert np.ptp(energy) < 1e-4 * np.ptp(motion.energy()["kinetic"])


GOVERNOR = {0.5: 0.7432494247863257, 1.0: 0.501420922379568}  # height of the slider at t


@pytest.mark.slow
def test_a05_governor_with_stiff_springs():
    motion = run(iftomm.governor(), 1.0, h=2e-3)
    s = motion.position("slider")[:, 2]
    for t, wanted in GOVERNOR.items():
        assert s[round(t / 2e-3)] == pytest.approx(wanted, abs=1e-4)
    assert motion.coordinate("bearing")[-1] == pytest.approx(5.586346965868998, abs=1e-3)

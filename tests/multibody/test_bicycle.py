"""The benchmark bicycle: eigenvalues of lean and steer from the linear equations of the model.

J. P. Meijaard, J. M. Papadopoulos, A. Ruina, A. L. Schwab: Linearized dynamics equations for the balance and
steer of a bicycle: a benchmark and review. Proc. R. Soc. A 463 (2007), 1955-1982. Its formulas for the
matrices of M q'' + v C1 q' + (g K0 + v² K2) q = 0 are repeated here, with x forwards and z down.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from examples import mechanisms
from scipy.optimize import root
from scipy.spatial.transform import Rotation

import genalpha as ga
from genalpha.multibody.closing.geometry import Geometry

W, C, TILT, G, RR, RF = 1.02, 0.08, np.pi / 10, 9.81, 0.3, 0.35


def published_formulas():
    """M, C1, K0, K2 from the 25 parameters (appendix A)."""
    mR, IRxx, IRyy = 2.0, 0.0603, 0.12
    xB, zB, mB, IBxx, IBxz, IBzz = 0.3, -0.9, 85.0, 9.2, 2.4, 2.8
    xH, zH, mH, IHxx, IHxz, IHzz = 0.9, -0.7, 4.0, 0.05892, -0.00756, 0.00708
    mF, IFxx, IFyy = 3.0, 0.1405, 0.28
    s, c = np.sin(TILT), np.cos(TILT)
    m = mR + mB + mH + mF
    x = (xB * mB + xH * mH + W * mF) / m
    z = (-RR * mR + zB * mB + zH * mH - RF * mF) / m
    xx = IRxx + IBxx + IHxx + IFxx + mR * RR**2 + mB * zB**2 + mH * zH**2 + mF * RF**2
    xz = IBxz + IHxz - mB * xB * zB - mH * xH * zH + mF * W * RF
    zz = IRxx + IBzz + IHzz + IFxx + mB * xB**2 + mH * xH**2 + mF * W**2
    mA = mH + mF
    xA, zA = (xH * mH + W * mF) / mA, (zH * mH - RF * mF) / mA
    Axx = IHxx + IFxx + mH * (zH - zA) ** 2 + mF * (RF + zA) ** 2
    Axz = IHxz - mH * (xH - xA) * (zH - zA) + mF * (W - xA) * (RF + zA)
    Azz = IHzz + IFxx + mH * (xH - xA) ** 2 + mF * (W - xA) ** 2
    u = (xA - W - C) * c - zA * s
    All = mA * u**2 + Axx * s**2 + 2 * Axz * s * c + Azz * c**2
    Alx, Alz = -mA * u * zA + Axx * s + Axz * c, mA * u * xA + Axz * s + Azz * c
    mu = C / W * c
    SF = IFyy / RF
    ST, SA = IRyy / RR + SF, mA * u + mu * m * x
    M = [[xx, Alx + mu * xz], [Alx + mu * xz, All + 2 * mu * Alz + mu**2 * zz]]
    K0 = [[m * z, -SA], [-SA, -SA * s]]
    K2 = [[0, (ST - m * z) / W * c], [0, (SA + SF * s) / W * c]]
    C1 = [
        [0, mu * ST + SF * c + xz / W * c - mu * m * z],
        [-(mu * ST + SF * c), Alz / W * c + mu * (SA + zz / W * c)],
    ]
    return tuple(np.array(matrix) for matrix in (M, C1, K0, K2))


def first_order(M, C1, K0, K2, v):
    """The matrix (4, 4) of the equations of lean, steer and their rates."""
    right = -np.linalg.solve(M, np.hstack([G * K0 + v**2 * K2, v * C1]))
    return np.vstack([np.eye(4)[2:], right])


class Bicycle:
    """The model, placed by lean, steer and their rates, and by the rate of the rear wheel.

    Lean is positive to the right, as in the paper, so it turns about x. The frame has the axes
    R = Rx(lean) Ry(pitch): the pitch follows from the contact of both wheels.
    """

    def __init__(self):
        self.model = mechanisms.bicycle()
        self.model.assemble()
        self.slices = self.model.slices()
        self.geometry = Geometry(self.model)
        self.start = {body.name: body.x.copy() for body in self.model.bodies}
        self.axis = np.array([np.sin(TILT), 0, -np.cos(TILT)])

    def poses(self, lean, steer):
        """Positions and axes of all bodies."""
        hub, head = self.start["rear wheel"], np.array([W + C, 0, 0]) - self.axis

        def at(pitch, height):
            R = Rotation.from_euler("XY", [lean, pitch]).as_matrix()
            S = R @ Rotation.from_rotvec(steer * self.axis).as_matrix()
            origin = np.array([0, 0, height])
            put = lambda x: origin + R @ (x - hub)
            steered = lambda x: put(head) + S @ (x - head)
            return {
                "rear wheel": (origin, R),
                "frame": (put(self.start["frame"]), R),
                "fork": (steered(self.start["fork"]), S),
                "front wheel": (steered(self.start["front wheel"]), S),
            }

        def gaps(unknown):
            found = at(*unknown)
            wheels = (found["rear wheel"], RR), (found["front wheel"], RF)
            return [x[2] - r * np.sqrt(1 - R[2, 1] ** 2) for (x, R), r in wheels]

        return at(*root(gaps, [0.0, RR], tol=1e-14).x)

    def placed(self, state, v):
        """q and v of the model for lean, steer and their rates, and what gives the rates from v."""
        poses = self.poses(*state[:2])
        q = np.concatenate(
            [[*x, *np.roll(Rotation.from_matrix(R).as_quat(), 1)] for x, R in (poses[b] for b in self.slices)]
        )
        n = len(self.model.v0)
        B = self.geometry.at(q, np.zeros(n)).B.toarray()
        # Rates in terms of the spins of bodies, in their own axes; frame and rear wheel have the same axes.
        R, S = poses["frame"][1], poses["fork"][1]
        frame, fork, wheel = (self.slices[name][1].stop - 3 for name in ("frame", "fork", "rear wheel"))
        rows = np.zeros((3, n))
        # sin(lean) = R[2, 1], whose rate is that of the y axis: (ω × y)_z
        cos = np.sqrt(1 - R[2, 1] ** 2)
        rows[0, frame : frame + 3] = np.array([R[2, 2], 0, -R[2, 0]]) / cos
        rows[1, fork : fork + 3], rows[1, frame : frame + 3] = S.T @ R @ self.axis, -self.axis
        rows[2, wheel : wheel + 3], rows[2, frame : frame + 3] = (0, 1, 0), (0, -1, 0)
        speeds = np.linalg.solve(np.vstack([B, rows]), [*np.zeros(len(B)), *state[2:], v / RR])
        return q, speeds, rows, R

    def turned(self, q):
        """The axes of the frame and of the fork, as functions of q."""
        return [ga.rotation.matrix(q[self.slices[name][0]][3:]) for name in ("frame", "fork")]

    def lean_and_steer(self, t, q):
        R, S = self.turned(q)
        y, side = jnp.array([0.0, 1.0, 0.0]), jnp.cross(jnp.array(self.axis), jnp.array([0.0, 1.0, 0.0]))
        return jnp.stack([jnp.arcsin(R[2, 1]), jnp.arctan2(side @ R.T @ S @ y, y @ R.T @ S @ y)])

    def rates(self, t, q, v):
        """Those of lean and steer, and the spin of the rear wheel."""
        R, S = self.turned(q)
        frame, fork, wheel = (v[self.slices[name][1]][3:] for name in ("frame", "fork", "rear wheel"))
        lean = (R[2, 2] * frame[0] - R[2, 0] * frame[2]) / jnp.sqrt(1 - R[2, 1] ** 2)
        return jnp.stack([lean, jnp.array(self.axis) @ (R.T @ S @ fork - frame), wheel[1] - frame[1]])

    def linear(self, v, **options):
        return ga.linearize(self.model.system, (0.0, *self.placed(np.zeros(4), v)[:2]), **options)

    def matrix(self, v):
        """The matrix (4, 4) of the linear equations of lean, steer and their rates."""
        found = self.linear(v, coordinates=self.lean_and_steer, speeds=self.rates)
        assert found.steady
        np.testing.assert_allclose(found.A[:, 4], 0, atol=1e-10)  # the speed does not matter to first order
        np.testing.assert_allclose(found.A[4], 0, atol=1e-10)
        return found.A[:4, :4]


@pytest.fixture(scope="module")
def bike():
    return Bicycle()


def test_the_matrices_of_the_paper():
    """Its formulas give its printed matrices (section 5)."""
    M, C1, K0, K2 = published_formulas()
    printed = {
        "M": (M, [[80.81722, 2.31941332208709], [2.31941332208709, 0.29784188199686]]),
        "C1": (C1, [[0, 33.86641391492494], [-0.85035641456978, 1.68540397397560]]),
        "K0": (K0, [[-80.95, -2.59951685249872], [-2.59951685249872, -0.80329488458618]]),
        "K2": (K2, [[0, 76.59734589573222], [0, 2.65431523794604]]),
    }
    for name, (found, wanted) in printed.items():
        np.testing.assert_allclose(found, wanted, rtol=1e-13, err_msg=name)


@pytest.mark.parametrize("v", [5.0, *(pytest.param(v, marks=pytest.mark.slow) for v in (0.0, 2.0, 10.0))])
def test_equations_of_lean_and_steer_are_those_of_the_paper(bike, v):
    np.testing.assert_allclose(bike.matrix(v), first_order(*published_formulas(), v), atol=1e-10)


def test_weave_capsize_and_castering(bike):
    """Without a choice of coordinates: four eigenvalues, and six zeros of place, heading, turns and speed.

    The zeros are defective, so rounding is seen in eigenvalues near them.
    """
    for v in np.arange(11.0):
        found = bike.linear(v)
        assert found.A.shape == (10, 10)  # seven positions, three velocities
        assert found.steady
        values = np.linalg.eigvals(found.A)
        values = np.sort_complex(values[np.argsort(-np.abs(values))[:4]])
        wanted = np.sort_complex(np.linalg.eigvals(first_order(*published_formulas(), v)))
        np.testing.assert_allclose(values, wanted, atol=3e-7, err_msg=f"v = {v}")


PRINTED = {  # table 2 of the paper
    0.0: (-5.53094371765393, -3.13164324790656, 3.13164324790656, 5.53094371765393),
    5.0: (
        -14.07838969279822,
        -0.77534188219585 - 4.46486771378823j,
        -0.77534188219585 + 4.46486771378823j,
        -0.32286642900409,
    ),
}


@pytest.mark.parametrize("v", PRINTED)
def test_printed_eigenvalues(bike, v):
    values = np.linalg.eigvals(bike.linear(v).A)
    found = np.sort_complex(values[np.argsort(-np.abs(values))[:4]])
    np.testing.assert_allclose(found, PRINTED[v], atol=1e-8)


@pytest.mark.slow
def test_the_bicycle_rides_as_the_linear_equations_say(bike):
    """From a small rate of lean at 5 m/s, where it is stable."""
    start = np.array([0.0, 0.0, 1e-3, 0.0])
    bike.model.place(*bike.placed(start, 5.0)[:2])
    sol = bike.model.solve((0.0, 2.0), rtol=1e-8)
    lean = np.arcsin(bike.model.motion(sol).rotation("frame")[:, 2, 1])
    values, vectors = np.linalg.eig(first_order(*published_formulas(), 5.0))
    linear = (vectors * np.linalg.solve(vectors, start)) @ np.exp(np.outer(values, sol.t))
    assert np.abs(lean).max() > 1e-4
    np.testing.assert_allclose(lean, linear[0].real, atol=1e-7)

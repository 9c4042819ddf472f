"""Andrews' squeezing mechanism: seven bodies in the plane with closed loops, a spring and a torque."""

from __future__ import annotations

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.system import System
from genalpha.problems._problem import Problem

# Hairer & Wanner, Solving Ordinary Differential Equations II, section VII.7; IVP Test Set (Bari), "andrews".
_DATA = SimpleNamespace(
    m=(0.04325, 0.00365, 0.02373, 0.00706, 0.07050, 0.00706, 0.05498),
    I=(2.194e-6, 4.410e-7, 5.255e-6, 5.667e-7, 1.169e-5, 5.667e-7, 1.912e-5),
    A=(-0.06934, -0.00227),
    B=(-0.03635, 0.03273),
    C=(0.014, 0.072),
    l0=0.07785,
    d=0.028,
    da=0.0115,
    e=0.02,
    ea=0.01421,
    rr=0.007,
    ra=0.00092,
    ss=0.035,
    sa=0.01874,
    sb=0.01043,
    sc=0.018,
    sd=0.02,
    ta=0.02308,
    tb=0.00916,
    u=0.04,
    ua=0.01228,
    ub=0.00449,
    zf=0.02,
    zt=0.04,
    fa=0.01421,
)
_K, _H = _DATA.e - _DATA.ea, _DATA.zf - _DATA.fa  # from the joints to the centres of bodies 4 and 6


def andrews(torque: float = 0.033, stiffness: float = 4530.0) -> Problem:
    """Andrews' squeezing mechanism, driven from rest. It has seven angles and six loop constraints.

    So it has one degree of freedom. It turns two and a half times in 0.03 s. The spring acts between a fixed
    point and the third body. There is neither gravity nor friction. ``energy`` is T + V minus the work of the
    torque.
    """
    return Problem(
        name="andrews",
        title="Andrews' squeezing mechanism",
        system=System(_mass, _force, _holonomic),
        t_span=(0.0, 0.03),
        q0=np.array(_START),
        v0=np.zeros(7),
        coordinates=("beta", "Theta", "gamma", "Phi", "delta", "Omega", "epsilon"),
        source="Hairer & Wanner II, section VII.7; IVP Test Set",
        h=2e-5,
        args=(torque, stiffness),
        energy=_energy,
        conserved_from=0.0,
        published=PUBLISHED if (torque, stiffness) == (0.033, 4530.0) else {},
    )


# --- equations of motion --------------------------------------------------------------------------------


def _mass(t: Array, q: Array, *args: Array) -> Array:
    p, k, h = _DATA, _K, _H
    (m1, m2, m3, m4, m5, m6, m7), (I1, I2, I3, I4, I5, I6, I7) = p.m, p.I
    c_theta, s_phi, s_omega = jnp.cos(q[1]), jnp.sin(q[3]), jnp.sin(q[5])
    M11 = m1 * p.ra**2 + m2 * (p.rr**2 - 2 * p.da * p.rr * c_theta + p.da**2) + I1 + I2
    M12 = m2 * (p.da**2 - p.da * p.rr * c_theta) + I2
    M22 = m2 * p.da**2 + I2
    M33 = m3 * (p.sa**2 + p.sb**2) + I3
    M44 = m4 * k**2 + I4
    M45 = m4 * (k**2 + p.zt * k * s_phi) + I4
    M55 = m4 * (p.zt**2 + 2 * p.zt * k * s_phi + k**2) + m5 * (p.ta**2 + p.tb**2) + I4 + I5
    M66 = m6 * h**2 + I6
    M67 = m6 * (h**2 - p.u * h * s_omega) + I6
    M77 = m6 * (h**2 - 2 * p.u * h * s_omega + p.u**2) + m7 * (p.ua**2 + p.ub**2) + I6 + I7
    M = jnp.zeros((7, 7)).at[[0, 0, 1, 1], [0, 1, 0, 1]].set(jnp.stack([M11, M12, M12, jnp.array(M22)]))
    M = M.at[2, 2].set(M33).at[[3, 3, 4, 4], [3, 4, 3, 4]].set(jnp.stack([jnp.array(M44), M45, M45, M55]))
    return M.at[[5, 5, 6, 6], [5, 6, 5, 6]].set(jnp.stack([jnp.array(M66), M67, M67, M77]))


def _spring(q: Array) -> Array:
    """The vector (2,) from the fixed end of the spring to the other end."""
    p = _DATA
    c, s = jnp.cos(q[2]), jnp.sin(q[2])
    return jnp.stack([p.sd * c + p.sc * s + p.B[0] - p.C[0], p.sd * s - p.sc * c + p.B[1] - p.C[1]])


def _force(t: Array, q: Array, v: Array, torque: Array, stiffness: Array) -> Array:
    p, k, h = _DATA, _K, _H
    _, m2, _, m4, _, m6, _ = p.m
    theta, gamma, phi, omega = q[1], q[2], q[3], q[5]
    beta_, theta_, _, phi_, delta_, omega_, epsilon_ = v
    arm = _spring(q)
    length = jnp.sqrt(arm @ arm)
    fx, fy = -stiffness * (length - p.l0) / length * arm
    c, s = jnp.cos(gamma), jnp.sin(gamma)
    coupling = (
        m2 * p.da * p.rr * jnp.sin(theta),
        m4 * p.zt * k * jnp.cos(phi),
        m6 * p.u * h * jnp.cos(omega),
    )
    return jnp.stack(
        [
            torque - coupling[0] * theta_ * (theta_ + 2 * beta_),
            coupling[0] * beta_**2,
            fx * (p.sc * c - p.sd * s) + fy * (p.sd * c + p.sc * s),
            coupling[1] * delta_**2,
            -coupling[1] * phi_ * (phi_ + 2 * delta_),
            -coupling[2] * epsilon_**2,
            coupling[2] * omega_ * (omega_ + 2 * epsilon_),
        ]
    )


def _holonomic(t: Array, q: Array, *args: Array) -> Array:
    p = _DATA
    beta, theta, gamma, phi, delta, omega, epsilon = q
    along = lambda angle: jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    across = lambda angle: jnp.stack([-jnp.sin(angle), jnp.cos(angle)])
    tip = p.rr * along(beta) - p.d * along(beta + theta)
    third = tip + p.ss * across(gamma) - jnp.array(p.B)
    fifth = tip + p.e * across(phi + delta) - p.zt * along(delta) - jnp.array(p.A)
    seventh = tip - p.zf * along(omega + epsilon) + p.u * across(epsilon) - jnp.array(p.A)
    return jnp.concatenate([third, fifth, seventh])


def _energy(t: Array, q: Array, v: Array, torque: Array, stiffness: Array) -> Array:
    stretch = jnp.linalg.norm(_spring(q)) - _DATA.l0
    return 0.5 * v @ _mass(t, q) @ v + 0.5 * stiffness * stretch**2 - torque * q[0]


# --- values ---------------------------------------------------------------------------------------------

_START = (
    -0.06171389001427645,
    0.0,
    0.45527981916307037,
    0.22266839016588588,
    0.48736497954384256,
    -0.22266839016588588,
    1.2305474445498212,
)
# Computed by extrapolation in quadruple precision, independently of this package. Two tolerances agree to 18
# digits. The values printed in the IVP Test Set agree with these to 9 (q), 7 (v) and 6 (a, λ) digits. Their
# invariant T + V − torque β is off by 2e-10.
PUBLISHED: dict[float, dict[str, tuple[float, ...]]] = {
    0.0: {
        "a": (14222.443919954114, -10666.832939965585, 0.0, 0.0, 0.0, 0.0, 0.0),
        "lam": (98.56687039624109, -6.122688344255662, 0.0, 0.0, 0.0, 0.0),
    },
    0.01: {
        "q": (
            2.1601131315315265,
            -1.8833642311070444,
            0.1585167580012267,
            -0.3286410751746703,
            0.5251547747977294,
            0.3286410751746703,
            1.068427204632401,
        ),
        "v": (
            711.923152831104,
            -786.7700808599398,
            -136.4381913781197,
            -240.29302926786454,
            4.791548225371054,
            240.29302926786454,
            -41.14056696161049,
        ),
        "a": (
            209058.27853254118,
            -369745.60017161345,
            -6373.773935841842,
            -5657.410330994548,
            -11869.750534558465,
            5657.410330994548,
            34721.437501431545,
        ),
        "lam": (
            57.02529043750258,
            2.9679042462494833,
            3.218860385008939,
            -18.179269867940356,
            5.159502718032351,
            34.24011729160661,
        ),
    },
    0.02: {
        "q": (
            8.184905889661676,
            -7.890505363730449,
            0.20953691338469757,
            -0.23832559659585126,
            0.5225369171559964,
            0.23832559659585126,
            1.0862751085998732,
        ),
        "v": (
            726.5583426091277,
            -748.6324206323291,
            -145.73923758440472,
            -259.50079947677506,
            9.79050185516307,
            259.50079947677506,
            -57.75747174274601,
        ),
        "a": (
            177724.3327445665,
            -341202.04527245124,
            -33195.92383628786,
            -49292.534678413256,
            -10758.941706723468,
            49292.534678413256,
            24149.460195221083,
        ),
        "lam": (
            48.493256981749425,
            9.30037734573436,
            2.3032331312870657,
            -15.773889807968303,
            2.94225325451755,
            22.988032419227928,
        ),
    },
    0.03: {
        "q": (
            15.810771195153707,
            -15.756371058411839,
            0.0408222401196458,
            -0.5347301163420796,
            0.524409965879954,
            0.5347301163420796,
            1.048080741041938,
        ),
        "v": (
            1139.9203022591062,
            -1424.3792951775401,
            11.032911910618594,
            19.29337410503204,
            0.5735699148295025,
            -19.29337410503204,
            0.3231791492491309,
        ),
        "a": (
            -24631.763122874636,
            51850.31963646423,
            324102.6007075786,
            566749.4220009954,
            16743.635418345446,
            -566749.4220009954,
            9826.507801544163,
        ),
        "lam": (
            199.17534810453864,
            -29.755309974971762,
            23.06654361162215,
            31.452725275771137,
            22.64249478639438,
            11.617392352611256,
        ),
    },
}

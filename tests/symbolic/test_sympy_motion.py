"""Motions of systems from SymPy: analytic ones, energies, orders, eigenvalues."""

import numpy as np
import pytest
from examples import sympy_models as models

import genalpha as ga


def turning(beta, omega, r=0.5, g=9.81):
    """Speeds u1, u2, u3 of a thin disc that leans by β and turns steadily at the rate Ω.

    About the centre, Ω × H equals the moment of the force at the contact. With the moments of inertia m r²/2
    about the axle and m r²/4 about a diameter this gives u2.
    """
    u2 = (r * omega**2 * np.cos(beta) / 4 - g) * np.sin(beta) / (1.5 * r * omega * np.cos(beta))
    return np.array([0.0, u2, omega * np.cos(beta)])


def test_a_disc_rolls_on_a_circle():
    """The contact moves on a circle of radius r σ / Ω, where σ is the spin, and the lean stays."""
    beta, omega, r = 0.3, -1.5, 0.5
    method, numbers = models.rolling_disc()
    system = ga.from_sympy(method, numbers)
    u = turning(beta, omega)
    spin = u[1] - omega * np.sin(beta)
    q0, v0 = system.start([0.0, beta, 0.0, 0.0, 0.0], [*u, r * spin, 0.0])
    errors = []
    for h in (4e-3, 2e-3):
        sol = ga.solve(system, (0.0, 2.0), q0, v0, h=h)
        turn = omega * sol.t
        radius = r * spin / omega
        wanted = [turn, beta + 0 * turn, spin * sol.t, radius * np.sin(turn), radius * (1 - np.cos(turn))]
        errors.append(np.abs(sol.q - np.stack(wanted, axis=1)).max())
        found = np.stack([system.values(sol)[name] for name in ("u1", "u2", "u3")], axis=1)
        np.testing.assert_allclose(found, np.broadcast_to(u, found.shape), atol=1e-3)
    assert errors[1] < 1e-4
    assert 3.5 < errors[0] / errors[1] < 4.5


def energy(method, numbers):
    """Kinetic and potential energy of SymPy's bodies; loads are constant forces."""
    from sympy.physics.mechanics import kinetic_energy

    frame, bodies = method._inertial, method.bodies
    origin = next(iter(bodies[0].masscenter._pos_dict))
    work = sum(load.dot(place.pos_from(origin)) for place, load in method.forcelist)
    return kinetic_energy(frame, *bodies) - work


@pytest.mark.slow
@pytest.mark.parametrize("name", ["four_bar", "bicycle"])
def test_energy_and_constraints_are_kept(name):
    method, numbers = getattr(models, name)()
    system = ga.from_sympy(method, numbers)
    if name == "four_bar":
        q0, v0 = system.start([0.5, 1.0, -1.5])
    else:
        q0, v0 = system.start(np.zeros(4), {"u2": 0.5, "u5": -4.6 / 0.3, "u6": -4.6 / 0.35})
    drifts = []
    for h in (2e-3, 1e-3):
        sol = ga.solve(system, (0.0, 1.0), q0, v0, h=h, initial="project")
        total = system.values(sol, energy(method, numbers))
        drifts.append(np.ptp(total))
        assert max(x.max(initial=0) for x in sol.residuals) < 1e-10
    assert drifts[1] < 1e-3
    assert 3 < drifts[0] / drifts[1] < 5


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in ga.methods.names() if name != "generalized-alpha"])
def test_every_method_is_of_second_order(method):
    """A closed chain of four links in relative angles; generalized-α has no constraints."""
    stated, numbers = models.chain(4, relative=True)
    system = ga.from_sympy(stated, numbers)
    q0, v0 = system.start(models.chain_start(4, relative=True))
    run = lambda h: ga.solve(system, (0.0, 0.5), q0, v0, h=h, method=method).q[-1]
    exact = run(1e-4 / 4)
    errors = [np.abs(run(h) - exact).max() for h in (2e-3, 1e-3, 5e-4)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(orders, 2.0, atol=0.2)


@pytest.mark.slow
def test_a_long_chain_in_both_kinds_of_angles():
    """The middle of a closed chain of ten links moves alike, whatever its coordinates."""
    ends = []
    for kind in (False, True):
        stated, numbers = models.chain(10, relative=kind)
        system = ga.from_sympy(stated, numbers)
        q0, v0 = system.start(models.chain_start(10, relative=kind))
        sol = ga.solve(system, (0.0, 0.3), q0, v0, h=5e-4)
        assert sol.backend == "native"
        assert sol.residuals.position.max() < 1e-12
        ends.append(np.cumsum(sol.q[-1]) if kind else sol.q[-1])
    np.testing.assert_allclose(ends[0], ends[1], atol=2e-4)


# Meijaard, Papadopoulos, Ruina & Schwab (2007), table 2, v = 5 m/s: castering, weave, capsize.
PRINTED = [
    -14.07838969279822,
    -0.77534188219585 - 4.46486771378823j,
    -0.77534188219585 + 4.46486771378823j,
    -0.32286642900409,
]


@pytest.mark.slow
def test_eigenvalues_of_the_bicycle():
    """Differences of the reduced equations at 5 m/s, with roll, steer and their rates as the state."""
    method, numbers = models.bicycle()
    system = ga.from_sympy(method, numbers)
    names, speed = list(system.coordinates), 5.0
    roll, steer = (names.index(name) for name in ("roll", "steer"))
    wheels = {"u5": -speed / 0.3, "u6": -speed / 0.35}

    def rate(x):
        angles = {"yaw": 0.0, "roll": x[0], "steer": x[1], "pitch": 0.0}
        q, _ = system.start(angles)
        for _ in range(4):  # pitch so that the front wheel touches the plane
            G, g = np.asarray(system.G(0.0, q))[0], float(system.g(0.0, q)[0])
            q[names.index("pitch")] -= g / G[names.index("pitch")]
        _, v = system.start(q[:4], {"u2": x[2], "u4": x[3], **wheels})
        rows = np.concatenate([system.G(0.0, q), system.K(0.0, q, v)])
        free = [names.index(name) for name in ("yaw", "pitch", "∫u6")]
        values = np.concatenate([system.g_dot(0.0, q, v), system.k(0.0, q, v)])
        v[free] -= np.linalg.solve(rows[:, free], values)
        a = ga.consistent(system, 0.0, q, v).a
        return np.array([x[2], x[3], a[roll], a[steer]])

    step = 1e-5
    columns = [(rate(step * e) - rate(-step * e)) / (2 * step) for e in np.eye(4)]
    found = np.sort_complex(np.linalg.eigvals(np.stack(columns, axis=1)))
    np.testing.assert_allclose(found, np.sort_complex(PRINTED), rtol=1e-7)

"""Bad input: the exception or status says what is wrong, where it is, and what to do."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from conftest import problem
from genalpha.numerics import codes

CIRCLE = ga.System(
    mass=np.eye(2),
    force=lambda t, q, v: jnp.array([0.0, -9.81]),
    holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
)
GOOD = {"t_span": (0.0, 1.0), "q0": [1.0, 0.0], "v0": [0.0, 0.0], "h": 0.1}


def solve(system=CIRCLE, **changes):
    options = {**GOOD, **changes}
    return ga.solve(system, options.pop("t_span"), options.pop("q0"), options.pop("v0"), **options)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"t_span": (1.0, 0.0)}, ValueError, "end must be later than the start"),
        ({"t_span": (1.0, 1.0)}, ValueError, "end must be later than the start"),
        ({"t_span": (0.0, np.inf)}, ValueError, "finite"),
        ({"t_span": (0.0, 1e-200)}, ValueError, "Rescale time"),
        ({"t_span": (0.0, 1e200)}, ValueError, "Rescale time"),
        ({"t_span": 1.0}, TypeError, "pair"),
        ({"t_span": (0.0, 1.0, 2.0)}, TypeError, "pair"),
        ({"rtol": 1e-3}, ValueError, "pass either h or rtol, not both"),
        ({"max_steps": 10, "max_step": 0.1}, ValueError, "pass either h or max_step, max_steps, not both"),
        ({"h": None, "rtol": -1.0}, ValueError, "rtol must not be negative"),
        ({"h": None, "rtol": "small"}, TypeError, "rtol must be a number"),
        ({"h": None, "atol": [1e-6] * 3}, ValueError, r"atol must be a number, an array of shape \(2,\)"),
        ({"h": None, "rtol": 0.0, "atol": 0.0}, ValueError, "rounding hides smaller errors"),
        ({"h": None, "rtol": 1e-14, "atol": 0.0}, ValueError, "rounding hides smaller errors"),
        ({"h": None, "max_step": -1.0}, ValueError, "max_step must be a positive number"),
        ({"h": None, "min_step": "1"}, TypeError, "min_step must be a number"),
        ({"h": None, "min_step": 0.5, "max_step": 0.1}, ValueError, "larger than max_step"),
        ({"h": None, "min_step": 9.0}, ValueError, "min_step = 9 is as long as the time span"),
        ({"h": None, "first_step": 0.0}, ValueError, "first_step must be a positive number"),
        ({"h": None, "max_steps": 0}, ValueError, "max_steps must be a whole number"),
        ({"h": None, "max_steps": 1.5}, ValueError, "max_steps must be a whole number"),
        ({"h": None, "method": ga.SOI2(adjust=False)}, ValueError, "Leave out adjust=False"),
        ({"h": None, "project_velocity_at": 0.5}, ValueError, "project_velocity_at needs h"),
        ({"h": "0.1"}, TypeError, "step size"),
        ({"t_span": "01"}, TypeError, "pair"),
        ({"q0": [1.0 + 0j, 0.0]}, TypeError, "q0 must be real"),
        ({"rho_inf": "0.8"}, TypeError, "rho_inf must be a number"),
        ({"args": (object(),)}, TypeError, "real numbers and arrays"),
        ({"multipliers": 1.0}, TypeError, r"pair \(lam, psi\)"),
        ({"multipliers": ([1.0, 2.0], [])}, ValueError, r"shapes \(1,\) and \(0,\), got \(2,\)"),
        ({"h": 0.0}, ValueError, "positive"),
        ({"h": -0.1}, ValueError, "positive"),
        ({"h": np.nan}, ValueError, "positive"),
        ({"h": 2.0}, ValueError, "larger than the time span"),
        ({"h": [0.5, 0.6]}, ValueError, r"sum to 1.1, but the time span is 1"),
        ({"h": [0.5, -0.5, 1.0]}, ValueError, r"h\[1\] = -0.5"),
        ({"h": np.ones((2, 2))}, ValueError, "one-dimensional"),
        ({"h": []}, ValueError, "one-dimensional"),
        ({"q0": [1.0, np.nan]}, ValueError, r"q0 .* NaN or infinite .*\[1\]"),
        ({"v0": [np.inf, 0.0]}, ValueError, r"v0 .* NaN or infinite .*\[0\]"),
        ({"q0": [[1.0, 0.0]]}, ValueError, r"q0 must have shape \(n,\)"),
        ({"q0": [1.0, 0.0, 0.0]}, ValueError, "q0 has 3 entries and v0 has 2"),
        ({"q0": "here"}, TypeError, "q0 must be an array of numbers"),
        ({"q0": []}, ValueError, "n > 0"),
        ({"method": "soi3"}, ValueError, "unknown method 'soi3'.*hht-soi2.*Did you mean 'soi2'"),
        ({"method": 3}, TypeError, "method must be a name"),
        ({"method": ga.SOI2}, TypeError, "method object"),
        ({"method": ga.SOI2(), "rho_inf": 0.5}, ValueError, "either rho_inf or a method object"),
        ({"rho_inf": 1.2}, ValueError, r"rho_inf = 1.2 must lie in \[0, 1\]"),
        ({"rho_inf": -0.1}, ValueError, "rho_inf"),
        ({"rho_inf": np.nan}, ValueError, "rho_inf"),
        ({"method": "hht-soi2", "rho_inf": 0.3}, ValueError, r"must lie in \[1/2, 1\] for the HHT family"),
        ({"method": "generalized-alpha"}, ValueError, 'unconstrained systems: use method="soi2"'),
        ({"method": ga.SOI2(ga.stormer())}, ValueError, "beta = 0, which JN08 theorem 1 excludes"),
        ({"newton": "full"}, TypeError, "ga.Newton"),
        ({"initial": "guess"}, ValueError, "check, project, assume"),
        ({"args": 3.0}, TypeError, r"args=\(x,\)"),
        ({"args": ("fast",)}, TypeError, "real numbers and arrays"),
    ],
)
def test_arguments_of_solve(changes, error, message):
    with pytest.raises(error, match=message):
        solve(**changes)


def test_a_system_is_needed():
    with pytest.raises(TypeError, match=r"must be a ga\.System"):
        solve(system="pendulum")


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"mass": np.ones((2, 3))}, ValueError, r"square matrix.*\(2, 3\)"),
        ({"mass": np.array([[1.0, np.nan], [0.0, 1.0]])}, ValueError, "mass holds NaN"),
        ({"mass": "heavy"}, TypeError, "mass must be"),
        ({"force": np.zeros(2)}, TypeError, r"force must be a function \(t, q, v, \*args\)"),
        ({"force": None}, TypeError, "force must be a function"),
        ({"holonomic": 3.0}, TypeError, "holonomic must be a function"),
        ({"nonholonomic": "rolls"}, TypeError, "nonholonomic must be a function"),
        ({"reaction": 1}, TypeError, "reaction must be a function"),
    ],
)
def test_parts_of_a_system(parts, error, message):
    good = {"mass": np.eye(2), "force": lambda t, q, v: jnp.zeros(2)}
    with pytest.raises(error, match=message):
        ga.System(**{**good, **parts})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"force": lambda t, q, v: jnp.zeros(3)}, r"force.* must return shape \(2,\), got \(3,\)"),
        ({"mass": np.eye(3)}, r"mass.* must return shape \(2, 2\), got \(3, 3\)"),
        ({"mass": lambda t, q: jnp.ones(2)}, r"mass.* must return shape \(2, 2\), got \(2,\)"),
        ({"holonomic": lambda t, q: q @ q - 1.0}, r"one-dimensional array, got shape \(\); a single"),
        ({"holonomic": lambda t, q: jnp.zeros(3)}, "3 constraints for 2 coordinates"),
        ({"nonholonomic": lambda t, q, v: jnp.zeros((1, 1))}, "one-dimensional"),
        ({"reaction": lambda t, q, v, lam, psi: jnp.zeros(1)}, r"reaction.* must return shape \(2,\)"),
    ],
)
def test_shapes_of_what_functions_return(parts, message):
    good = {"mass": np.eye(2), "force": lambda t, q, v: jnp.zeros(2)}
    with pytest.raises(ValueError, match=message):
        solve(ga.System(**{**good, **parts}))


def test_an_error_in_a_users_function_says_where():
    system = ga.System(np.eye(2), lambda t, q, v: jnp.zeros(2) * missing_name)  # noqa: F821
    with pytest.raises(NameError) as caught:
        solve(system)
    assert any("force(t, q, v, *args)" in note for note in caught.value.__notes__)
    too_few = ga.System(np.eye(2), lambda q: q)
    with pytest.raises(TypeError) as caught:
        solve(too_few)
    assert any("force(t, q, v, *args)" in note for note in caught.value.__notes__)


# --- the start ---------------------------------------------------------------------------------------


def test_inconsistent_positions_and_velocities_name_rows_and_amounts():
    with pytest.raises(ga.InconsistentInitialValues) as caught:
        solve(q0=[1.1, 0.0], v0=[0.5, 0.0])
    text = str(caught.value)
    assert "holonomic[0] = 0.21" in text
    assert "d/dt holonomic[0] = 1.1" in text
    assert "initial='project'" in text
    p = problem("rolling-disk")
    with pytest.raises(ga.InconsistentInitialValues, match=r"nonholonomic\[1\] = 0.1"):
        ga.solve(p.system, (0, 1), p.q0, p.v0 + 0.1 * np.eye(5)[1], h=0.1, args=p.args)
    assert solve(q0=[1.1, 0.0], v0=[0.5, 0.0], initial="project").success


def test_the_tolerance_of_the_check():
    assert solve(q0=[1.0 + 0.9e-8, 0.0]).success
    with pytest.raises(ga.InconsistentInitialValues):
        solve(q0=[1.0 + 1.1e-8, 0.0])


def test_projection_that_cannot_succeed():
    impossible = ga.System(np.eye(2), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([q @ q + 1.0]))
    with pytest.raises(ValueError, match="found no q and v"):
        solve(impossible, q0=[1.0, 0.3], initial="project")


def test_a_constraint_given_twice_is_named():
    twice = ga.System(
        np.eye(3),
        lambda t, q, v: jnp.zeros(3),
        lambda t, q: jnp.array([q[0] + q[1], q[2], 3 * q[0] + 3 * q[1]]),
    )
    with pytest.raises(ga.RedundantConstraints, match=r"holonomic\[2\] is a combination of holonomic\[0\]\."):
        solve(twice, q0=[0.0] * 3, v0=[0.0] * 3)
    both = ga.System(
        np.eye(3),
        lambda t, q, v: jnp.zeros(3),
        lambda t, q: jnp.array([q[0] + q[1]]),
        lambda t, q, v: jnp.array([v[2], v[0] + v[1] - 2 * v[2]]),
    )
    message = r"nonholonomic\[1\] is a combination of holonomic\[0\], nonholonomic\[0\]"
    with pytest.raises(ga.RedundantConstraints, match=message):
        solve(both, q0=[0.0] * 3, v0=[0.0] * 3)


def test_a_constraint_on_nothing_is_named():
    idle = ga.System(np.eye(2), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([0.0 * q[0]]))
    with pytest.raises(ga.RedundantConstraints, match="gradient is zero"):
        solve(idle)


def test_a_kinematic_singularity_at_the_start():
    """The point (0, 0) of x² − y² = 0: no gradient."""
    cross = ga.System(
        np.eye(2), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([q[0] ** 2 - q[1] ** 2])
    )
    with pytest.raises(ga.RedundantConstraints, match="kinematic singularity"):
        solve(cross, q0=[0.0, 0.0])


def test_a_singular_matrix_12():
    massless = ga.System(np.diag([1.0, 0.0]), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([q[0]]))
    with pytest.raises(ga.SingularSystem, match=r"not determined at the start.*massless"):
        solve(massless, q0=[0.0, 0.0])
    useless = ga.System(
        np.eye(2),
        lambda t, q, v: jnp.zeros(2),
        lambda t, q: jnp.array([q[0]]),
        reaction=lambda t, q, v, lam, psi: jnp.array([0.0, lam[0]]),
    )
    with pytest.raises(ga.SingularSystem, match="reaction"):
        solve(useless, q0=[0.0, 0.0])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"force": lambda t, q, v: jnp.array([0.0, jnp.nan])}, r"force.*start, entries \[1\]"),
        ({"mass": lambda t, q: jnp.eye(2) / t}, "mass.*NaN or infinite at the start"),
        ({"holonomic": lambda t, q: jnp.array([jnp.log(-q[0])])}, r"holonomic.*start, entries \[0\]"),
        ({"holonomic": lambda t, q: jnp.array([jnp.sqrt(q[1])])}, "derivative of a constraint"),
    ],
)
def test_functions_that_are_not_finite_at_the_start(parts, message):
    good = {"mass": np.eye(2), "force": lambda t, q, v: jnp.zeros(2)}
    with pytest.raises(ValueError, match=message):
        solve(ga.System(**{**good, **parts}))


def test_nan_in_args_is_found_at_the_start():
    p = problem("pendulum")
    with pytest.raises(ValueError, match=r"force.* NaN or infinite at the start, entries \[2\]"):
        ga.solve(p.system, (0, 1), p.q0, p.v0, h=0.1, args=({**p.args[0], "k": np.nan},))


# --- half-way ------------------------------------------------------------------------------------------


def half_way(force=None, mass=None, holonomic=None):
    return ga.System(
        mass or np.eye(2), force or (lambda t, q, v: jnp.array([0.0, -9.81])), holonomic or CIRCLE.holonomic
    )


def test_a_force_that_becomes_nan_half_way():
    system = half_way(force=lambda t, q, v: jnp.where(t > 0.55, jnp.nan, jnp.array([0.0, -9.81])))
    with pytest.raises(
        ga.IntegrationError, match=r"stopped after t = 0.5 \(step 5\).*NaN or infinite"
    ) as caught:
        solve(system)
    sol = caught.value.solution
    assert (sol.status, sol.success) == (codes.NOT_FINITE, False)
    assert sol.t[-1] == pytest.approx(0.5)
    full = solve()
    for field in ("t", "q", "v", "a", "a_alpha", "t_alpha", "lam", "psi"):
        part = getattr(sol, field)
        assert len(part) == 6
        np.testing.assert_allclose(part, getattr(full, field)[:6], rtol=1e-12, atol=1e-12)
    assert len(sol.residuals.position) == len(sol.reactions.total) == 6
    assert sol.stats.steps == len(sol.newton.iterations) == 5
    quiet = solve(system, throw=False)
    assert not quiet.success
    assert quiet.message == sol.message == str(caught.value)


def test_a_failure_in_the_first_step_keeps_the_start():
    system = half_way(force=lambda t, q, v: jnp.where(t > 0.01, jnp.nan, jnp.array([0.0, -9.81])))
    sol = solve(system, throw=False)
    assert len(sol.t) == len(sol.q) == len(sol.t_alpha) == 1
    assert sol.stats.steps == 0
    assert "step 0" in sol.message


def test_a_failure_after_many_blocks():
    system = half_way(force=lambda t, q, v: jnp.where(t > 0.95, jnp.nan, jnp.array([0.0, -9.81])))
    sol = solve(system, h=5e-4, throw=False)
    assert sol.t[-1] == pytest.approx(0.95, abs=1e-3)
    assert np.isfinite(sol.q).all()


def test_constraints_that_become_dependent_half_way():
    """Two rods that stretch out: at t = 0.5 the constraint matrix loses rank."""
    system = ga.System(
        np.eye(2),
        lambda t, q, v: jnp.zeros(2),
        lambda t, q: jnp.array([q[0] ** 2 + q[1] ** 2 - 1.0, q[0] - 2 * t]),
    )
    sol = ga.solve(system, (0.0, 1.0), [0.0, 1.0], [2.0, 0.0], h=0.01, throw=False)
    assert not sol.success
    assert sol.status in (codes.NOT_CONVERGED, codes.SINGULAR)
    assert 0.4 < sol.t[-1] <= 0.5


def test_a_mass_matrix_that_becomes_singular_half_way():
    system = ga.System(
        lambda t, q: jnp.diag(jnp.array([1.0, jnp.maximum(0.5 - t, 0.0)])), lambda t, q, v: jnp.ones(2)
    )
    sol = ga.solve(system, (0.0, 1.0), [0.0, 0.0], [0.0, 0.0], h=0.05, throw=False)
    assert sol.status == codes.SINGULAR
    assert "singular" in sol.message


def test_newton_that_cannot_converge():
    system = ga.System(np.eye(1), lambda t, q, v: -1e4 * jnp.sign(q) * jnp.abs(q) ** 0.3)
    sol = ga.solve(
        system, (0, 1), [1.0], [0.0], h=0.1, newton=ga.Newton("full", max_iterations=3), throw=False
    )
    assert sol.status == codes.NOT_CONVERGED
    assert "did not converge" in sol.message
    assert "smaller h" in sol.message


def test_unknown_problem():
    with pytest.raises(ValueError, match=r"unknown problem 'pendulumm'.*Did you mean 'pendulum'"):
        ga.problems.get("pendulumm")
    with pytest.raises(TypeError, match="mass"):
        ga.problems.get("pendulum", mass=3.0)


def test_hht_soi2_takes_hht_coefficients_only():
    assert ga.HHTSOI2(ga.hht(-0.2)) == ga.HHTSOI2(-0.2)
    with pytest.raises(ValueError, match=r"hht-soi2 takes coefficients from ga\.hht"):
        ga.HHTSOI2(ga.chung_hulbert(0.2))
    with pytest.raises(ValueError, match="start"):
        ga.SOI2(start="cold")
    with pytest.raises(TypeError, match="coefficients must come from a family"):
        ga.SOI2(0.8)


def test_an_integration_error_can_be_pickled():
    system = half_way(force=lambda t, q, v: jnp.where(t > 0.55, jnp.nan, jnp.array([0.0, -9.81])))
    with pytest.raises(ga.IntegrationError) as caught:
        solve(system)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    np.testing.assert_array_equal(again.solution.q, caught.value.solution.q)


def test_the_first_order_warning_points_at_the_caller():
    with pytest.warns(UserWarning, match="first order") as caught:
        ga.newmark(0.4, 0.7)
    assert caught[0].filename == __file__


def test_nearly_dependent_constraints_are_named_if_the_start_has_no_solution():
    """Two constraints differ by 1e-8. The message must not blame the mass matrix alone."""
    pair = ga.System(
        np.eye(3),
        lambda t, q, v: jnp.array([0.0, -9.81, 1.0]),
        lambda t, q: jnp.array([q @ q - 1.0, q @ q - 1.0 + 1e-8 * q[2]]),
    )
    with pytest.raises(
        ga.SingularSystem, match=r"gradients of holonomic\[0\]; holonomic\[1\] become dependent"
    ):
        ga.solve(pair, (0.0, 1.0), [1.0, 0.0, 0.0], [0.0, 0.0, 0.0])

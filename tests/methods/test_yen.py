"""The methods of Yen, Petzold & Raha: orders, equal answers, splits, derivatives, failures."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from conftest import problem
from genalpha.convergence import slope, study

NAMES = ("dae-alpha", "cs", "cm", "projected")
NEWTON = ga.Newton(policy="full")


def method(name: str, coefficients: Any, **options: Any) -> Any:
    kinds = {"dae-alpha": ga.DAEAlpha, "projected": ga.ProjectedAlpha}
    if name in kinds:
        return kinds[name](coefficients, **options)
    return ga.CoordinateSplit(coefficients, iteration=name, **options)


def slow(value: Any) -> Any:
    return pytest.param(value, marks=pytest.mark.slow)


# --- orders -----------------------------------------------------------------------------------------

STEPS = {
    "double-pendulum": (0.5, [2e-3 / 2**k for k in range(4)]),
    "slider-crank": (0.15, [3e-4 / 2**k for k in range(4)]),
    "heavy-top": (0.2, [5e-4 / 2**k for k in range(4)]),
    "pendulum": (0.1, [1.25e-4 / 2**k for k in range(4)]),
    "rolling-disk": (2.0, [1e-2 / 2**k for k in range(4)]),
    "wheel-on-rod": (1.0, [1e-2 / 2**k for k in range(4)]),
    "body-chain": (0.5, [4e-3 / 2**k for k in range(4)]),
    "spring-chain": (1.0, [1e-2 / 2**k for k in range(4)]),
}
FAST = {("double-pendulum", 0.0, name) for name in NAMES if name != "cm"}  # which solves what cs does
FAST |= {("wheel-on-rod", 0.5, "projected")}


@pytest.mark.parametrize(
    ("problem_name", "rho", "name"),
    [
        pytest.param(*case, marks=[] if case in FAST else pytest.mark.slow)
        for case in itertools.product(STEPS, (0.0, 0.5, 0.9, 1.0), NAMES)
    ],
)
def test_every_component_is_of_second_order(problem_name: str, rho: float, name: str) -> None:
    """YPR98 proves O(h²) for q and O(h) for v, JN08 says first order: q, v, a, λ and ψ are of second."""
    p = problem(problem_name)
    if name in ("cs", "cm") and (p.system.holonomic is None or p.system.nonholonomic is not None):
        pytest.skip("coordinate splitting is for holonomic constraints")
    t_end, h = STEPS[problem_name]
    slopes = study(p, method(name, ga.chung_hulbert(rho)), h=h, t_end=t_end).finest(3).slopes
    for field, found in slopes.items():
        assert 1.85 < found < 2.2, (field, found)


FAMILIES = [ga.hht(-0.3), ga.trapezoidal(), ga.wbz(-0.2)]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        pytest.param(name, c, marks=[] if (i - j) % 3 == 0 else pytest.mark.slow, id=f"{name}-{c.name}")
        for (i, name), (j, c) in itertools.product(enumerate(NAMES), enumerate(FAMILIES))
    ],
)
def test_all_families_of_coefficients(name: str, family: Any) -> None:
    found = study(problem("double-pendulum"), method(name, family), h=[1e-3, 5e-4, 2.5e-4], t_end=0.3)
    assert all(abs(s - 2) < 0.1 for s in found.slopes.values()), found.slopes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dae-alpha", "cs", "cm", "projected"])
def test_changing_steps(name: str) -> None:
    """Steps that alternate between h/3 and 2h/3; without the adjusting formula a and λ are of first order."""
    p, h = problem("double-pendulum"), [4e-3, 2e-3, 1e-3, 5e-4]
    run = functools.partial(study, p, h=h, t_end=0.4, pattern=(1 / 3, 2 / 3))
    good = run(method(name, ga.chung_hulbert(0.2)))
    assert all(abs(s - 2) < 0.12 for s in good.slopes.values()), good.slopes
    poor = run(method(name, ga.chung_hulbert(0.2), adjust=False))
    assert poor.slopes["q"] < 1.5


@pytest.mark.parametrize("name", ["dae-alpha", "cs", slow("cm"), "projected"])
def test_constraints_that_depend_on_time(name: str) -> None:
    """A point on a circle whose centre moves along a curve; the true motion in the angle by SciPy."""
    from scipy.integrate import solve_ivp

    centre = lambda t, xp: xp.stack([0.3 * xp.sin(2 * t), 0.2 * t**2])
    system = ga.System(
        mass=np.eye(2),
        force=lambda t, q, v: jnp.array([0.0, -9.81]) - 0.1 * v,
        holonomic=lambda t, q: jnp.stack([jnp.sum((q - centre(t, jnp)) ** 2) - 1.0]),
    )

    def rhs(t: float, y: np.ndarray) -> np.ndarray:
        along = np.array([np.cos(y[0]), np.sin(y[0])])
        velocity = np.array([0.6 * np.cos(2 * t), 0.4 * t]) + y[1] * along
        pull = np.array([0.0, -9.81]) - 0.1 * velocity - np.array([-1.2 * np.sin(2 * t), 0.4])
        return np.array([y[1], along @ pull])

    where = lambda t, y: centre(t, np) + np.array([np.sin(y[0]), -np.cos(y[0])])
    y = solve_ivp(rhs, (0, 1), [0.5, 1.0], rtol=1e-12, atol=1e-12).y[:, -1]
    q0 = where(0.0, [0.5])
    v0 = np.array([0.6, 0.0]) + np.array([np.cos(0.5), np.sin(0.5)])
    h, errors = [0.01, 0.005, 0.0025], []
    for size in h:
        sol = ga.solve(system, (0.0, 1.0), q0, v0, h=size, method=method(name, ga.chung_hulbert(0.5)))
        assert sol.residuals.velocity.max() < 1e-12
        errors.append(np.abs(sol.q[-1] - where(1.0, y)).max())
    assert abs(slope(h, errors) - 2) < 0.1


@pytest.mark.parametrize("name", ["dae-alpha", "projected"])
def test_the_multipliers_of_the_projections_contain_lambda(name: str) -> None:
    """ν and μ of (3.3) divided by β̂h² and γ̂h are λ up to O(h); those of (2.5) are small corrections."""
    p, made = problem("double-pendulum"), method(name, ga.chung_hulbert(0.5))
    beta, gamma = made.hats
    h = [2e-3, 1e-3, 5e-4]
    runs = [p.solve(t_end=0.4, h=size, method=made) for size in h]
    nu, mu = (np.array([sol.extra[key][-1] for sol in runs]) for key in ("nu", "mu"))
    size = np.array(h)[:, None]
    if name == "projected":
        assert slope(h, np.abs(nu).max(axis=1)) > 2.9
        assert slope(h, np.abs(mu).max(axis=1)) > 1.9
        return
    lam = np.array([sol.lam[-1] for sol in runs])
    for found, unit in ((nu, beta * size**2), (mu, gamma * size)):
        errors = np.abs(found / unit - lam).max(axis=1)
        assert 0.9 < slope(h, errors) < 2.1
    start = runs[0]
    np.testing.assert_allclose(start.extra["nu"][0], beta * h[0] ** 2 * start.lam[0])
    np.testing.assert_allclose(start.extra["mu"][0], gamma * h[0] * start.lam[0])
    np.testing.assert_allclose(start.extra["phi"], start.a, atol=1e-10)


# --- the same equations -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["double-pendulum", slow("slider-crank"), slow("heavy-top")])
@pytest.mark.parametrize("factorization", ["lu", slow("qr")])
def test_all_formulations_give_the_same_answer(name: str, factorization: Any) -> None:
    """(3.3), (3.6) by CS and (3.6) by CM have the same solution, ν, μ, φ included, to Newton's tolerance."""
    p, c = problem(name), ga.chung_hulbert(0.6)
    steps = {"t_end": p.t_span[0] + 40 * p.h}
    whole = p.solve(method=ga.DAEAlpha(c), **steps)
    for iteration in ("cs", "cm"):
        split = ga.CoordinateSplit(c, iteration=iteration, factorization=factorization)
        other = p.solve(method=split, **steps)
        assert other.method == iteration
        for field in ("q", "v", "a", "a_alpha", "lam"):
            a, b = getattr(whole, field), getattr(other, field)
            np.testing.assert_allclose(a, b, atol=1e-9 * np.abs(b).max(), err_msg=field)
        for field in ("phi", "nu", "mu"):
            a, b = whole.extra[field], other.extra[field]
            np.testing.assert_allclose(a, b, atol=1e-8 * np.abs(b).max(), err_msg=field)


def test_the_projected_method_differs_by_more_than_rounding_and_less_than_its_error() -> None:
    p, c = problem("double-pendulum"), ga.chung_hulbert(0.5)
    h, differences = [4e-3, 2e-3, 1e-3], []
    for size in h:
        one, two = (p.solve(t_end=0.4, h=size, method=kind(c)) for kind in (ga.DAEAlpha, ga.ProjectedAlpha))
        differences.append(np.abs(one.q[-1] - two.q[-1]).max())
    assert differences[0] > 1e-14
    assert slope(h, differences) > 2.9


@pytest.mark.parametrize("name", ["dae-alpha", "projected"])
def test_without_constraints_they_are_the_alpha_method(name: str) -> None:
    """With a constant mass matrix, where it does not matter at which time it is taken."""
    p, c = problem("spring-chain"), ga.chung_hulbert(0.7)
    one = p.solve(t_end=2.0, method=method(name, c))
    two = p.solve(t_end=2.0, method=ga.GeneralizedAlpha(c))
    np.testing.assert_allclose(one.q, two.q, atol=1e-12)
    np.testing.assert_allclose(one.a_alpha, two.a_alpha, atol=1e-10)


# --- what is linear ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dae-alpha", "cs", "cm", "projected"])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 1.0])
def test_linear_oscillations_never_grow(name: str, rho: float) -> None:
    h_omega = np.logspace(-2, 6, 40)
    A = ga.analysis.constrained_amplification(method(name, ga.chung_hulbert(rho)), h_omega)
    radius = ga.analysis.spectral_radius(A)
    assert radius.max() < 1 + (1e-6 if rho < 1 else 1e-3)  # a double eigenvalue at -1
    # Oscillations along the constraint are damped by ρ∞, what is left of a_n across it by |α_m/(1 − α_m)|.
    assert radius[-1] == pytest.approx(max(rho, ga.chung_hulbert(rho).r_alpha_m), abs=2e-3)


# --- transforms -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd])
@pytest.mark.parametrize("name", ["dae-alpha", "cs", "cm", "projected"])
def test_derivatives_of_a_run(name: str, derivative: Any) -> None:
    """Forward and reverse, against central differences; those of CM although its matrix lacks a term."""
    made = method(name, ga.chung_hulbert(0.5))

    def end(g: Any) -> Any:
        sol = ga.solve(systems.pulled(), (0.0, 0.5), [0.8, -0.6], [0.0, 0.0], h=0.05, args=(g,), method=made)
        return sol.q[-1, 0] + 0.1 * sol.lam[-1, 0]

    step = 1e-5
    central = (float(end(9.81 + step)) - float(end(9.81 - step))) / (2 * step)
    assert float(jax.jit(derivative(end))(9.81)) == pytest.approx(central, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives_of_a_run(name: str) -> None:
    system, made = systems.circle(), method(name, ga.chung_hulbert(0.5))

    def end(speed: Any) -> Any:
        v0 = speed * jnp.array([0.6, 0.8])
        return ga.solve(system, (0.0, 0.5), [0.8, -0.6], v0, h=0.05, method=made).q[-1, 0]

    second = (float(end(1 + 1e-3)) - 2 * float(end(1.0)) + float(end(1 - 1e-3))) / 1e-6
    assert float(jax.jvp(jax.grad(end), (1.0,), (1.0,))[1]) == pytest.approx(second, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dae-alpha", "cs", "cm", "projected"])
def test_batches(name: str) -> None:
    p = problem("double-pendulum")
    span, made = (0.0, 0.1), method(name, ga.chung_hulbert(0.8))
    gravity = np.linspace(9.0, 11.0, 5)
    many = ga.solve_batch(
        p.system, span, p.q0, p.v0, h=1e-3, args=({**p.args[0], "g": gravity},), method=made
    )
    assert many.backend == "native"
    assert many.success.all()
    for i in (0, 4):
        own = ({**p.args[0], "g": gravity[i]},)
        one = ga.solve(p.system, span, p.q0, p.v0, h=1e-3, args=own, method=made)
        np.testing.assert_allclose(many.q[i, -1], one.q[-1], atol=1e-13)
        np.testing.assert_allclose(many.lam[i, -1], one.lam[-1], atol=1e-10)


# --- bad input --------------------------------------------------------------------------------------


@functools.cache
def losing_rank() -> ga.System:
    """The gradient of the second constraint, (z, 0, x), vanishes where x does, on the plane z = 0."""
    return ga.System(
        mass=np.eye(3),
        force=lambda t, q, v: jnp.zeros(3),
        holonomic=lambda t, q: jnp.array([q[1], q[0] * q[2]]),
    )


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "native") for name in NAMES),
        *(pytest.param(name, "xla", marks=pytest.mark.slow) for name in NAMES),
    ],
)
def test_a_constraint_that_loses_rank_is_named(name: str, backend: Any) -> None:
    start = [-0.5, 0.0, 0.0], [1.0, 0.0, 0.0]
    with pytest.raises(ga.IntegrationError) as error:
        ga.solve(losing_rank(), (0.0, 2.0), *start, h=0.125, method=name, backend=backend, newton=NEWTON)
    sol = error.value.solution
    assert sol.status in (2, 3)  # what divides by it may overflow before
    assert sol.t[-1] == pytest.approx(0.375)
    assert "Near t = 0.5 the gradients of holonomic[1] become dependent, or vanish" in sol.message
    np.testing.assert_allclose(sol.q[:, 0], sol.t - 0.5, atol=1e-14)


def test_what_coordinate_splitting_cannot_take() -> None:
    with pytest.raises(ValueError, match="needs holonomic constraints"):
        problem("spring-chain").solve(method="cs")
    with pytest.raises(ValueError, match="nonholonomic"):
        problem("wheel-on-rod").solve(method="cm")
    with pytest.raises(ValueError, match="iteration must be one of cs, cm"):
        ga.CoordinateSplit(iteration="newton")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="adjust must be True or False"):
        ga.CoordinateSplit(ga.hht(-0.1), "cm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="factorization must be one of lu, qr"):
        ga.CoordinateSplit(factorization="svd")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["dae-alpha", "cs", "cm"])
def test_reactions_of_the_user_s_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="reaction forces"):
        problem("jay-negrut").solve(method=name)


@pytest.mark.parametrize("name", NAMES)
def test_explicit_positions_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="beta = 0"):
        problem("double-pendulum").solve(method=method(name, ga.stormer()))


@pytest.mark.parametrize("backend", ["native", "xla"])
@pytest.mark.parametrize("name", ["cs", "cm"])
def test_forces_that_balance_leave_their_rounding(name: str, backend: Any) -> None:
    """A mass at rest on two rods: no unknown of these methods has the size of the forces."""
    ends, q0, weight = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0.3, -0.7]), np.array([0.0, -19.62])
    rods = q0 - ends
    truss = ga.System(
        mass=2.0 * np.eye(2),
        force=lambda t, q, v: jnp.asarray(weight),
        holonomic=lambda t, q: 0.5 * jnp.sum((q - ends) ** 2 - rods**2, axis=1),
    )
    sol = ga.solve(truss, (0.0, 0.1), q0, np.zeros(2), h=1e-3, method=name, backend=backend)
    assert np.abs(sol.v).max() < 1e-15
    np.testing.assert_allclose(rods.T @ sol.lam[-1], weight, atol=1e-12)

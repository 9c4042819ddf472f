"""Newton: scaling, policies, stopping, and the three ways to fail."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from conftest import problem, run
from genalpha.engine.setup import Setup
from genalpha.engine.start import from_consistent
from genalpha.mechanics import initial_values
from genalpha.numerics import codes, newton
from genalpha.run import arguments

POLICIES = ("full", "modified", "frozen")


def newton_matrices(name, sizes, reduced=False):
    """The scaled matrix of the first step for each step size."""
    compiled = newton_matrix(name, reduced)
    return [np.asarray(compiled(h)) for h in sizes]


@functools.cache
def newton_matrix(name, reduced):
    p = problem(name)
    args = arguments.arguments(p.args)
    dims, _ = arguments.trace(p.system, 0.0, p.q0, p.v0, args)
    setup = Setup(p.system, ga.SOI2(reduced=reduced), ga.Newton(), dims)

    def matrix(h):
        begin = initial_values.begin(p.system, dims, jnp.array(0.0), jnp.array(p.q0), jnp.array(p.v0), args)
        start = from_consistent(setup, begin, h, args)
        step = setup.method.prepare(p.system, start.carry, jnp.array(0.0), h, dims, begin.scale, args)
        residual = lambda x: setup.method.residual(p.system, step, dims, begin.scale, x, args)
        return jax.jacfwd(residual)(start.x)

    return jax.jit(matrix)


@pytest.mark.parametrize(
    "name",
    [
        *("pendulum", "rolling-disk", "wheel-on-rod"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("slider-crank", "jay-negrut")),
    ],
)
def test_condition_of_the_scaled_matrix_is_bounded_as_h_goes_to_zero(name):
    conditions = np.linalg.cond(newton_matrices(name, 10.0 ** -np.arange(1, 7)))
    assert max(conditions) < 1e3
    # The limit exists: the last two decades do not differ any more.
    assert conditions[-1] == pytest.approx(conditions[-2], rel=1e-2)


@pytest.mark.slow
def test_condition_does_not_depend_on_units():
    """Kilograms or grams, metres or millimetres: the same scaled matrix."""

    def condition(mass, length):
        p = ga.problems.get("double-pendulum", m1=mass, m2=3 * mass, l1=length, l2=length, g=9.81 * length)
        args = arguments.arguments(p.args)
        dims, _ = arguments.trace(p.system, 0.0, p.q0, p.v0, args)
        begin = jax.jit(lambda q: initial_values.begin(p.system, dims, 0.0, q, jnp.array(p.v0), args))
        return float(begin(jnp.array(p.q0)).report.condition)

    assert condition(1e3, 1e-3) == pytest.approx(condition(1.0, 1.0), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "reduced", "unknowns"),
    [
        ("spring-chain", False, 5),  # (2): a
        ("rolling-disk", False, 5 + 2),  # (10): a, ψ
        ("pendulum", False, 2 * (3 + 2)),  # (9): a, ã, λ, λ̃
        ("wheel-on-rod", False, 2 * (4 + 1 + 2)),  # (13): all twice
        ("wheel-on-rod", True, 2 * (4 + 1) + 2),  # without ψ̃
    ],
)
def test_no_dead_unknowns(name, reduced, unknowns):
    (matrix,) = newton_matrices(name, [1e-2], reduced)
    assert matrix.shape == (unknowns, unknowns)
    assert np.linalg.matrix_rank(matrix) == unknowns


@pytest.mark.parametrize("policy", ["full", "modified"])
@pytest.mark.parametrize("name", ["pendulum", "wheel-on-rod"])
def test_policies_agree(name, policy):
    tight = run(name, t_end=0.2, newton=ga.Newton("full", tol=1e-14))
    sol = run(name, t_end=0.2, newton=ga.Newton(policy))
    for field in ("q", "v", "a_alpha", "lam", "psi"):
        true = getattr(tight, field)
        np.testing.assert_allclose(getattr(sol, field), true, atol=1e-10 * np.abs(true).max(initial=1))


def test_what_the_policies_cost():
    full, modified = (run("pendulum", t_end=0.5, newton=ga.Newton(policy)) for policy in POLICIES[:2])
    assert full.stats.jacobians == full.stats.newton_iterations
    assert modified.stats.jacobians < 0.1 * full.stats.jacobians
    frozen = run("spring-chain", newton=ga.Newton("frozen"))
    assert frozen.stats.jacobians == frozen.stats.factorizations == 1
    assert frozen.stats.newton_iterations <= 2 * frozen.stats.steps  # linear: one to solve, one to see it
    assert frozen.newton.iterations.shape == (frozen.stats.steps,)
    assert frozen.newton.iterations.sum() == frozen.stats.newton_iterations


@pytest.mark.slow
def test_a_looser_tolerance_is_a_larger_error_within_its_size():
    tight = run("double-pendulum", t_end=0.5, newton=ga.Newton(tol=1e-13))
    size = np.abs(tight.a_alpha).max()
    for tol in (1e-4, 1e-7, 1e-10):
        loose = run("double-pendulum", t_end=0.5, newton=ga.Newton(tol=tol))
        error = np.abs(loose.a_alpha - tight.a_alpha)[:20].max()  # before errors accumulate
        assert error < 100 * tol * size
        assert loose.stats.newton_iterations < tight.stats.newton_iterations


def test_rounding_level_counts_as_convergence_and_is_reported():
    p = problem("double-pendulum")
    sol = run("double-pendulum", t_end=2e-4, h=1e-6)
    assert sol.success
    # ε|q|/(βh²) is a thousand times what the tolerance asks for
    assert sol.stats.rounding_limited > 0.2 * sol.stats.steps
    assert sol.newton.rounding.sum() == sol.stats.rounding_limited
    assert sol.stats.newton_iterations < 8 * sol.stats.steps
    true = p.reference(2e-4)
    np.testing.assert_allclose(sol.q[-1], true.q, atol=1e-13)
    np.testing.assert_allclose(sol.lam[-1], true.lam, atol=1e-7)
    coarse = run("double-pendulum", t_end=0.1, h=1e-2, newton=ga.Newton(tol=1e-8))
    assert coarse.stats.rounding_limited == 0


def test_constraints_whose_terms_are_larger_than_q():
    """A pendulum that swings through the origin: rounding of its constraint does not shrink with |q|."""
    system = ga.System(
        np.eye(2),
        lambda t, q, v: jnp.array([0, -9.81]) - 2 * v,
        lambda t, q: jnp.array([q[0] ** 2 + (q[1] - 1) ** 2 - 1]),
    )
    for h in (1e-2, 1e-3, 1e-4):
        sol = ga.solve(system, (0, 2), [np.sin(0.1), 1 - np.cos(0.1)], [0, 0], h=h)
        assert sol.residuals.position.max() < 1e-15
        assert sol.residuals.velocity.max() < 1e-12
    assert sol.stats.rounding_limited > 0


LARGE = ga.System(
    np.eye(2),
    lambda t, q, v, radius: jnp.array([0, -9.81]),
    lambda t, q, radius: jnp.array([q[0] ** 2 + (q[1] - radius) ** 2 - radius**2]),
)


@pytest.mark.slow
@pytest.mark.parametrize("radius", [100.0, 1e6])
def test_a_bead_on_a_large_circle_through_the_origin(radius):
    q0 = [1e-3 * radius, radius - radius * np.sqrt(1 - 1e-6)]
    sol = ga.solve(LARGE, (0, 1), q0, [0, 0], h=1e-2, initial="project", args=(radius,))
    # rounding of the constraint itself: ε R²
    assert sol.residuals.position.max() < 10 * np.finfo(float).eps * radius**2


@pytest.mark.parametrize("stiffness", [1e6, 1e8, 1e10])
def test_stiff_forces_limit_the_corrections(stiffness):
    """A stiff spring in place of a rod: forces carry rounding of size ε times the stiffness."""

    def force(t, q, v):
        length = jnp.linalg.norm(q)
        return jnp.array([0, -9.81]) - stiffness * (length - 1) * q / length

    sol = ga.solve(ga.System(np.eye(2), force), (0, 1), [1.0, 0.0], [0.0, 0.0], h=1e-3, rho_inf=0.3)
    stretch = np.abs(np.linalg.norm(sol.q, axis=1) - 1)
    assert stretch.max() == pytest.approx(3 * 9.81 / stiffness, rel=0.01)  # at the lowest point


def test_a_matrix_that_has_become_far_too_stiff_is_noticed():
    """A spring that breaks: with the old matrix every correction is tiny, and none is right."""
    stiff = 1e14
    system = ga.System(
        np.eye(2), lambda t, q, v: jnp.array([1 - jnp.where(t < 0.505, stiff, 0.0) * (q[0] - 1), 1e3])
    )
    sol = ga.solve(system, (0, 1), [1 + 1 / stiff, 0.0], [0.0, 0.0], h=0.01)
    assert sol.a[-1, 0] == pytest.approx(1.0)
    assert sol.q[-1, 0] == pytest.approx(1 + 0.495**2 / 2, abs=1e-3)


def test_the_kept_matrix_serves_at_small_steps():
    sol = run("wheel-on-rod", t_end=0.1, h=1e-4)
    assert sol.stats.jacobians < 0.05 * sol.stats.steps


NO_ROUNDING = newton.Levels(jnp.zeros(1), jnp.zeros(1), jnp.zeros(()))


def solve_one(residual, guess, options=None):
    guess = jnp.asarray(guess, float)
    options = options or ga.Newton("full")
    memory = newton.no_memory(guess.size)
    run = jax.jit(
        lambda x: newton.solve(options, residual, x, memory, NO_ROUNDING, newton.one_group(guess.size))
    )
    return run(guess)


def test_failures_are_told_apart():
    singular = lambda x: jnp.array([x[0] + x[1], 2 * x[0] + 2 * x[1]]) - 1.0
    nearly = lambda x: jnp.array([x[0] + x[1], (1 + 1e-16) * x[0] + x[1]]) - 1.0
    no_root = lambda x: x**2 + 1.0
    bad_value = lambda x: jnp.log(x)
    for policy in ("full", "modified"):
        options = ga.Newton(policy)
        statuses = [
            int(solve_one(residual, guess, options)[2].status)
            for residual, guess in ((singular, [1, 2]), (nearly, [1, 2]), (no_root, [0.7]), (bad_value, [-1]))
        ]
        assert statuses == [
            codes.SINGULAR,
            codes.SINGULAR,
            codes.NOT_CONVERGED,
            codes.NOT_FINITE,
        ], policy


def test_divergence_to_infinity_is_a_missed_convergence():
    _, _, report = solve_one(lambda x: jnp.arctan(x), [3.0], ga.Newton("full", max_iterations=50))
    assert int(report.status) == codes.NOT_CONVERGED


def test_the_report_of_a_simple_root():
    x, _, report = solve_one(lambda x: x**3 - 8.0, [3.0])
    assert float(x[0]) == pytest.approx(2.0, rel=1e-14)
    assert int(report.status) == codes.SUCCESS
    assert int(report.iterations) == int(report.jacobians) <= 7
    assert float(report.condition) == pytest.approx(1.0)


def test_implicit_derivative_is_exact_even_where_the_iteration_is_cut_short():
    """d/dp of x³ = p is 1/(3x²), to rounding, by both modes and twice over."""

    def root(p):
        return solve_one(lambda x: x**3 - p, [2.1], ga.Newton("full"))[0][0]

    x = 8.0 ** (1 / 3)
    assert float(jax.grad(root)(8.0)) == pytest.approx(1 / (3 * x**2), rel=1e-12)
    assert float(jax.jvp(root, (8.0,), (1.0,))[1]) == pytest.approx(1 / (3 * x**2), rel=1e-12)
    assert float(jax.hessian(root)(8.0)) == pytest.approx(-2 / 9 * 8 ** (-5 / 3), rel=1e-11)


def test_a_stale_matrix_that_leads_astray_is_replaced():
    """A kept matrix of the wrong sign makes the iteration diverge; a new one from the guess saves it."""
    residual = lambda x: x**3 - 8.0
    memory = newton.no_memory(1)._replace(inverse=(jnp.array([[-0.1]]),), fit_and_noise=jnp.array([1.0, 0.0]))
    guess = jnp.array([2.5])
    x, _, report = newton.solve(
        ga.Newton("modified"), residual, guess, memory, NO_ROUNDING, newton.one_group(1)
    )
    assert float(x[0]) == pytest.approx(2.0, rel=1e-12)
    assert int(report.jacobians) >= 1
    frozen = newton.solve(ga.Newton("frozen"), residual, guess, memory, NO_ROUNDING, newton.one_group(1))[2]
    assert int(frozen.status) == codes.NOT_CONVERGED


@pytest.mark.parametrize("rate", [0.05, 0.25])
def test_a_matrix_that_leaves_out_derivatives(rate):
    """Corrections shrink at the same rate with every matrix: the tolerance is reached."""
    options, levels = ga.Newton(), newton.Levels(jnp.zeros(1), jnp.full(1, 1e-6), jnp.zeros(()))
    residual = lambda x: x - 2.0
    x, _, report = newton.solve(
        options,
        residual,
        jnp.array([1.0]),
        newton.no_memory(1),
        levels,
        newton.one_group(1),
        linearized=lambda x: residual(x) / (1.0 - rate),
    )
    assert int(report.status) == codes.SUCCESS
    assert abs(float(x[0]) - 2.0) < 4 * options.tol


def test_amplified_rounding_is_noted_and_confirmed_by_a_new_matrix():
    """Corrections of 1 stay 1 while the residual is 1e-9, near the expected rounding of 1e-10."""
    levels = newton.Levels(*(jnp.array(x) for x in ([1e-10], [2.0], 1.0)))
    options, x = ga.Newton(tol=1e-12), jnp.array([1e3])

    def after(s, error, step, large):
        value = jnp.array([error])
        return newton.judged(
            options,
            levels,
            newton.one_group(1),
            s,
            x,
            value,
            jnp.array([step]),
            "large" if large else "usual",
        )

    kept = newton.begun(jnp.array(1.0), jnp.array(0.0))
    for large, noted in ((False, 0.0), (True, -1e-9)):
        stuck = after(after(kept, 1e-9, 1.0, large), 1e-9, 1.0, large)
        assert (float(stuck.status), float(stuck.noise)) == (newton.SLOW_DOWN, noted)
    far = after(after(kept, 1e-5, 1.0, True), 1e-5, 1.0, True)
    assert float(far.noise) == 0.0  # this residual is not rounding
    new = newton.reconsidered(options, stuck)[1]
    new = newton.renewed(options, new, jnp.array(True), jnp.array(False))
    new = after(after(new, 1e-3, 1e-5, True), 8e-10, 1e-9, True)
    assert (float(new.status), float(new.noise)) == (codes.SUCCESS, pytest.approx(8e-10))
    fit, noise = newton.remembered(options, new, large=True)
    again = after(newton.begun(fit, noise), 2e-9, 1.0, True)  # with the same residual, one is enough
    assert (float(again.status), float(again.rounding)) == (codes.SUCCESS, 1.0)


@pytest.mark.parametrize(
    "options", [{"policy": "fast"}, {"tol": 0.0}, {"tol": float("nan")}, {"max_iterations": 0}]
)
def test_bad_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ga.Newton(**options)


def test_first_guess_is_the_start():
    p = problem("pendulum")
    args = arguments.arguments(p.args)
    dims, _ = arguments.trace(p.system, 0.0, p.q0, p.v0, args)
    setup = Setup(p.system, ga.SOI2(start="a0"), ga.Newton(), dims)

    @jax.jit
    def start(q, v):
        begin = initial_values.begin(p.system, dims, jnp.array(0.0), q, v, args)
        return begin, from_consistent(setup, begin, jnp.array(1e-3), args).x

    begin, x = start(jnp.array(p.q0), jnp.array(p.v0))
    u = setup.method.split(dims, begin.scale, x)
    np.testing.assert_allclose(u["a"], begin.state.a)
    np.testing.assert_allclose(u["lam"], begin.state.lam)
    assert not u["delta"].any()


@pytest.mark.slow
def test_a_stiff_spring_that_turns():
    """k = 1e8 and hω = 100: a kept matrix leads far away, so Newton starts again from its guess."""
    spring = lambda d: 1e8 * (jnp.sqrt(d @ d) - 1) * d / jnp.sqrt(d @ d)
    system = ga.System(
        mass=np.eye(4),
        force=lambda t, q, v: jnp.concatenate([spring(q[2:] - q[:2]), -spring(q[2:] - q[:2])]),
        holonomic=lambda t, q: jnp.array([q[:2] @ q[:2] - 1]),
    )
    q0 = np.array([0.0, -1.0, 0.600006, -1.800008])
    sol = ga.solve(system, (0.0, 0.2), q0, [2.0, 0, 2.0, 0], h=1e-2)
    full = ga.solve(system, (0.0, 0.2), q0, [2.0, 0, 2.0, 0], h=1e-2, newton=ga.Newton("full"))
    np.testing.assert_allclose(sol.q, full.q, atol=1e-9)


@pytest.mark.parametrize("backend", ["native", pytest.param("xla", marks=pytest.mark.slow)])
def test_motion_that_is_damped_to_nothing(backend):
    """Below 1e-308 numbers lose their digits, and no correction is small against the others any more."""
    spring = lambda t, q, v: -1e6 * (q[0] + q[1]) * jnp.ones(2)
    system = ga.System(np.eye(2), spring, lambda t, q: q[1:])
    method = ga.DAEAlpha(ga.chung_hulbert(0.0), start="a0")
    sol = ga.solve(system, (0.0, 200.0), [1.0, 0.0], [0.0, 0.0], h=1.0, method=method, backend=backend)
    assert sol.success
    assert np.abs(sol.q[-1]).max() < 1e-100


@pytest.mark.parametrize("method", ["soi2", "index3", "cs"])
@pytest.mark.parametrize(("stiffness", "h"), [(1e4, 1e-2), (1e6, 1e-3)])
def test_a_spring_that_carries_a_weight_at_rest(method, stiffness, h):
    """Coordinates and velocities are zero: the size of what is rounded is known to the force alone."""
    stretched = 9.81 / stiffness
    pull = lambda z, w: stiffness * ((1.0 - z) - (1.0 - stretched)) - 9.81 - w
    # The first coordinate is held, for methods that need a constraint.
    system = ga.System(
        mass=np.eye(2),
        force=lambda t, q, v: jnp.stack([0.0, pull(q[1], v[1])]),
        holonomic=lambda t, q: q[:1],
    )
    sol = ga.solve(system, (0.0, 0.5), np.zeros(2), np.zeros(2), h=h, method=method)
    assert np.abs(sol.q).max() < 1e-14
    assert np.abs(sol.v).max() < 1e-11

"""Redundant constraints: same motion, smallest multipliers, and nothing broken in silence."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.convergence import slope
from genalpha.mechanics.system import Dims
from genalpha.numerics import codes
from genalpha.run.redundant import legs, rank
from genalpha.run.redundant.constraints import Constraints
from genalpha.run.redundant.monitor import ConstraintMonitor

WEIGHT = jnp.array([0.0, -9.81])
SPAN, START = (0.0, 1.0), ([1.0, 0.0], [0.0, 0.0])
solve = functools.partial(ga.solve, redundant="min_norm")


def circle(*factors: float) -> ga.System:
    """A pendulum whose constraint is stated several times."""
    return ga.System(
        np.eye(2), lambda t, q, v: WEIGHT, lambda t, q: jnp.array([c * (q @ q - 1.0) for c in factors])
    )


ONE, TWO, SCALED = circle(1.0), circle(1.0, 1.0), circle(1.0, -3.0, 1e4)


def plate(points: list[list[float]] | None) -> ga.System:
    """A plate (x, y, angle) on equal parallel bars at these points: it moves without turning.

    Without points, that is stated directly.
    """
    minimal = lambda t, q: jnp.array([q[:2] @ q[:2] - 1.0, q[2]])

    def bars(t, q):
        at, (c, s) = jnp.array(points), (jnp.cos(q[2]), jnp.sin(q[2]))
        bar = q[:2] + at @ jnp.array([[c, s], [-s, c]]) - at
        return jnp.sum(bar * bar, axis=1) - 1.0

    return ga.System(
        np.diag([2.0, 2.0, 0.7]),
        lambda t, q, v: jnp.array([0.0, -19.62, 0.4 * jnp.sin(3 * t)]),
        minimal if points is None else bars,
    )


THREE_BARS, NO_BARS = plate([[-1.0, 0.0], [1.0, 0.0], [0.3, 1.2]]), plate(None)
ROUND = ([1.0, 0.0, 0.0], [0.0, 9.0, 0.0])  # fast enough for full turns


def door(hinges: list[float]) -> ga.System:
    """A door that hangs on hinges at these heights: each holds a point and the direction of the axis."""
    J, arm = jnp.array([0.5, 2.0, 1.5]), jnp.array([1.0, 0.0, 0.0])
    weight = jnp.array([0.0, -4.0, -9.81 * 3])
    up = jnp.array([0.0, 0.0, 1.0])

    def held(t, q):
        rotate = functools.partial(ga.rotation.rotate, q[3:])
        rows = [jnp.concatenate([q[:3] + rotate(z * up - arm) - z * up, rotate(up)[:2]]) for z in hinges]
        return jnp.concatenate(rows)

    return ga.System(
        np.diag([3.0, 3.0, 3.0, 0.5, 2.0, 1.5]),
        lambda t, q, v: jnp.concatenate([weight, -jnp.cross(v[3:], J * v[3:])]),
        held,
        space=ga.R3xSO3(),
    )


DOOR, HUNG_ONCE = door([-0.8, 0.7]), door([-0.8])
CLOSED = ([1.0, 0, 0, 1.0, 0, 0, 0], [0.0, 1.5, 0, 0, 0, 1.5])


def pinv(system: ga.System, sol: ga.Solution, rows: slice = slice(None)) -> np.ndarray:
    """The smallest (λ, ψ) with the reactions of a solution, by the singular value decomposition."""
    found = []
    for t, q, v, r in zip(sol.t[rows], sol.q[rows], sol.v[rows], sol.reactions.total[rows], strict=True):
        parts = [np.asarray(system.G(t, q))] if sol.lam.shape[1] else []
        parts += [np.asarray(system.K(t, q, v))] if sol.psi.shape[1] else []
        found.append(-np.linalg.pinv(np.concatenate(parts).T, rcond=1e-9) @ r)
    return np.array(found)


def assert_smallest(system, sol, rows=slice(None), rtol=1e-11):
    both = np.concatenate([sol.lam, sol.psi], axis=1)[rows]
    expected = pinv(system, sol, rows)
    np.testing.assert_allclose(both, expected, atol=rtol * np.abs(expected).max())


# --- the same motion, the smallest multipliers ----------------------------------------------------------


def test_a_constraint_given_twice():
    once, twice = ga.solve(ONE, SPAN, *START, h=0.01), solve(TWO, SPAN, *START, h=0.01)
    np.testing.assert_allclose(twice.q, once.q, atol=1e-14)
    np.testing.assert_allclose(twice.v, once.v, atol=1e-13)
    np.testing.assert_allclose(twice.lam, np.repeat(once.lam, 2, axis=1) / 2, atol=1e-12)
    np.testing.assert_allclose(twice.reactions.total, once.reactions.total, atol=1e-11)
    assert twice.not_unique == (0, 1)
    assert twice.success
    assert "holonomic[0]; holonomic[1] are not unique" in twice.message
    assert "not unique" in repr(twice)
    assert once.not_unique == ()
    assert twice.stats == once.stats


def test_scales_decide_who_bears_the_load():
    """The Euclidean norm of λ itself: a row that is larger takes more, here almost all."""
    once, sol = ga.solve(ONE, SPAN, *START, h=0.01), solve(SCALED, SPAN, *START, h=0.01)
    factors = np.array([1.0, -3.0, 1e4])
    np.testing.assert_allclose(sol.lam, once.lam * factors / (factors @ factors), rtol=1e-10, atol=1e-15)
    assert sol.residuals.position.max() < 1e-10
    assert_smallest(SCALED, sol)


@pytest.mark.parametrize(
    "method",
    [
        *("soi2", "stabilized", "cs"),
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("index3", "dae-alpha", "projected", "hht-i3")),
    ],
)
def test_every_method(method):
    once = ga.solve(HUNG_ONCE, SPAN, *CLOSED, h=0.02, method=method)
    sol = solve(DOOR, SPAN, *CLOSED, h=0.02, method=method)
    assert sol.lam.shape == (51, 10)
    assert sol.not_unique == tuple(range(10))
    tolerance = 1e-10 if method in ("index3", "hht-i3") else 1e-12
    np.testing.assert_allclose(sol.q, once.q, atol=tolerance)
    np.testing.assert_allclose(sol.reactions.total, once.reactions.total, atol=1e4 * tolerance)
    assert_smallest(DOOR, sol, slice(None, None, 10))
    assert sol.residuals.position.max() < 1e-13
    if method == "stabilized":
        assert sol.extra["eta"].shape == (51, 10)
        assert np.count_nonzero(sol.extra["eta"][-1]) == 5  # those of the constraints that were kept


@pytest.mark.slow
def test_a_plane_loop_of_bodies_in_space():
    """A four-bar linkage of hinges: three constraints keep in the plane what the others keep there too."""
    lengths, up = np.array([1.0, 2.0, 1.5]), jnp.array([0.0, 0.0, 1.0])
    angles = 2 * np.arctan2([0.6, 0.2, 1.1], 1.0)
    arms = lengths[:, None] * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    ground = arms[0] + arms[1] - arms[2]
    centres = [arms[0] / 2, arms[0] + arms[1] / 2, ground + arms[2] / 2]
    bodies = [np.r_[x, np.cos(a / 2), 0, 0, np.sin(a / 2)] for x, a in zip(centres, angles, strict=True)]
    rotate, x, y = ga.rotation.rotate, jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0])

    def hinge(a, at_a, b, at_b):
        axis, here = rotate(a[3:], up), a[:3] + rotate(a[3:], at_a)
        there = b[:3] + rotate(b[3:], at_b)
        return jnp.append(here - there, jnp.array([rotate(b[3:], x) @ axis, rotate(b[3:], y) @ axis]))

    def hinges(t, q):
        fixed, (one, two, three) = jnp.eye(7)[3], jnp.split(q, 3)
        a, b, c = (x * length / 2 for length in lengths)
        return jnp.concatenate(
            [
                hinge(fixed, 0 * x, one, -a),
                hinge(one, a, two, -b),
                hinge(two, b, three, c),
                hinge(fixed, jnp.asarray(ground), three, -c),
            ]
        )

    weight = jnp.array([0.0, -9.81, 0.0])
    linkage = ga.System(
        np.diag([1.0, 1.0, 1.0, 0.01, 0.1, 0.1] * 3),
        lambda t, q, v: jnp.tile(jnp.append(weight, jnp.zeros(3)), 3),
        hinges,
        space=ga.Product(*[ga.R3xSO3()] * 3),
    )
    sol = solve(linkage, SPAN, np.concatenate(bodies), np.zeros(18), h=0.01)
    assert sol.lam.shape == (101, 20)
    out_of_plane = [i + j for i in (0, 5, 10, 15) for j in (2, 3, 4)]
    assert sol.not_unique == tuple(out_of_plane)
    assert sol.residuals.position.max() < 1e-13
    assert_smallest(linkage, sol, slice(None, None, 20))


def test_velocities_of_the_index_3_method_may_be_off():
    sol = solve(DOOR, SPAN, *CLOSED, h=0.02, method="index3")
    assert sol.success
    assert 1e-4 < sol.residuals.velocity.max() < 1e-1


def test_second_order():
    """q, v and the smallest λ of the door, and of the plate that changes its constraints on the way."""
    for system, start, ends, steps in (
        (DOOR, CLOSED, 1.0, [25, 50, 100, 200]),
        (THREE_BARS, ROUND, 0.6, [60, 120, 240, 480]),
    ):
        fine = solve(system, (0.0, ends), *start, h=ends / 6400)
        errors = {"q": [], "v": [], "lam": []}
        for n in steps:
            sol = solve(system, (0.0, ends), *start, h=ends / n)
            for name, list_ in errors.items():
                list_.append(np.linalg.norm(getattr(sol, name)[-1] - getattr(fine, name)[-1]))
        for name, list_ in errors.items():
            assert 1.85 < slope(1 / np.array(steps), list_) < 2.25, (name, list_)


def test_constraints_that_depend_on_time():
    driven = lambda *c: ga.System(
        np.diag([1.0, 2.0]),
        lambda t, q, v: jnp.array([0.3, -q[1]]),
        lambda t, q: jnp.array([x * (q[0] - q[1] * jnp.sin(t) - 1.0) for x in c]),
    )
    q0, v0 = [1.0, 2.0], [2.0, 0.0]
    once = ga.solve(driven(1.0), SPAN, q0, v0, h=0.01)
    sol = solve(driven(1.0, 2.0), SPAN, q0, v0, h=0.01)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-13)
    np.testing.assert_allclose(sol.lam, once.lam * [0.2, 0.4], atol=1e-11)


def sleigh(*rows) -> ga.System:
    edge = lambda t, q, v: jnp.cos(q[2]) * v[1] - jnp.sin(q[2]) * v[0]
    return ga.System(
        np.diag([2.0, 2.0, 0.5]),
        lambda t, q, v: jnp.array([0.3, 0.0, jnp.cos(t)]),
        nonholonomic=lambda t, q, v: jnp.array([row(edge(t, q, v), v) for row in rows]),
    )


@pytest.mark.parametrize("method", ["soi2", "index3", "dae-alpha"])
def test_nonholonomic_constraints(method):
    start = ([0.0, 0.0, 0.0], [1.0, 0.0, 0.0])
    once = ga.solve(sleigh(lambda k, v: k), SPAN, *start, h=0.01, method=method)
    system = sleigh(lambda k, v: k, lambda k, v: 2 * k * (1 + v[2] ** 2))  # not linear in v
    sol = solve(system, SPAN, *start, h=0.01, method=method)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-12)
    assert sol.not_unique == (0, 1)
    assert "nonholonomic[1]" in sol.message
    assert_smallest(system, sol)


@pytest.mark.parametrize("method", ["soi2", pytest.param("index3", marks=pytest.mark.slow)])
def test_a_velocity_constraint_that_is_a_position_constraint_too(method):
    """Positions must not drift, so both position constraints are kept, although they are nearly parallel."""
    on_cylinder = lambda q: q[0] ** 2 + q[1] ** 2 - 1.0
    nearly = lambda t, q: jnp.array([on_cylinder(q), on_cylinder(q) + 0.1 * (q[2] - q[0] ** 2)])
    mass, force = np.eye(3), lambda t, q, v: jnp.array([0.0, -9.81, 1.0])
    both = ga.System(mass, force, nearly, lambda t, q, v: jnp.array([v[2] - 2 * q[0] * v[0]]))
    start = ([1.0, 0.0, 1.0], [0.0] * 3)
    sol = solve(both, SPAN, *start, h=0.01, method=method)
    once = ga.solve(ga.System(mass, force, nearly), SPAN, *start, h=0.01, method=method)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-12)
    assert sol.residuals.position.max() < 1e-13
    assert sol.not_unique == (0, 1, 2)
    assert_smallest(both, sol)
    parts = sol.reactions.holonomic + sol.reactions.nonholonomic
    np.testing.assert_allclose(parts, sol.reactions.total, atol=1e-12)
    gradients = np.stack([np.asarray(both.G(t, q)) for t, q in zip(sol.t, sol.q, strict=True)])
    np.testing.assert_allclose(
        sol.reactions.holonomic, -np.einsum("ni,nij->nj", sol.lam, gradients), atol=1e-11
    )


def test_a_constraint_on_nothing():
    idle = ga.System(np.eye(2), lambda t, q, v: WEIGHT, lambda t, q: jnp.array([0.0 * q[0]]))
    sol = solve(idle, SPAN, *START, h=0.1)
    np.testing.assert_allclose(sol.q[-1], [1.0, -4.905], atol=1e-12)
    assert (sol.lam == np.zeros((11, 1))).all()
    assert sol.not_unique == (0,)


def test_multipliers_that_are_unique_are_left_alone():
    mixed = ga.System(
        np.eye(4),
        lambda t, q, v: jnp.array([0.0, -9.81, 1.0, 2.0]),
        lambda t, q: jnp.array([q[2], q[0] ** 2 + q[1] ** 2 - 1.0, 0.0 * q[0], q[2] + q[3], 2 * q[2]]),
    )
    sol = solve(mixed, SPAN, [1.0, 0, 0, 0], [0.0] * 4, h=0.01)
    assert sol.not_unique == (0, 2, 4)
    assert (sol.lam[:, 2] == 0).all()  # exerts no force
    assert_smallest(mixed, sol)


# --- other constraints half-way -------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["soi2", "index3"])
def test_constraints_change_where_those_kept_become_dependent(method):
    """Two of three bars in line with each other hold the plate no longer; another two do."""
    span = (0.0, 3.0)
    sol = solve(THREE_BARS, span, *ROUND, h=5e-3, method=method)
    once = ga.solve(NO_BARS, span, *ROUND, h=5e-3, method=method)
    assert np.ptp(np.unwrap(np.arctan2(sol.q[:, 1], sol.q[:, 0]))) > 4 * np.pi
    np.testing.assert_allclose(sol.t, once.t, atol=1e-14)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-5)  # each change is a new start of the method
    choices = {key[1] for key in THREE_BARS._programs if key[0] == "rows"}
    assert {(0, 1), (0, 2), (1, 2)} >= choices
    assert len(choices) > 1
    assert sol.residuals.position.max() < 1e-13
    assert (sol.stats.steps, len(sol.newton.iterations)) == (600, 600)
    assert sol.stats.newton_iterations == sol.newton.iterations.sum()
    assert_smallest(THREE_BARS, sol, slice(None, None, 25))


def test_the_number_of_changes_is_bounded(monkeypatch):
    monkeypatch.setattr(legs, "MOST_LEGS", 3)
    sol = solve(THREE_BARS, (0.0, 3.0), *ROUND, h=5e-3, throw=False)
    assert sol.status == codes.REDUNDANT
    assert "too often: 3 times" in sol.message
    assert len(sol.q) == len(sol.t) == sol.stats.steps + 1


@pytest.mark.slow
def test_a_change_with_listed_steps_and_projections():
    steps = np.concatenate([np.full(100, 4e-3), np.full(120, 5e-3)])
    options = {"h": steps, "project_velocity_at": [0.2, 0.4, 0.8]}
    sol = solve(THREE_BARS, SPAN, *ROUND, **options)
    once = ga.solve(NO_BARS, SPAN, *ROUND, **options)
    np.testing.assert_allclose(sol.t, once.t, atol=1e-15)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-5)


def test_a_change_in_the_first_step():
    """Large steps, listed or not: the run goes on from where it started, with other constraints."""
    q, v = [np.cos(0.1), np.sin(0.1), 0.0], [-6 * np.sin(0.1), 6 * np.cos(0.1), 0.0]
    once = ga.solve(NO_BARS, (0.0, 0.3), q, v, h=0.1)
    for h in (0.1, np.full(3, 0.1)):
        sol = solve(THREE_BARS, (0.0, 0.3), q, v, h=h)
        np.testing.assert_allclose(sol.q, once.q, atol=1e-12)
        assert sol.stats.steps == 3


def test_a_change_where_others_were_dependent_before():
    """Two bars in line at the start and all others in line after one large step: it changes after that."""
    sol = solve(THREE_BARS, (0.0, 0.3), *ROUND, h=0.1)
    np.testing.assert_allclose(sol.q, ga.solve(NO_BARS, (0.0, 0.3), *ROUND, h=0.1).q, atol=0.1)
    assert sol.residuals.position.max() < 1e-13


def test_error_control_and_what_cannot_be_done_together():
    sol = solve(THREE_BARS, SPAN, *ROUND, rtol=1e-6, atol=1e-8)
    fine = solve(THREE_BARS, SPAN, *ROUND, h=1e-3)
    np.testing.assert_allclose(sol.q[-1], fine.q[-1], atol=2e-3)
    assert sol.not_unique
    assert sol.residuals.position.max() < 1e-9
    assert solve(DOOR, SPAN, *CLOSED, rtol=1e-3, t_eval=[0.01]).success
    stopped = solve(THREE_BARS, SPAN, *ROUND, h=5e-3, t_eval=[SPAN[1]], throw=False)
    assert stopped.status == codes.REDUNDANT or stopped.success
    for name, value in (("events", lambda t, q, v: q[0]), ("save", 3), ("dense_output", True)):
        with pytest.raises(ValueError, match=f"and {name} would have to know during the run"):
            solve(DOOR, SPAN, *CLOSED, h=5e-3, **{name: value})


@pytest.mark.parametrize("h", [0.25, 0.1, 0.02])
def test_a_change_where_a_step_fails(h):
    """A driven plate comes to where its first two bars are in line in one step, or in many small ones."""
    driven = ga.System(
        THREE_BARS.mass,
        lambda t, q, v: jnp.array([0.0, -10.0, 0.5]),
        lambda t, q: jnp.append(THREE_BARS.holonomic(t, q), q[1] * jnp.cos(t) - q[0] * jnp.sin(t)),
    )
    c, s = np.cos(1.0), np.sin(1.0)
    sol = solve(driven, (-1.0, 1.0), [c, -s, 0.0], [s, c, 0.0], h=h)
    np.testing.assert_allclose(sol.q, np.stack([np.cos(sol.t), np.sin(sol.t), 0 * sol.t], axis=1), atol=1e-12)
    assert sol.not_unique == (0, 1, 2)  # that of the drive is
    assert_smallest(driven, sol)


def test_the_rank_of_all_constraints_falls():
    """A drive leads exactly to where bars are in line with each other and their points: no choice holds."""
    flat = plate([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    turn = lambda t: jnp.array([jnp.cos(jnp.pi * t / 2), jnp.sin(jnp.pi * t / 2)])
    drive = lambda t, q: jnp.append(flat.holonomic(t, q), q[:2] @ turn(t))
    driven = ga.System(flat.mass, lambda t, q, v: jnp.zeros(3), drive)
    sol = solve(driven, (0.0, 3.0), [0.0, 1.0, 0.0], [-np.pi / 2, 0.0, 0.0], h=1 / 64, throw=False)
    assert sol.status in (codes.SINGULAR, codes.NOT_CONVERGED)
    assert 0.9 < sol.t[-1] < 1.0
    assert "a kinematic singularity" in sol.message


def test_rows_at_a_singularity_are_refused():
    flat = plate([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    watch, angles = watched(flat, 3), np.array([0.5, 0.2, 0.0])
    _, verdict = watch.examine(*on_circle(angles), np.zeros((3, 2)), (0, 2))
    assert (verdict.good, verdict.status, verdict.kept) == (2, codes.SINGULAR, None)
    assert "falls from 2 to 1" in verdict.detail
    watch, angles = watched(THREE_BARS, 3), np.array([0.5, 0.4, 0.1, 0.0])
    _, verdict = watch.examine(*on_circle(angles), np.zeros((4, 2)), (0, 1))
    assert (verdict.good, verdict.status) == (2, codes.SUCCESS)
    assert verdict.kept in ((0, 2), (1, 2))


def watched(system: ga.System, m: int) -> ConstraintMonitor:
    full = Constraints(system, Dims(3, 3, m, 0), (), True)
    return ConstraintMonitor(full, full.look_once(0.0, [0.0, 1.0, 0.0], [0.0] * 3))


def on_circle(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    return np.arange(len(angles)) * 0.1, q, np.zeros_like(q)


# --- constraints that are not redundant -----------------------------------------------------------------


@pytest.mark.parametrize("method", ["soi2", "index3"])
@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (lambda t, q: q @ q - 1.0 + q[1] ** 3, "off by"),
        (lambda t, q: q @ q - 1.0 - t**2, "off by"),
        (lambda t, q: 1e-9 * (q @ q - 1.0 - 0.1 * t**2), "off by"),
        (lambda t, q: q[1] ** 2, "off by"),
        (lambda t, q: t**2, "off by"),
        (lambda t, q: (q @ q - 1.0) * jnp.sqrt(0.5 - t), "NaN"),
    ],
)
def test_a_constraint_that_follows_from_others_only_at_the_start(second, reason, method):
    system = ga.System(np.eye(2), lambda t, q, v: WEIGHT, lambda t, q: jnp.array([q @ q - 1.0, second(t, q)]))
    sol = solve(system, SPAN, *START, h=0.01, method=method, throw=False)
    assert sol.status == codes.REDUNDANT
    assert sol.t[-1] < 0.6
    assert f"stopped after t = {sol.t[-1]:.9g} (step {len(sol.t) - 1})" in sol.message
    assert "holonomic[1] followed from others at the start" in sol.message
    assert reason in sol.message
    assert sol.residuals.position.max() < 1e-5
    assert len(sol.newton.iterations) == sol.stats.steps == len(sol.t) - 1
    with pytest.raises(ga.IntegrationError, match="followed from others"):
        solve(system, SPAN, *START, h=0.01, method=method)


def test_a_constraint_that_the_motion_fulfils_by_chance():
    """Its gradient is zero at the start and independent later: a kinematic singularity, not redundancy."""
    system = ga.System(
        np.eye(3),
        lambda t, q, v: jnp.array([0.0, -9.81, 0.0]),
        lambda t, q: jnp.array([q[0] ** 2 + q[1] ** 2 - 1.0, q[2] * q[1]]),
    )
    sol = solve(system, SPAN, [1.0, 0.0, 0.0], [0.0] * 3, h=0.01, throw=False)
    assert sol.status == codes.REDUNDANT
    assert "gradient is no combination" in sol.message


def test_constraints_that_contradict_each_other():
    torn = ga.System(np.eye(1), lambda t, q, v: jnp.zeros(1), lambda t, q: jnp.array([q[0], q[0] - 1.0]))
    with pytest.raises(ga.InconsistentInitialValues, match=r"holonomic\[1\] = -1"):
        solve(torn, SPAN, [0.0], [0.0], h=0.1)
    with pytest.raises(ga.InconsistentInitialValues, match=r"holonomic\[1\] = -1"):
        solve(torn, SPAN, [0.0], [0.0], h=0.1, initial="assume")
    with pytest.raises(ValueError, match="found no q and v on all constraints"):
        solve(torn, SPAN, [0.0], [0.0], h=0.1, initial="project")


# --- the start ------------------------------------------------------------------------------------------


def test_rounded_initial_values():
    """Gradients of redundant constraints depend on each other no better than the values are rounded."""
    q, off = np.array([np.cos(0.7), np.sin(0.7), 0.0]), 1e-9 * np.array([1.0, -2.0, 1.0])
    sol, exact = (solve(THREE_BARS, SPAN, x, [0.0] * 3, h=0.01) for x in (q + off, q))
    assert sol.not_unique == (0, 1, 2)
    assert 1e-9 < sol.residuals.position[0] < 1e-8
    assert sol.residuals.position[1:].max() < 1e-13
    np.testing.assert_allclose(sol.q, exact.q, atol=1e-7)
    np.testing.assert_allclose(sol.lam, exact.lam, atol=1e-5)


def test_projection_onto_redundant_constraints():
    """Where q and v are off, no constraint depends on others; where they are moved to, some do."""
    q, v = [1.02, 0.01, -0.03], [0.1, 1.5, 0.2]
    once = ga.solve(NO_BARS, SPAN, q, v, h=0.01, initial="project")
    sol = solve(THREE_BARS, SPAN, q, v, h=0.01, initial="project")
    np.testing.assert_allclose(sol.q[0], once.q[0], atol=1e-13)
    np.testing.assert_allclose(sol.v[0], once.v[0], atol=1e-12)
    assert sol.residuals.velocity.max() < 1e-12
    assert sol.success


@pytest.mark.parametrize("initial", ["check", pytest.param("project", marks=pytest.mark.slow), "assume"])
def test_without_redundant_constraints_nothing_changes(initial):
    for system, start in ((ONE, START), (HUNG_ONCE, CLOSED), (NO_BARS, ROUND)):
        plain = ga.solve(system, SPAN, *start, h=0.02, initial=initial)
        sol = solve(system, SPAN, *start, h=0.02, initial=initial)
        for name in ("t", "q", "v", "a", "a_alpha", "lam"):
            assert (getattr(sol, name) == getattr(plain, name)).all(), name
        assert (sol.message, sol.not_unique) == (plain.message, ())


def test_programs_are_made_once():
    system = circle(1.0, 1.0)
    solve(system, SPAN, *START, h=0.01)
    made = len(system._programs)
    reduced = next(x for x in system._programs.values() if isinstance(x, ga.System))
    inner = len(reduced._programs)
    solve(system, SPAN, *START, h=0.005)
    assert (len(system._programs), len(reduced._programs)) == (made, inner)


@pytest.mark.parametrize("system", [TWO, pytest.param(THREE_BARS, marks=pytest.mark.slow)])
def test_native_code_and_xla_agree(system):
    start = START if system is TWO else ROUND
    native, xla = (solve(system, (0.0, 0.5), *start, h=0.01, backend=b) for b in ("native", "xla"))
    assert (native.backend, xla.backend) == ("native", "xla")
    for name in ("q", "v", "lam"):
        expected = getattr(xla, name)
        np.testing.assert_allclose(getattr(native, name), expected, atol=1e-9 * (1 + np.abs(expected).max()))
    assert native.not_unique == xla.not_unique


def test_arguments_and_a_mass_matrix_that_varies():
    def system(count):
        return ga.System(
            lambda t, q, p: jnp.diag(jnp.array([p["m"], p["m"] * (1 + q[0] ** 2)])),
            lambda t, q, v, p: jnp.array([0.0, -9.81]),
            lambda t, q, p: jnp.array([q @ q - p["length"] ** 2] * count),
        )

    args = ({"m": 2.0, "length": np.float64(1.0)},)
    once = ga.solve(system(1), SPAN, *START, h=0.01, args=args)
    sol = solve(system(3), SPAN, *START, h=0.01, args=args)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-13)
    np.testing.assert_allclose(3 * sol.lam[:, 1], once.lam[:, 0], atol=1e-11)


def test_save_and_load(tmp_path):
    sol = solve(DOOR, SPAN, *CLOSED, h=0.1)
    sol.save(tmp_path / "door.npz")
    again = ga.load(tmp_path / "door.npz")
    assert (again.not_unique, again.message) == (sol.not_unique, sol.message)
    assert (again.lam == sol.lam).all()


# --- refusals -------------------------------------------------------------------------------------------


def test_refusals():
    with pytest.raises(ValueError, match="raise, min_norm"):
        ga.solve(TWO, SPAN, *START, h=0.1, redundant="drop")
    with pytest.raises(ga.RedundantConstraints, match="redundant='min_norm'"):
        ga.solve(TWO, SPAN, *START, h=0.1)
    with pytest.raises(ValueError, match="takes no multipliers"):
        solve(TWO, SPAN, *START, h=0.1, multipliers=([1.0, 1.0], []))
    own = ga.System(
        np.eye(2),
        lambda t, q, v: WEIGHT,
        TWO.holonomic,
        reaction=lambda t, q, v, lam, psi: -2 * q * (lam[0] + lam[1]),
    )
    with pytest.raises(ValueError, match="reaction of your own"):
        solve(own, SPAN, *START, h=0.1)
    with pytest.raises(ValueError, match=r"10 constraints for 6 coordinates.*redundant='min_norm'"):
        ga.solve(DOOR, SPAN, *CLOSED, h=0.1)
    with pytest.raises(TypeError, match="JAX transform"):
        jax.jit(lambda q: solve(TWO, SPAN, q, jnp.zeros(2), h=0.1).q)(jnp.array([1.0, 0.0]))
    with pytest.raises(ValueError, match=r"ga\.solve for each member"):
        ga.solve_batch(TWO, SPAN, *START, h=0.1, redundant="min_norm")
    with pytest.raises(TypeError, match="unknown"):
        solve(TWO, SPAN, *START, h=0.1, unknown=1)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"mass": lambda t, q: jnp.eye(2) / t}, "mass.*NaN or infinite at the start"),
        ({"holonomic": lambda t, q: jnp.array([jnp.log(-q[0])] * 3)}, r"holonomic.*entries \[0, 1, 2\]"),
        ({"holonomic": lambda t, q: jnp.array([jnp.sqrt(q[1])] * 3)}, "derivative of a constraint"),
        ({"force": lambda t, q, v: jnp.full(2, jnp.nan)}, "force.*NaN or infinite at the start"),
    ],
)
def test_functions_that_are_not_finite_at_the_start(parts, message):
    good = {"mass": np.eye(2), "force": lambda t, q, v: WEIGHT, "holonomic": TWO.holonomic}
    with pytest.raises(ValueError, match=message):
        solve(ga.System(**{**good, **parts}), SPAN, *START, h=0.1)


# --- linear algebra -------------------------------------------------------------------------------------


def test_a_choice_of_rows_is_well_conditioned(rng):
    for _ in range(100):
        n, m, p = rng.integers(2, 12), rng.integers(0, 10), rng.integers(1, 10)
        of_rank = rng.integers(1, min(n, m + p) + 1)
        rows = rng.normal(size=(m + p, of_rank)) @ rng.normal(size=(of_rank, n))
        rows *= 10.0 ** rng.uniform(-6, 0, size=(m + p, 1))
        rows[rng.random(m + p) < 0.1] = 0.0
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(lengths > 0, lengths, 1.0)
        kept = rank.choose(rows, m, 1e-11)
        assert len(kept) == np.linalg.matrix_rank(rows, tol=1e-9)
        assert sum(i < m for i in kept) == (np.linalg.matrix_rank(rows[:m], tol=1e-9) if m else 0)
        relation = rank.relation(rows, kept)
        assert relation.rest.max(initial=0.0) < 1e-9
        assert rank.worst(relation.factors, kept, m) <= rank.WELL
        if kept:
            smallest = np.linalg.svd(rows[list(kept)])[1][-1]
            assert smallest / np.sqrt(len(kept)) * 0.999 < relation.smallest < smallest * 1.001


def test_multipliers_of_minimum_norm(rng):
    base, wanted = rng.normal(size=(5, 3, 7)), rng.normal(size=(5, 3))
    factors = rng.normal(size=(5, 4, 3)) * 10.0 ** rng.uniform(-6, 6, (1, 4, 1))
    x, y = rank.minimum_norm(factors, wanted)
    for i in range(5):
        rows = np.concatenate([base[i], factors[i] @ base[i]])
        both = np.concatenate([x[i], y[i]])
        np.testing.assert_allclose(rows.T @ both, base[i].T @ wanted[i], rtol=1e-9, atol=1e-9)
        expected = np.linalg.lstsq(rows.T, base[i].T @ wanted[i], rcond=1e-13)[0]
        np.testing.assert_allclose(both, expected, atol=1e-9 * np.abs(expected).max())

"""What may be wrong with large assemblies: at the start, half-way, and runs that need dense matrices."""

import copy
import functools

import jax.numpy as jnp
import numpy as np
import pytest
from examples import iftomm, suspension

import assemblies
import genalpha as ga
from assemblies import G, matrices
from genalpha.backends.sparse import front, memory
from genalpha.compiler.sparse_pattern import analysed
from genalpha.numerics import codes

UNIT, REST, ROW = np.eye(2), np.zeros(6), np.array([0.0, 0.0, 1.0, 0.0, 2.0, 0.0])


def points(force=None, mass=UNIT, holonomic=None, more=()):
    """Three points in a row at a distance of one, and further parts."""
    force = force or (lambda t, q, v: jnp.array([0.0, -G]))
    hold = holonomic or (lambda t, q: jnp.array([0.5 * (jnp.sum((q[1] - q[0]) ** 2) - 1.0)]))
    bars = ga.Part(holonomic=hold, nodes=assemblies.pairs(3), name="bars")
    heavy = ga.Part(mass=mass, force=force, nodes=np.arange(3), name="points")
    return ga.Assembly([heavy, bars, *more], space=ga.Euclidean(2), count=3)


@functools.cache
def ending():
    """Points on rods that fall from the side, whose force is no number after a time, args ((end,), ())."""
    force = lambda t, q, v, end: jnp.where(t > end, jnp.nan, jnp.array([q[1], -G]))
    parts = [
        ga.Part(mass=UNIT, force=force, nodes=np.arange(3), args=(np.inf,), name="points"),
        ga.Part(holonomic=points().parts[1].holonomic, nodes=assemblies.pairs(3), name="bars"),
    ]
    return ga.Assembly(parts, space=ga.Euclidean(2), count=3)


def start(assembly, q0=ROW, v0=REST, **options):
    with matrices("sparse"):
        return ga.solve(assembly, (0.0, 0.5), q0, v0, **{"h": 0.05, **options})


def test_broken_constraints_are_named_by_part_and_copy():
    with pytest.raises(ga.InconsistentInitialValues) as caught:
        start(points(), q0=ROW + 0.1 * np.eye(6)[4], v0=0.3 * np.eye(6)[0])
    text = str(caught.value)
    assert "holonomic[0] of copy 1 of the part 'bars' = 0.105" in text
    assert "d/dt holonomic[0] of copy 0 of the part 'bars' = -0.3" in text
    assert "initial='project'" in text


def test_broken_constraints_are_told_with_their_names():
    names = {"holonomic": ["upper", "lower"]}
    named = ga.Assembly(points().parts, space=ga.Euclidean(2), count=3, names=names)
    with pytest.raises(ga.InconsistentInitialValues, match=r"copy 1 of the part 'bars' \(lower\) = 0.105"):
        start(named, q0=ROW + 0.1 * np.eye(6)[4])
    assert copy.deepcopy(named).labels == named.labels


def test_initial_values_are_projected():
    moved = ROW + 0.01 * np.eye(6)[4]
    sol = start(ending(), q0=moved, initial="project")
    assert sol.residuals.position.max() < 1e-12
    assert np.abs(sol.q[0] - moved).max() < 0.02


def test_a_rod_given_twice_is_redundant_and_named():
    square = lambda t, q: jnp.array([jnp.sum((q[1] - q[0]) ** 2) - 1.0])
    again = ga.Part(holonomic=square, nodes=[[2, 1]], name="twin")
    with pytest.raises(ga.RedundantConstraints) as caught:
        start(points(more=[again]))
    assert "copy 1 of the part 'bars'" in str(caught.value)
    assert "copy 0 of the part 'twin'" in str(caught.value)
    assert "copy 0 of the part 'bars'" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"force": lambda t, q, v: jnp.where(q[0] > 1.5, jnp.nan, 1.0) * v},
            r"force of the part 'points' .*copies \[2\]",
        ),
        ({"mass": lambda t, q: jnp.eye(2) / q[0]}, r"mass of the part 'points' is NaN or .*copies \[0\]"),
        ({"holonomic": lambda t, q: jnp.log(q[0][:1])}, r"holonomic of the part 'bars' .* copies \[0\]"),
        ({"holonomic": lambda t, q: jnp.sqrt(q[0][1:])}, "derivative of a constraint is NaN or infinite"),
    ],
)
def test_functions_that_are_not_finite_at_the_start(changes, message):
    with pytest.raises(ValueError, match=message):
        start(points(**changes))


@pytest.mark.parametrize("mass", [np.diag([1.0, 0.0]), lambda t, q: jnp.diag(jnp.array([1.0, 0.0]))])
def test_a_massless_direction_is_singular(mass):
    with pytest.raises(ga.SingularSystem, match=r"not determined at the start.*massless"):
        start(points(mass=mass))


@pytest.mark.parametrize(
    "steps", [{"h": 0.05}, pytest.param({"h": None, "rtol": 1e-4}, marks=pytest.mark.slow)]
)
def test_a_run_that_fails_half_way_keeps_what_it_has(steps):
    late = ((0.27,), ())
    sol, whole = start(ending(), args=late, throw=False, **steps), start(ending(), **steps)
    assert not sol.success
    assert 0.2 < sol.t[-1] < 0.28
    if "rtol" not in steps:
        assert sol.status == codes.NOT_FINITE
        assert (sol.t[-1], sol.stats.steps) == (pytest.approx(0.25), 5)
    both = min(len(sol.t), len(whole.t))
    same = np.flatnonzero(sol.t[:both] == whole.t[:both])  # before the end comes near
    assert len(same) > 4
    for name in ("q", "v", "a", "a_alpha", "lam", "psi", "lam_method", "psi_method"):
        assert np.isfinite(getattr(sol, name)).all()
        np.testing.assert_array_equal(getattr(sol, name)[same], getattr(whole, name)[same], name)
    with pytest.raises(ga.IntegrationError) as caught:
        start(ending(), args=late, **steps)
    assert str(caught.value) == sol.message
    np.testing.assert_array_equal(caught.value.solution.q, sol.q)


def test_constraints_that_become_dependent_half_way():
    """A point on a circle is pulled along x = 2t until there is no such point."""
    guide = ga.Part(holonomic=lambda t, q: jnp.array([q @ q - 1.0, q[0] - 2 * t]), nodes=[0], name="guide")
    free = ga.Part(mass=np.eye(2), nodes=[0])
    sol = start(ga.Assembly([free, guide], ga.Euclidean(2), 1), [0.0, 1.0], [2.0, 0.0], h=0.02, throw=False)
    assert sol.status in (codes.NOT_CONVERGED, codes.SINGULAR)
    assert 0.4 < sol.t[-1] <= 0.5


def held_by(reaction):
    """Two points on the line y = 0, held by a reaction of their own."""
    line = ga.Part(holonomic=lambda t, q: q[1:], reaction=reaction, nodes=[0, 1], name="line")
    fall = ga.Part(mass=np.eye(2), force=lambda t, q, v: jnp.array([0.0, -4.0]), nodes=[0, 1])
    return ga.Assembly([fall, line], ga.Euclidean(2), 2)


def test_a_guess_decides_between_multipliers():
    squared = held_by(lambda t, q, v, lam, psi: jnp.array([0.0, 1.0]) * lam[0] ** 2)
    with matrices("sparse", begun=True):
        for guess in (None, (np.array([0.1, -0.3]), [])):
            signs = np.ones(2) if guess is None else np.sign(guess[0])
            state = ga.consistent(squared, 0.0, np.zeros(4), np.zeros(4), multipliers=guess)
            np.testing.assert_allclose(state.lam, 2 * signs, rtol=1e-12)
            sol = ga.solve(squared, (0.0, 0.1), np.zeros(4), np.zeros(4), h=0.05, multipliers=guess)
            np.testing.assert_allclose(sol.lam, np.broadcast_to(2 * signs, (3, 2)), rtol=1e-12)
            np.testing.assert_allclose(sol.reactions.total, np.tile([0.0, 4.0], (3, 2)), rtol=1e-12)


def test_a_reaction_that_does_not_act_against_its_constraint():
    nothing = held_by(lambda t, q, v, lam, psi: jnp.array([1.0, 0.0]) * lam[0])
    with matrices("sparse", begun=True), pytest.raises(ga.SingularSystem, match="reaction of your own"):
        ga.solve(nothing, (0.0, 0.1), np.zeros(4), np.zeros(4), h=0.05)


def test_runs_that_sparse_matrices_cannot_serve_use_dense_ones(monkeypatch):
    """However large the assembly is."""
    with matrices("sparse", begun=False):
        with pytest.warns(ga.FallbackWarning, match="part by part: the equations of cs"):
            ga.solve(points(), (0.0, 0.1), ROW, REST, h=0.05, method="cs")
        monkeypatch.setattr(front, "MOST_DENSE", 1)
        with pytest.raises(ValueError, match="part by part: the equations of cm"):
            ga.solve(points(), (0.0, 0.1), ROW, REST, h=0.05, method="cm")


def ladder(count, damping):
    """Two chains of rods with springs and dampers between them, hung at two points."""

    def spring(t, q, v, c):
        d, rate = q[1] - q[0], v[1] - v[0]
        length = jnp.sqrt(d @ d)
        f = (100.0 * (length - 0.8) + c * (rate @ d) / length) * d / length
        return jnp.stack([f, -f])

    rod = lambda d: jnp.array([0.5 * (d @ d - 1.0)])
    left, right = np.arange(count), count + np.arange(count)
    rods = np.concatenate([np.stack([x[:-1], x[1:]], axis=1) for x in (left, right)])
    parts = [
        ga.Part(mass=UNIT, force=lambda t, q, v: jnp.array([0.0, -G]), nodes=np.arange(2 * count)),
        ga.Part(
            holonomic=lambda t, q, y: rod(q - jnp.array([0.0, y])), nodes=[0, count], args=([0.0, -1.0],)
        ),
        ga.Part(holonomic=lambda t, q: rod(q[1] - q[0]), nodes=rods),
        ga.Part(force=spring, nodes=np.stack([left, right], axis=1), args=(float(damping),)),
    ]
    row = np.stack([1.0 + np.arange(count), np.zeros(count)], axis=1)
    q0 = np.concatenate([row, row - [0.0, 1.0]]).reshape(-1)
    return ga.Assembly(parts, space=ga.Euclidean(2), count=2 * count), q0


@pytest.mark.slow
@pytest.mark.parametrize("steps", [{"h": 0.01}, {"rtol": 1e-4}])
def test_stages_are_coupled_if_damping_is_strong(steps):
    """γh|∂f/∂v|/M is 55 with given steps, where the stages of SOI2 alone diverge."""
    found = []
    for kind in ("sparse", "dense"):
        assembly, q0 = ladder(6, 1e4)
        run = functools.partial(ga.solve, assembly, **steps)
        with matrices(kind):
            whole = run((0.0, 0.4), q0, np.zeros(24))
            half = run((0.0, 0.2), q0, np.zeros(24))
            rest = run((0.2, 0.4), state=half.state)
        found.append(whole)
        if "h" in steps:
            np.testing.assert_array_equal(rest.q[-1], whole.q[-1])
    sparse, dense = found
    assert sparse.success
    np.testing.assert_allclose(sparse.q[-1], dense.q[-1], atol=1e-10 if "h" in steps else 1e-5)
    assert sparse.stats.jacobians < 1.5 * dense.stats.jacobians


def test_stages_that_converge_one_after_the_other_are_not_coupled():
    """In the first steps of the car each correction is 0.14 of the one before, with every matrix."""
    car = suspension.car()
    car.assemble(redundant="drop")
    sol = car.solve((0.0, 0.01), h=1e-3)
    assert sol.stats.jacobians < 2 * sol.stats.steps
    loose = car.solve((0.0, 0.01), h=1e-3, newton=ga.Newton(policy="full", max_iterations=40))
    np.testing.assert_allclose(sol.a_alpha, loose.a_alpha, rtol=0, atol=1e-9 * np.abs(sol.a_alpha).max())


@pytest.fixture
def searches(monkeypatch):
    """Lists every search for pivots."""
    found = []
    monkeypatch.setattr(memory, "analysed", lambda *matrix: found.append(1) or analysed(*matrix))
    return found


def first_and_next(run, searches):
    """Two runs, of which only the first has to search for other pivots."""
    searches.clear()
    first = run()
    assert len(searches) > 1
    searches.clear()
    again = run()
    assert not searches
    return first, again


def test_what_a_run_had_to_find_is_known_to_the_next_one(searches):
    """Pivots that took the place of bad ones, and that stages must be coupled."""
    bars = iftomm.four_bars(20)  # pivots become bad where all bars are in line
    damped, q0 = ladder(4, 1e4)
    with matrices("sparse"):
        for run in (
            lambda: bars.solve((0.0, 1.5), h=1e-3, method="index3"),
            lambda: ga.solve(damped, (0.0, 0.1), q0, np.zeros(16), h=0.01),
        ):
            first, again = first_and_next(run, searches)
            np.testing.assert_allclose(again.q, first.q, rtol=0, atol=1e-9)
            assert again.stats.jacobians <= first.stats.jacobians
            np.testing.assert_array_equal(run().q, again.q)


def test_where_no_pivots_were_good_the_next_run_couples_its_stages_at_once(searches):
    """The bars pass a position in line, where the first matrix alone is nearly singular."""
    bars = iftomm.four_bars(40)
    run = lambda: bars.solve(
        (0.0, 0.75), h=1 / 1600, method="stabilized", rho_inf=0.8, newton=ga.Newton(tol=1e-8)
    )
    first, again = first_and_next(run, searches)
    np.testing.assert_allclose(again.q, first.q, rtol=0, atol=1e-6)


def test_pivots_that_another_thread_found_first(monkeypatch):
    """Columns of extrapolated runs begin at the same time in several threads."""
    analyse, lengths = memory.SparseMemory.analyse, []

    def slow(self):
        found = analyse(self)
        self.code.patterns[:] = found  # as if another run had just been as far
        lengths.append((len(found), self.code.patterns))
        return found

    monkeypatch.setattr(memory.SparseMemory, "analyse", slow)
    system = points()
    with matrices("sparse"):
        sol = ga.solve(system, (0.0, 0.1), REST * 0 + ROW, REST, h=0.05)
    assert sol.success
    assert lengths
    assert all(len(kept) == count for count, kept in lengths)

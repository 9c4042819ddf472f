"""Which quantities a batch keeps, and how much memory it takes for them."""

import tracemalloc

import jax
import numpy as np
import pytest

import genalpha as ga
import systems
from genalpha.backends.batch import pool
from genalpha.compiler import machine

GRAVITIES = np.linspace(5.0, 15.0, 21)
NAMES = [["q"], ["q", "v"], ["lam"], ["a", "residuals"], ["reactions", "newton", "extra"], ["a_alpha", "psi"]]


def run(span=(0.0, 0.4), gravities=GRAVITIES, **options):
    options = {"h": 0.01} | options
    return ga.solve_batch(systems.pulled(), span, [1.0, 0.0], [0.0, 0.0], args=(gravities,), **options)


def assert_kept(some, every, names):
    for name in ("q", "v", "a", "lam", "psi", "a_alpha", "residuals", "reactions", "extra", "newton"):
        if name not in names:
            assert getattr(some, name) is None, name
            continue
        pairs = zip(*(jax.tree.leaves(getattr(sol, name)) for sol in (some, every)), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    np.testing.assert_array_equal(some.t, every.t)
    np.testing.assert_array_equal(some.t_alpha, every.t_alpha)
    np.testing.assert_array_equal(some.stats.steps, every.stats.steps)


@pytest.mark.parametrize(
    ("rows", "names"), [*(("all", names) for names in NAMES), (7, ["a"]), ("final", ["q"])]
)
def test_chosen_quantities_are_those_of_the_whole_solution(rows, names):
    assert_kept(run(save=(rows, names)), run(save=rows), names)


@pytest.mark.parametrize("backend", ["native", pytest.param("xla", marks=pytest.mark.slow)])
def test_chosen_entries_are_those_of_the_whole_solution(backend):
    some = run(save=("all", {"q": [1], "lam": None}), backend=backend)
    every = run(save="all", backend=backend)
    np.testing.assert_array_equal(some.q, every.q[..., [1]])
    np.testing.assert_array_equal(some.lam, every.lam)
    assert some.v is None


@pytest.mark.parametrize("steps", [{"h": 0.01}, {"h": None, "rtol": 1e-4}])
def test_chosen_quantities_at_given_times(steps):
    times = np.linspace(0.05, 0.4, 4)
    for names in (["q", "lam"], ["v"]):
        assert_kept(run(t_eval=times, save=names, **steps), run(t_eval=times, **steps), names)


def test_chosen_quantities_of_members_that_fail_or_run_alone(tmp_path):
    ends = np.full(9, 9.0)
    ends[3] = 0.2
    go = lambda **more: ga.solve_batch(
        systems.ending(), (0.0, 0.4), [1.0, 0.0], [0.0, 0.0], h=0.01, args=(ends,), **more
    )
    some, every = go(save=("all", ["q", "lam"])), go(save="all")
    np.testing.assert_array_equal(go(save=("all", {"q": [0]})).q, every.q[..., [0]])
    np.testing.assert_array_equal(some.lam, every.lam)
    assert np.isnan(some.lam[3, -1]).all()
    assert np.isfinite(np.delete(some.lam, 3, axis=0)).all()
    assert some[3].q.shape == (21, 2)  # up to its end
    some.save(tmp_path / "some.npz")
    np.testing.assert_array_equal(ga.load(tmp_path / "some.npz").lam, some.lam)
    assert ga.load(tmp_path / "some.npz").v is None


@pytest.mark.slow
def test_chosen_quantities_by_xla():
    for names in (["q"], ["lam", "newton"]):
        some, every = run(save=("all", names), backend="xla"), run(save="all", backend="xla")
        for name in names:
            for ours, theirs in zip(
                jax.tree.leaves(getattr(some, name)), jax.tree.leaves(getattr(every, name)), strict=True
            ):
                np.testing.assert_allclose(ours, theirs, atol=1e-12)
        assert some.v is None


@pytest.mark.parametrize(
    ("save", "match"),
    [(("all", ["x"]), "quantity in save"), ((0, ["q"]), "save must be"), (("last", ["q"]), "save must be")],
)
def test_bad_requests(save, match):
    with pytest.raises(ValueError, match=match):
        run(save=save)


def test_a_pair_of_a_word_and_names_in_a_single_run():
    sol = ga.solve(
        systems.pulled(), (0.0, 0.1), [1.0, 0.0], [0.0, 0.0], h=0.01, args=(9.81,), save=("final", ["q"])
    )
    assert sol.q.shape == (1, 2)
    assert sol.v is None


# --- memory --------------------------------------------------------------------------------------------


def peak(function):
    """The most bytes that a call holds at a time, NumPy's arrays included, and its result."""
    tracemalloc.start()
    try:
        found = function()
        return tracemalloc.get_traced_memory()[1], found
    finally:
        tracemalloc.stop()


@pytest.fixture
def two_cores(monkeypatch):
    """Every core has a buffer of its own."""
    for module in (machine, pool):
        monkeypatch.setattr(module, "cores", lambda: 2)


MANY, LONG = np.linspace(5.0, 15.0, 1024), {"span": (0.0, 4.0), "h": 4e-3}


@pytest.mark.parametrize("name", ["q", "lam"])
def test_memory_is_taken_for_what_is_kept_only(name, two_cores):
    """The records have ten columns."""
    run(gravities=MANY, save=("all", [name]))  # compiled
    used, sol = peak(lambda: run(gravities=MANY, save=("all", [name]), **LONG))
    own = getattr(sol, name).nbytes
    assert own == 1024 * 1001 * 8 * (2 if name == "q" else 1)
    assert used < 1.3 * own + 2**23


@pytest.mark.slow
def test_accelerations_take_little_more_memory_than_their_own(two_cores):
    sol = run(gravities=MANY, save="all", **LONG)
    run(gravities=MANY, save="all").lam  # noqa: B018 - compiled
    used, _ = peak(lambda: sol.lam)
    assert used < 1.3 * (sol.a.nbytes + sol.lam.nbytes) + 2**23

"""Every method, and one defined by a user, in every kind of run, on one small system."""

import dataclasses
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.own_method import Baumgarte

import genalpha as ga
from genalpha import methods
from genalpha.convergence import slope

GRAVITY, END, H = 9.81, 0.4, 0.02

# A pendulum of length one, released at 45°: as a point in the plane, and as an angle.
POINT = ga.System(
    mass=np.eye(2),
    force=lambda t, q, v, g: jnp.array([0.0, -g]),
    holonomic=lambda t, q, g: jnp.array([q @ q - 1.0]) / 2,
)
ANGLE = ga.System(mass=np.eye(1), force=lambda t, q, v, g: -g * jnp.sin(q))
START = {POINT: ([np.sqrt(0.5), -np.sqrt(0.5)], [0.0, 0.0]), ANGLE: ([np.pi / 4], [0.0])}
METHODS = [*methods.names(), "baumgarte"]
every_method = pytest.mark.parametrize("name", METHODS)
# XLA takes seconds to compile. Short runs of the tests take one method, long ones all.
FAMILIES = ("soi2",)
by_xla = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAMILIES else pytest.mark.slow) for name in METHODS]
)


def system_of(name):
    return ANGLE if name == "generalized-alpha" else POINT


def method_of(name):
    return Baumgarte() if name == "baumgarte" else methods.by_name(name, 0.8)


def solve(name, *, h=H, g=GRAVITY, span=(0.0, END), state=None, **options):
    system = system_of(name)
    start = () if state is not None else START[system]
    return ga.solve(system, span, *start, h=h, method=method_of(name), args=(g,), state=state, **options)


def batch(name, gravities, **options):
    system = system_of(name)
    span = (0.0, END)
    return ga.solve_batch(
        system, span, *START[system], method=method_of(name), args=(gravities,), args_axes=(0,), **options
    )


def height(name, q):
    return q[..., 0] if system_of(name) is ANGLE else q[..., 1]


@pytest.fixture(scope="module")
def native():
    """One run of each method, which the other tests compare with."""
    return {name: solve(name) for name in METHODS}


@every_method
def test_native_code_takes_it_and_it_is_of_second_order(name, native):
    assert native[name].backend == "native"
    assert native[name].method == name
    true = solve(name, h=H / 32)
    errors = [np.linalg.norm(solve(name, h=h).q[-1] - true.q[-1]) for h in (H, H / 2, H / 4)]
    assert slope([4, 2, 1], errors) == pytest.approx(2.0, abs=0.15)


@by_xla
def test_xla_agrees(name, native):
    sol = solve(name, backend="xla")
    assert sol.backend == "xla"
    for field in ("t", "q", "v", "a", "a_alpha", "t_alpha", "lam"):
        one, two = getattr(sol, field), getattr(native[name], field)
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-8, err_msg=field)
    for field, values in sol.extra.items():
        np.testing.assert_allclose(values, native[name].extra[field], atol=1e-8, err_msg=field)


@every_method
def test_a_batch_is_single_runs(name, native):
    gravities = np.array([GRAVITY, 5.0, 3.0, 2.0, 1.0])
    many = batch(name, gravities, h=H)
    assert many.backend == "native"
    np.testing.assert_allclose(many.q[0, -1], native[name].q[-1], rtol=1e-10, atol=1e-10)
    for i, g in enumerate(gravities):
        np.testing.assert_allclose(many.q[i, -1], solve(name, g=g).q[-1], rtol=1e-10, atol=1e-10)


@every_method
def test_error_control(name):
    loose, tight = (solve(name, h=None, rtol=r, atol=r / 100) for r in (1e-4, 1e-6))
    assert loose.backend == tight.backend == "native"
    assert loose.stats.steps < tight.stats.steps < 50 * loose.stats.steps
    true = solve(name, h=H / 64).q[-1]
    errors = [np.abs(sol.q[-1] - true).max() for sol in (loose, tight)]
    assert errors[1] < errors[0] / 5
    assert errors[1] < 1e-4
    many = batch(name, np.array([GRAVITY, 2.0]), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(many.q[0, -1], loose.q[-1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["soi2", "projected"])
def test_an_event_stops_it(name, native):
    """Where the pendulum is lowest, the angle is zero."""
    lowest = ga.Event(lambda t, q, v, g: q[0], terminal=True)
    sol = solve(name, span=(0.0, 1.0), events=lowest)
    assert sol.backend == "native"
    assert sol.t_events[0][0] == pytest.approx(0.52171, abs=2e-3)
    assert abs(sol.q_events[0][0, 0]) < 1e-9
    steps = int(sol.t_events[0][0] / H)
    np.testing.assert_array_equal(sol.q[: min(steps, 20)], native[name].q[: min(steps, 20)])


@every_method
def test_stopped_and_continued_is_the_whole_run(name, native):
    for options in ({}, {"h": None, "rtol": 1e-4}):
        whole = solve(name, **options) if options else native[name]
        first = solve(name, callback=lambda s: True, callback_every=5, **options)
        state = pickle.loads(pickle.dumps(first.state))
        second = solve(name, state=state, **options)
        for field in ("q", "v", "a", "a_alpha", "lam"):
            parts = np.concatenate([getattr(first, field), getattr(second, field)[1:]])
            np.testing.assert_array_equal(parts, getattr(whole, field), field)


@by_xla
def test_gradients(name, native):
    number = lambda g, **options: jnp.sum(jnp.sin(solve(name, g=g, **options).q[-1]))
    value, gradient = jax.jit(jax.value_and_grad(number))(GRAVITY)
    assert float(value) == pytest.approx(float(jnp.sum(jnp.sin(native[name].q[-1]))), rel=1e-9)
    e = 1e-4
    expected = (number(GRAVITY + e) - number(GRAVITY - e)) / (2 * e)
    assert float(gradient) == pytest.approx(float(expected), rel=1e-6)


# --- a method of one's own -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Renamed(Baumgarte):
    """The same equations with other names: nothing outside of a method knows what its unknowns are called."""

    def unknowns(self, dims):
        return tuple(dataclasses.replace(u, name=f"my {u.name}") for u in super().unknowns(dims))

    def split(self, dims, scale, x):
        return {name.removeprefix("my "): u for name, u in super().split(dims, scale, x).items()}


def test_unknowns_may_have_any_name(native):
    for options in ({"h": H}, {"rtol": 1e-4}):
        one, two = (
            ga.solve(POINT, (0.0, END), *START[POINT], method=method, args=(GRAVITY,), **options)
            for method in (Baumgarte(), Renamed())
        )
        for field in ("q", "v", "a_alpha", "lam"):
            np.testing.assert_array_equal(getattr(one, field), getattr(two, field))
        assert one.stats.newton_iterations == two.stats.newton_iterations


def test_a_checkpoint_of_it(tmp_path, native):
    options = {"checkpoint": tmp_path / "run", "checkpoint_every": 0.0}
    solve("baumgarte", callback=lambda s: True, callback_every=7, **options)
    assert (tmp_path / "run").exists()
    np.testing.assert_array_equal(solve("baumgarte", **options).q[-1], native["baumgarte"].q[-1])


def test_what_a_method_lacks_is_said():
    class Nothing(ga.Method):
        name = "nothing"

    with pytest.raises(TypeError, match=r"finish.*residual.*unknowns.*weights"):
        Nothing()


def test_unknowns_that_do_not_fit_are_refused():
    def refused(match, *unknowns):
        method = type("Odd", (Baumgarte,), {"unknowns": lambda self, dims: unknowns})()
        with pytest.raises(ValueError, match=match):
            ga.solve(POINT, (0.0, END), *START[POINT], h=H, method=method, args=(GRAVITY,))

    refused("'lam' of baumgarte has size 2, but like='lam' needs size 1", ga.Unknown("lam", 2, like="lam"))
    refused("'x' of baumgarte has size 1, but start='a' needs size 2", ga.Unknown("x", 1, start="a"))
    refused("2 unknowns called 'a'", ga.Unknown("a", 2), ga.Unknown("a", 1))
    with pytest.raises(
        ValueError, match="like of the unknown 'a' must be None or one of a, lam, psi, got 'q'"
    ):
        ga.Unknown("a", 2, like="q")


def test_equations_that_do_not_fit_are_refused():
    def refused(match, **parts):
        method = type("Odd", (Baumgarte,), parts)()
        with pytest.raises((TypeError, ValueError), match=match):
            ga.solve(POINT, (0.0, END), *START[POINT], h=H, method=method, args=(GRAVITY,))

    short = lambda self, *inputs: Baumgarte.residual(self, *inputs)[:-1]
    refused(
        r"residual of baumgarte has shape \(2,\), but its unknowns \(a, lam\) have shape \(3,\)",
        residual=short,
    )
    other = lambda self, dims: (ga.Unknown("acceleration", dims.n), ga.Unknown("lam", dims.m))
    refused("no unknown called 'a'.*define reached", unknowns=other)


def test_a_field_that_cannot_be_hashed_is_refused():
    with pytest.raises(TypeError, match="cannot be hashed"):
        Baumgarte(rate=np.ones(2))


def test_rows_without_names_are_numbered():
    dims = methods.Dims(2, 2, 1, 0)
    assert Baumgarte().row_blocks(dims) == {"row": 3}
    for name in METHODS:
        method = method_of(name)
        dims = methods.Dims(1, 1, 0, 0) if name == "generalized-alpha" else methods.Dims(2, 2, 1, 0)
        assert sum(method.row_blocks(dims).values()) == sum(method.sizes(dims).values())


ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_passes_mypy_in_a_file_of_the_user(tmp_path):
    pytest.importorskip("mypy")
    shutil.copy(ROOT / "examples/own_method.py", tmp_path / "mine.py")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "mine.py"]
    paths = os.environ | {"MYPYPATH": str(ROOT / "src")}
    found = subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_the_page_shows_the_example():
    page, example = (
        (ROOT / path).read_text("utf-8") for path in ("docs/own_method.md", "examples/own_method.py")
    )
    (shown,) = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    assert shown.strip() in example

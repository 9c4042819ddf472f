"""Functions that run in Python: the motion, derivatives, exceptions, and how often they are called."""

import ctypes
import ctypes.util
import gc
import math
import pickle
import threading
import warnings
import weakref

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.numerics import differences

SPAN, Q0, V0 = (0.0, 0.5), [1.0, 0.0, 0.2], [0.0, 0.7, 0.0]


def functions(xp):
    """Mass, force and both kinds of constraints for three coordinates, written with NumPy or JAX."""

    def mass(t, q):
        return xp.diag(xp.array([2.0 + xp.cos(q[0]), 1.5, 1.0 + q[2] ** 2]))

    def force(t, q, v):
        return xp.array([-0.3 * v[0] * xp.sin(q[1]), -9.81 + 0.1 * xp.cos(t), -q[2]])

    def holonomic(t, q):
        return xp.array([xp.sqrt(q[0] ** 2 + q[1] ** 2) - 1.0])

    def nonholonomic(t, q, v):
        return xp.array([v[2] - xp.sin(q[0]) * v[0]])

    return mass, force, holonomic, nonholonomic


def force_slopes(t, q, v):
    by_q = np.array([[0.0, -0.3 * v[0] * np.cos(q[1]), 0.0], [0.0] * 3, [0.0, 0.0, -1.0]])
    by_v = np.zeros((3, 3))
    by_v[0, 0] = -0.3 * np.sin(q[1])
    return np.array([0.0, -0.1 * np.sin(t), 0.0]), by_q, by_v


def holonomic_slopes(t, q):
    return 0, np.array([[q[0], q[1], 0.0]]) / np.hypot(q[0], q[1])


def nonholonomic_slopes(t, q, v):
    return 0, np.array([[-np.cos(q[0]) * v[0], 0.0, 0.0]]), np.array([[-np.sin(q[0]), 0.0, 1.0]])


@pytest.fixture(scope="module")
def compiled():
    return ga.System(*functions(jnp))


@pytest.fixture(scope="module")
def plain():
    return ga.System(*functions(np))


def apart(a, b):
    return max(np.abs(a.q - b.q).max(), np.abs(a.v - b.v).max())


def run(system, **options):
    return ga.solve(system, SPAN, Q0, V0, **({"h": 0.02} | options))


def test_every_function_in_numpy(compiled, plain):
    """By differences. λ contains second derivatives of constraints, so differences of differences."""
    with pytest.warns(ga.HostWarning) as told:
        found = run(plain)
    assert [str(w.message).partition(":")[0] for w in told] == [
        "mass",
        "force",
        "holonomic",
        "nonholonomic",
    ]
    right = run(compiled)
    assert apart(found, right) < 1e-11
    assert np.abs(found.lam - right.lam).max() < 2e-9
    assert found.stats.fallback is None


def test_given_derivatives(compiled):
    _, force, holonomic, nonholonomic = functions(np)
    system = ga.System(
        functions(jnp)[0],
        ga.host(force, 3, force_slopes),
        ga.host(holonomic, 1, holonomic_slopes),
        ga.host(nonholonomic, (1,), nonholonomic_slopes),
    )
    found, right = run(system), run(compiled)
    assert apart(found, right) < 1e-12
    assert np.abs(found.lam - right.lam).max() < 1e-10
    assert found.stats.jacobians == right.stats.jacobians


def test_order_two(plain):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ga.HostWarning)
        coarse, middle, fine = (run(plain, h=h).v[-1] for h in (0.05, 0.025, 0.0125))
    ratio = np.abs(coarse - middle).max() / np.abs(middle - fine).max()
    assert math.log2(ratio) == pytest.approx(2.0, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["soi2", "hht-soi2", "hht-i3", "stabilized", "projected"])
def test_methods(method, compiled, plain):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ga.HostWarning)
        assert apart(run(plain, method=method), run(compiled, method=method)) < 1e-10


# --- one oscillator, whose force is written with NumPy ---------------------------------------------------


class Spring:
    """A force with a law for the deflection, which counts its calls."""

    def __init__(self, law=math.sin):
        self.law, self.calls = law, 0

    def __call__(self, t, q, v):
        self.calls += 1
        return np.array([-self.law(q[0]), -4.0 * q[1]])


def oscillator(law=math.sin, **options):
    return ga.System(np.eye(2), ga.host(Spring(law), 2, **options))


def swing(system, **options):
    return ga.solve(system, (0.0, 1.0), [1.0, 0.5], [0.0, 0.0], **({"h": 0.02} | options))


@pytest.fixture(scope="module")
def exact():
    return ga.System(np.eye(2), lambda t, q, v: -jnp.array([jnp.sin(q[0]), 4.0 * q[1]]))


def test_calls_are_shared():
    """A residual is one call, whatever the number of forces. A matrix needs two calls for each column."""
    system = oscillator()
    swing(system)
    system.force.function.calls = 0
    stats = swing(system).stats
    start = 40  # the start needs first derivatives with respect to time, positions and velocities
    assert system.force.function.calls <= stats.newton_iterations + stats.steps + 8 * stats.jacobians + start


def test_code_does_not_contain_the_function(exact):
    """Systems of the same shapes have the same code, from the cache, but each calls its own function."""
    right = swing(exact)
    first, second = swing(oscillator()), swing(oscillator(lambda x: 2 * math.sin(x)))
    assert apart(first, right) < 1e-13
    assert np.abs(second.q[-1, 0] - first.q[-1, 0]) > 0.1


def test_tables_and_libraries(exact):
    x = np.linspace(-2.0, 2.0, 40001)
    table = np.sin(x)
    found = swing(oscillator(lambda s: np.interp(s, x, table)))
    assert apart(found, swing(exact)) < 1e-8  # linear interpolation: (1e-4)² / 8
    rows = {k: math.sin(k / 1000) for k in range(-2000, 2001)}
    assert apart(swing(oscillator(lambda s: rows[round(1000 * s)])), swing(exact)) < 1e-3
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    libm.sin.restype, libm.sin.argtypes = ctypes.c_double, [ctypes.c_double]
    assert apart(swing(oscillator(libm.sin)), swing(exact)) < 1e-13
    system = ga.System(np.eye(2), lambda t, q, v: np.array([-libm.sin(q[0]), -4.0 * q[1]]))
    with pytest.warns(ga.HostWarning, match=r"libm.sin\(q\[0\]\)"):
        found = swing(system)
    assert apart(found, swing(exact)) < 1e-13


def test_pandas(exact):
    pandas = pytest.importorskip("pandas")
    x = np.linspace(-2.0, 2.0, 4001)
    series = pandas.Series(np.sin(x), index=x)
    law = lambda s: float(np.interp(s, series.index, series.values))
    assert apart(swing(oscillator(law)), swing(exact)) < 1e-6


def test_mixed_with_compiled_code(exact):
    sine = ga.host(np.sin, ())
    system = ga.System(np.eye(2), lambda t, q, v: -jnp.array([sine(q[0]), 4.0 * q[1]]))
    assert apart(swing(system), swing(exact)) < 1e-13
    assert float(sine(0.5)) == math.sin(0.5)


def test_arguments_of_every_kind():
    """Trees, integers, and derivatives for some of the arguments."""

    def law(x, numbers, power):
        assert isinstance(power, np.integer)
        return numbers["k"] * x**power

    slopes = lambda x, numbers, power: (numbers["k"] * power * x ** (power - 1),)
    spring = ga.host(law, 2, lambda *a: (np.diag(slopes(*a)[0]),))
    force = lambda t, q, v, numbers, power: -spring(q, numbers, power)
    right = ga.System(np.eye(2), lambda t, q, v, numbers, power: -numbers["k"] * q**power)
    args = ({"k": np.array([1.0, 2.0])}, 3)
    assert apart(swing(ga.System(np.eye(2), force), args=args), swing(right, args=args)) < 1e-12


def test_other_sizes_and_functions_that_change_their_arguments():
    def force(t, q, v):
        np.negative(q, out=q)
        v *= 0.0
        return np.sin(q)

    system = ga.System(lambda t, q: jnp.eye(len(q)), force)
    right = ga.System(lambda t, q: jnp.eye(len(q)), lambda t, q, v: -jnp.sin(q))
    for q0 in ([1.0, 0.5], [0.3]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ga.HostWarning)
            both = [ga.solve(s, (0.0, 0.2), q0, np.zeros(len(q0)), h=0.02) for s in (system, right)]
        assert apart(*both) < 1e-13


# --- what can be wrong -----------------------------------------------------------------------------------


def test_wrong_derivative():
    slopes = lambda t, q, v: (0, np.array([[-math.cos(q[0]), 0.0], [0.25, -4.0]]), None)
    system = ga.System(np.eye(2), ga.host(Spring(), 2, slopes))
    with pytest.raises(ValueError, match=r"argument 1 is wrong in row 1, column 0: it is 0.25.*differences"):
        swing(system)
    flat = ga.host(Spring(), 2, lambda t, q, v: (0, np.zeros(2)), name="spring")
    with pytest.raises(
        ValueError, match=r"spring with respect to argument 1 must have shape \(2, 2\), got \(2,\)"
    ):
        swing(ga.System(np.eye(2), flat))
    for slope in (-1.0, 0.0, 1.0):  # all are right at a kink
        assert differences.wrong_entry(slope * np.eye(2), np.abs, np.zeros(2), 1.0) is None
    assert differences.wrong_entry(1.1 * np.eye(2), np.abs, np.zeros(2), 1.0).at == (0, 0)


@pytest.mark.parametrize(
    "options", [{"h": 0.02}, pytest.param({"h": None, "rtol": 1e-6}, marks=pytest.mark.slow)]
)
def test_exceptions(options):
    def law(x):
        if x < 0.8:
            raise LookupError("outside of the table")
        return math.sin(x)

    with pytest.raises(LookupError, match="outside of the table") as caught:
        swing(oscillator(law, name="spring"), **options)
    assert any("This happened in spring, which runs in Python" in note for note in caught.value.__notes__)
    rows = caught.value.solution
    assert len(rows.t) > 5
    assert 0.8 <= rows.q[-1, 0] < 0.83
    right = swing(oscillator(name="spring"), **options)
    assert np.abs(rows.q[:5] - right.q[:5]).max() < 1e-13


def test_not_a_number():
    with pytest.raises(ga.IntegrationError, match=r"NaN or infinite.*force\[0\] is nan"):
        swing(oscillator(lambda x: math.sin(x) if x > 0.8 else math.nan))


def test_bad_input():
    with pytest.raises(TypeError, match=r"function of ga.host must be callable, got int"):
        ga.host(3, 1)
    with pytest.raises(TypeError, match=r"shape of ga.host.*got 'two'"):
        ga.host(np.sin, "two")
    with pytest.raises(ValueError, match=r"scale of ga.host must be a positive number, got 0"):
        ga.host(np.sin, 1, scale=0)
    with pytest.raises(ValueError, match=r"sin must return shape \(3,\), got \(2,\)"):
        ga.host(np.sin, 3)(np.zeros(2))
    with pytest.raises(
        ValueError, match=r"pattern of sin for argument 0 must have shape \(2, 2\), got \(2,\)"
    ):
        ga.host(np.sin, 2, pattern=(np.ones(2),))(np.zeros(2))


def test_copies():
    twice = pickle.loads(pickle.dumps(ga.host(np.sin, 2, scale=0.5)))
    assert twice(np.ones(2)).tolist() == np.sin(np.ones(2)).tolist()
    assert twice.scale == 0.5


# --- other runs --------------------------------------------------------------------------------------------


def test_error_control_and_events(exact):
    event = ga.Event(lambda t, q, v: q[1] - 0.1, terminal=True)
    found, right = (swing(s, h=None, rtol=1e-8, events=event) for s in (oscillator(), exact))
    assert found.t_events[0] == pytest.approx(right.t_events[0], abs=1e-10)
    assert right.t_events[0] == pytest.approx(math.acos(0.2) / 2, abs=1e-6)


def test_batch(exact):
    q0 = np.array([[1.0, 0.5], [0.5, 0.2], [-1.0, 0.1]])
    found, right = (ga.solve_batch(s, (0.0, 1.0), q0, np.zeros(2), h=0.02) for s in (oscillator(), exact))
    assert apart(found, right) < 1e-13
    with pytest.raises((ValueError, ImportError), match="cuda"):
        ga.solve_batch(oscillator(), (0.0, 1.0), q0, np.zeros(2), h=0.02, backend="cuda")


def test_equilibrium():
    """Functions of rows run without lanes."""
    law = ga.host(lambda x: 2.0 * np.sin(x), ())
    system = ga.System(np.eye(1), lambda t, q, v: jnp.array([1.0 - law(q[0])]))
    assert ga.equilibrium(system, [0.3]).q == pytest.approx([math.pi / 6], abs=1e-10)


def test_systems_are_freed(new_garbage):
    system = ga.System(np.eye(1), lambda t, q, v: np.sin(q))
    left = weakref.ref(system)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ga.HostWarning)
        system.applied(0.0, np.ones(1), np.ones(1))
    del system
    gc.collect()
    assert left() is None


def test_threads(exact):
    """Machine code takes the lock of the interpreter for a call, in any thread."""
    system, right, found = oscillator(), swing(exact), []
    swing(system)
    threads = [threading.Thread(target=lambda: found.append(swing(system))) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [apart(one, right) < 1e-13 for one in found] == [True] * 4


@pytest.mark.slow
def test_xla(exact):
    assert apart(swing(oscillator(), backend="xla"), swing(exact)) < 1e-13
    with pytest.raises(ZeroDivisionError) as caught:
        swing(oscillator(lambda x: 1 / 0 if x < 0.8 else math.sin(x)), backend="xla")
    assert len(caught.value.solution.t) > 5


# --- differences -------------------------------------------------------------------------------------------


def test_pattern():
    """A chain has three groups of columns, so a matrix needs six calls and not forty."""
    count, calls = 20, []

    def chain(q):
        calls.append(q)
        return np.diff(np.sin(q), prepend=0.0, append=0.0)[1:] - q

    pattern = np.eye(count, dtype=bool) | np.eye(count, k=1, dtype=bool)
    q = np.linspace(0.0, 1.0, count)
    wide = np.eye(count, k=1) - np.eye(count)
    right = wide * np.cos(q) - np.eye(count)
    law = ga.host(chain, count, pattern=(pattern,))
    call = law(q) is not None and next(iter(law._calls.values()))
    calls.clear()
    assert call.partial(0).of_arrays(q) == pytest.approx(right, abs=1e-9)
    assert len(calls) == 4
    assert call.partial(0).zeros.sum() == count**2 - (2 * count - 1)
    second = call.partial(0).partial(0).of_arrays(q)
    expected = np.zeros((count,) * 3)
    expected[np.arange(count), np.arange(count), np.arange(count)] = np.sin(q)
    expected[np.arange(count - 1), np.arange(1, count), np.arange(1, count)] = -np.sin(q[1:])
    assert second == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("smooth", [False, True])
def test_accuracy_of_differences(smooth):
    law = ga.host(lambda x: np.exp(x) * np.array([1.0, 2.0]), 2, smooth=smooth)
    law(0.7)
    call = next(iter(law._calls.values()))
    for order, error in enumerate((1e-12 if smooth else 1e-9, 1e-8, 1e-6), 1):
        call = call.partial(0)
        assert call.of_arrays(0.7) == pytest.approx(np.exp(0.7) * np.array([1.0, 2.0]), rel=error), order
    line = ga.host(lambda x: 3.0 * x, 1)
    line(np.ones(1))
    slope = next(iter(line._calls.values())).partial(0).of_arrays(np.array([1e3]))
    assert slope == pytest.approx(3.0, rel=1e-10)

"""Values that functions read from outside may change between runs: the programs are made again."""

import collections
import functools
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.mechanics.reads import Reads

k, table, settings = 1.0, np.array([1.0]), {"k": [1.0]}


class Store:
    k = 1.0


class Model:
    k = 1.0

    def force(self, t, q, v):
        return -self.k * q

    def __call__(self, t, q, v):
        return -self.k * q


def stiffness():
    return k


def by_closure():
    k = 1.0

    def change(value):
        nonlocal k
        k = value

    return lambda t, q, v: -k * q, change


def by_global():
    return lambda t, q, v: -k * q, lambda value: globals().__setitem__("k", value)


def by_global_of_a_helper():
    return lambda t, q, v: -stiffness() * q, lambda value: globals().__setitem__("k", value)


def by_array():
    return lambda t, q, v: -table[0] * q, lambda value: table.__setitem__(0, value)


def by_dict():
    return lambda t, q, v: -settings["k"][0] * q, lambda value: settings["k"].__setitem__(0, value)


def by_jax_array():
    held = [jnp.array(1.0)]
    return lambda t, q, v: -held[0] * q, lambda value: held.__setitem__(0, jnp.array(value))


def by_class():
    return lambda t, q, v: -Store.k * q, lambda value: setattr(Store, "k", value)


def by_method():
    model = Model()
    return model.force, lambda value: setattr(model, "k", value)


def by_callable():
    model = Model()
    return model, lambda value: setattr(model, "k", value)


def by_partial():
    model = Model()
    force = functools.partial(lambda m, t, q, v: -m.k * q, model)
    return force, lambda value: setattr(model, "k", value)


def by_module():
    module = types.ModuleType("parameters")
    exec("k = 1.0\ndef stiffness():\n    return k", vars(module))
    force = lambda t, q, v: -0.5 * (module.k + module.stiffness()) * q
    return force, lambda value: setattr(module, "k", value)


def by_class_of_a_module():
    module = types.ModuleType("parameters")
    module.Store = type("Store", (), {"k": 1.0})
    return lambda t, q, v: -module.Store.k * q, lambda value: setattr(module.Store, "k", value)


def by_getattr():
    model = Model()
    return lambda t, q, v: -getattr(model, "k") * q, lambda value: setattr(model, "k", value)  # noqa: B009


def by_property():
    class Hidden:
        def __init__(self):
            self._k = 1.0

        @property
        def k(self):
            return self.inner()

        def inner(self):
            return self._k

    model = Hidden()
    return lambda t, q, v: -model.k * q, lambda value: setattr(model, "_k", value)


def by_operators():
    class Law:
        def __init__(self):
            self.k = 1.0

        def __getitem__(self, i):
            return self.k

        def __matmul__(self, q):
            return self[0] * q

    law = Law()
    return lambda t, q, v: -(law @ q), lambda value: setattr(law, "k", value)


def by_class_method():
    class Parameters:
        k = 1.0

        @classmethod
        def get(cls):
            return cls.inner()

        @staticmethod
        def inner():
            return Parameters.k

    return lambda t, q, v: -Parameters.get() * q, lambda value: setattr(Parameters, "k", value)


def by_nested_calls():
    held = {"a": [{"b": {"c": [1.0]}}]}
    last = lambda: held["a"][0]["b"]["c"][0]
    one = lambda: last()
    two = lambda: one()
    three = lambda: two()
    return lambda t, q, v: -three() * q, lambda value: held["a"][0]["b"]["c"].__setitem__(0, value)


def by_large_array():
    held = np.ones(10_000)
    return lambda t, q, v: -held[-1] * q, lambda value: held.__setitem__(-1, value)


def by_queue_of_an_imported_module():
    def force(t, q, v):
        import read_by_a_test

        return -read_by_a_test.last[0] * q

    module = sys.modules["read_by_a_test"] = types.ModuleType("read_by_a_test")
    module.last = collections.deque([1.0])
    return force, lambda value: module.last.__setitem__(0, value)


def by_objects_in_a_list():
    held = Store()
    held.all = {"models": [Model(), Model()]}
    return lambda t, q, v: -held.all["models"][1].k * q, lambda x: setattr(held.all["models"][1], "k", x)


WAYS = [by_closure, by_global, by_global_of_a_helper, by_array, by_dict, by_jax_array, by_class, by_method]
WAYS += [by_callable, by_partial, by_module, by_class_of_a_module, by_getattr, by_property, by_operators]
WAYS += [
    by_objects_in_a_list,
    by_class_method,
    by_nested_calls,
    by_large_array,
    by_queue_of_an_imported_module,
]


@pytest.mark.parametrize("way", WAYS)
def test_a_changed_value_counts(way):
    force, change = way()
    change(1.0)
    system = ga.System(jnp.eye(1), force)
    run = lambda: ga.solve(system, (0.0, 1.0), [1.0], [0.0], h=0.01).q[-1, 0]
    for value in (1.0, 4.0, 9.0):
        change(value)
        assert run() == pytest.approx(np.cos(np.sqrt(value)), abs=1e-3), value
    known = list(system._programs)
    run()
    assert list(system._programs) == known  # unchanged values change nothing
    change(1.0)


def test_batches_events_and_other_calls():
    where, pull = [0.5], [1.0]
    system = ga.System(jnp.eye(1), lambda t, q, v: -pull[0] * q)
    event = ga.Event(lambda t, q, v: q[0] - where[0])
    run = lambda: ga.solve(system, (0.0, 1.5), [1.0], [0.0], h=0.01, events=event).t_events[0][0]
    assert run() == pytest.approx(np.arccos(0.5), abs=1e-4)
    where[0] = 0.25
    assert run() == pytest.approx(np.arccos(0.25), abs=1e-4)
    pull[0] = 4.0
    assert ga.consistent(system, 0.0, [1.0], [0.0]).a[0] == -4.0
    many = ga.solve_batch(system, (0.0, 1.0), np.array([[1.0], [2.0]]), [0.0], h=0.01)
    np.testing.assert_allclose(many.q[:, -1, 0], np.cos(2.0) * np.array([1.0, 2.0]), atol=1e-3)


def test_reads_that_are_not_followed_are_harmless():
    class Odd:
        __slots__ = ("k",)

        @property
        def broken(self):
            raise RuntimeError("must not be called")

    odd, big = Odd(), np.zeros(10_000)
    odd.k = 1.0
    later = lambda: unset  # noqa: F821
    force = lambda t, q, v: -odd.k * q + big[0] + (0.0 if q.ndim else odd.broken + later())
    reads = Reads([force])
    assert not reads.changed()
    odd.k = 2.0
    assert reads.changed()


def test_what_a_function_changes_itself_does_not_count():
    """Such as a counter of its calls."""
    calls, pull = [], [1.0]

    def force(t, q, v):
        calls.append(t)
        return -pull[0] * q

    system = ga.System(jnp.eye(1), force)
    run = lambda: ga.solve(system, (0.0, 1.0), [1.0], [0.0], h=0.01).q[-1, 0]
    run()
    count = len(calls)
    run()
    assert len(calls) == count
    pull[0] = 4.0
    assert run() == pytest.approx(np.cos(2.0), abs=1e-3)


def by_an_implementation_of_singledispatch():
    @functools.singledispatch
    def pull(x):
        return x

    @pull.register(jax.core.Tracer)
    def _(x):
        return k * x

    return lambda t, q, v: -pull(q), lambda value: globals().__setitem__("k", value)


def by_the_rule_of_a_derivative():
    @jax.custom_jvp
    def pull(x):
        return x

    @pull.defjvp
    def _(x, dx):
        return x[0], k * dx[0]

    return lambda t, q, v: -jax.jvp(pull, (q,), (q,))[1], lambda value: globals().__setitem__("k", value)


def by_the_rules_of_derivatives():
    @jax.custom_jvp
    def pull(x):
        return x

    pull.defjvps(lambda dx, answer, x: k * dx)
    return lambda t, q, v: -jax.jvp(pull, (q,), (q,))[1], lambda value: globals().__setitem__("k", value)


def by_the_rule_of_a_transposed_derivative():
    @jax.custom_vjp
    def pull(x):
        return x

    pull.defvjp(lambda x: (x, None), lambda _, dy: (k * dy,))
    return lambda t, q, v: -jax.vjp(pull, q)[1](q)[0], lambda value: globals().__setitem__("k", value)


RULES = (
    by_an_implementation_of_singledispatch,
    by_the_rule_of_a_derivative,
    by_the_rules_of_derivatives,
    by_the_rule_of_a_transposed_derivative,
)


@pytest.mark.parametrize("way", RULES, ids=lambda way: way.__name__)
def test_functions_that_jax_and_functools_keep(way):
    """One step of a spring with k = 1, and with k = 4."""
    force, change = way()
    try:
        change(1.0)
        system = ga.System(np.eye(1), force)
        ends = [ga.solve(system, (0.0, 1.0), [1.0], [0.0], h=1e-2).q[-1, 0]]
        change(4.0)
        ends.append(ga.solve(system, (0.0, 1.0), [1.0], [0.0], h=1e-2).q[-1, 0])
    finally:
        change(1.0)
    np.testing.assert_allclose(ends, [np.cos(1.0), np.cos(2.0)], atol=1e-3)

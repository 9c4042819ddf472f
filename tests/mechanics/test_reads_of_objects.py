"""Values that functions read from objects and containers: which changes count, and which do not."""

import dataclasses
import functools
import operator
import sys
import time
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.mechanics.reads import Reads


class Law:
    """A law with a stiffness, which helpers read."""

    def __init__(self, k=1.0):
        self.k = k


@dataclasses.dataclass
class Parameters:
    k: float = 1.0


def pull_of(law):
    return law.k


def by_helper():
    law = Law()
    return lambda q: pull_of(law) * q, lambda: setattr(law, "k", 2.0)


def by_part_of_an_object_and_helper():
    class Study:
        def __init__(self):
            self.law = Law()

        def pull(self, q):
            return pull_of(self.law) * q

    study = Study()
    return study.pull, lambda: setattr(study.law, "k", 2.0)


def by_object_that_a_helper_returns():
    law = Law()
    get = lambda: law
    return lambda q: get().k * q, lambda: setattr(law, "k", 2.0)


def by_function_of_another_package():
    parameters = Parameters()
    pull = lambda q: dataclasses.astuple(parameters)[0] * q
    return pull, lambda: setattr(parameters, "k", 2.0)


def by_getter():
    law, get = Law(), operator.attrgetter("k")
    return lambda q: get(law) * q, lambda: setattr(law, "k", 2.0)


def by_method_of_a_dict():
    table = {"k": 1.0}
    get = table.get
    return lambda q: get("k") * q, lambda: table.update(k=2.0)


def by_vars():
    parameters = Parameters()
    return lambda q: vars(parameters)["k"] * q, lambda: setattr(parameters, "k", 2.0)


def by_computed_name():
    law, names = Law(), ["k"]
    return lambda q: getattr(law, names[0]) * q, lambda: setattr(law, "k", 2.0)


def by_slots_and_vars_of_many():
    @dataclasses.dataclass(slots=True)
    class Small:
        stiffness: float = 1.0

    small, read = Small(), dataclasses.asdict
    return lambda q: read(small)["stiff" + "ness"] * q, lambda: setattr(small, "stiffness", 2.0)


def by_super():
    class Base:
        def pull(self, q):
            return self.k * q

    class Damped(Base):
        k = 1.0

        def pull(self, q):
            return super().pull(q)

    damped = Damped()
    return damped.pull, lambda: setattr(damped, "k", 2.0)


def by_cached_property():
    class Spring:
        def __init__(self):
            self.material = 1.0

        @functools.cached_property
        def k(self):
            return self.material

    spring = Spring()
    return lambda q: spring.k * q, lambda: setattr(spring, "material", 2.0)


def by_stored_cached_property():
    class Spring:
        @functools.cached_property
        def k(self):
            return 1.0

    spring = Spring()
    assert spring.k == 1.0
    return lambda q: spring.k * q, lambda: vars(spring).update(k=2.0)


def by_descriptor():
    class Positive:
        def __get__(self, owner, cls):
            return abs(owner.inner)

    class Spring:
        k = Positive()

        def __init__(self):
            self.inner = 1.0

    spring = Spring()
    return lambda q: spring.k * q, lambda: setattr(spring, "inner", 2.0)


def by_class_that_is_made_in_the_function():
    class Doubled:
        def __init__(self, law):
            self.pull = 2 * law.k

    law = Law()
    return lambda q: Doubled(law).pull * q, lambda: setattr(law, "k", 2.0)


def by_replaced_method():
    law = Law()
    law.pull = lambda q: q
    return lambda q: law.pull(q), lambda: setattr(law, "pull", lambda q: 2 * q)


def by_transform_of_a_function():
    law = Law()
    slope = jax.grad(lambda x: law.k * x**2)
    return lambda q: slope(q[0]) * q, lambda: setattr(law, "k", 2.0)


def by_leaves_of_a_tree():
    tree = jax.tree_util.register_dataclass(
        dataclasses.make_dataclass("Tree", [("inner", float)]), data_fields=["inner"], meta_fields=[]
    )(1.0)
    return lambda q: jax.tree.leaves(tree)[0] * q, lambda: setattr(tree, "inner", 2.0)


def by_property_of_a_metaclass():
    class Meta(type):
        @property
        def k(cls):
            return cls.inner

    class Settings(metaclass=Meta):
        inner = 1.0

    return lambda q: Settings.k * q, lambda: setattr(Settings, "inner", 2.0)


def by_subclass_of_dict():
    table = type("Table", (dict,), {"scale": 1.0})(k=1.0)
    return lambda q: table.scale * q, lambda: setattr(table, "scale", 2.0)


def by_subclass_of_array_in_a_list():
    rows = np.ones(3).view(type("Rows", (np.ndarray,), {"scale": 1.0}))
    held = [rows]
    return lambda q: held[0].scale * q, lambda: setattr(rows, "scale", 2.0)


def by_attribute_of_a_function():
    def law(q):
        return law.k * q

    law.k = 1.0
    return law, lambda: setattr(law, "k", 2.0)


def by_long_list_in_a_dict():
    held = {"rows": [1.0] * 5000}
    return lambda q: held["rows"][0] * q, lambda: held.update(rows=[2.0] * 5000)


def by_large_array_in_a_dict():
    held = {"rows": np.ones(1_100_000)}
    return lambda q: held["rows"][0] * q, lambda: held.update(rows=2 * np.ones(1_100_000))


def by_array_of_a_million_in_a_dict():
    held = {"rows": np.ones(2**20)}
    return lambda q: held["rows"][0] * q, lambda: held["rows"].__setitem__(-1, 2.0)


def by_array_of_objects():
    held = np.array([Law(), None], dtype=object)
    return lambda q: held[0].k * q, lambda: setattr(held[0], "k", 2.0)


def by_jax_array_that_was_deleted():
    held = [jnp.array(1.0)]

    def change():
        held.clear()
        held.append(jnp.array(2.0))

    return lambda q: held[0] * q, change


def by_last_of_many_objects():
    many = [Law() for _ in range(600)]
    return lambda q: many[-1].k * q, lambda: setattr(many[-1], "k", 2.0)


WAYS = [by_helper, by_part_of_an_object_and_helper, by_object_that_a_helper_returns, by_getter, by_vars]
WAYS += [by_function_of_another_package, by_method_of_a_dict, by_computed_name, by_slots_and_vars_of_many]
WAYS += [by_super, by_cached_property, by_stored_cached_property, by_descriptor, by_replaced_method]
WAYS += [by_class_that_is_made_in_the_function, by_transform_of_a_function, by_subclass_of_dict]
WAYS += [by_subclass_of_array_in_a_list, by_attribute_of_a_function, by_long_list_in_a_dict]
WAYS += [by_large_array_in_a_dict, by_array_of_a_million_in_a_dict, by_array_of_objects]
WAYS += [
    by_leaves_of_a_tree,
    by_property_of_a_metaclass,
    by_jax_array_that_was_deleted,
    by_last_of_many_objects,
]


@pytest.mark.parametrize("way", WAYS)
def test_a_changed_value_counts(way):
    pull, change = way()
    reads = Reads([pull])
    assert not reads.changed()
    change()
    assert reads.changed()
    assert not Reads([pull]).changed()


class Study:
    """An object with more than its force needs."""

    def __init__(self):
        self.k, self.runs, self.solutions, self.table = 4.0, 0, [], np.zeros(1_000_000)
        self.law = Law(4.0)

    def force(self, t, q, v):
        return -pull_of(self.law) * jnp.linalg.solve(jnp.eye(1), q)

    def solve(self, system):
        self.runs += 1
        self.solutions.append(ga.solve(system, (0.0, 1.0), [1.0], [0.0], h=0.1))


def test_attributes_that_a_function_does_not_name_do_not_count():
    study = Study()
    system = ga.System(jnp.eye(1), study.force)
    study.solve(system)
    known = list(system._programs)
    study.table[0] = 1.0
    study.solve(system)
    assert list(system._programs) == known
    reads, start = Reads([study.force]), time.perf_counter()
    assert not reads.changed()
    assert time.perf_counter() - start < 1e-3  # the table is not looked at
    study.law.k = 9.0
    assert reads.changed()


def test_a_namespace_without_changes():
    space = types.SimpleNamespace(k=1.0, inner=types.SimpleNamespace(k=1.0))
    reads = Reads([lambda t, q, v: -space.k * space.inner.k * q])
    assert not reads.changed()
    space.inner.k = 2.0
    assert reads.changed()


def test_no_code_of_the_user_runs():
    class Careful:
        def __get__(self, owner, cls):
            raise RuntimeError("must not be called")

        __len__ = __iter__ = __get__

    class Table(dict):
        __len__ = __iter__ = keys = values = items = Careful.__get__

    class Spring:
        loads = Careful()
        __getattr__ = Careful.__get__

        @functools.cached_property
        def k(self):
            raise RuntimeError("must not be called")

        @property
        def c(self):
            raise RuntimeError("must not be called")

    spring, table = Spring(), Table(a=1.0)
    reads = Reads([lambda t, q, v: spring.k + spring.c + spring.loads + spring.other + table["a"]])
    assert not reads.changed()
    table["a"] = 2.0
    assert reads.changed()


def test_containers_that_refer_to_each_other():
    nodes = [{"k": float(i)} for i in range(12)]
    for node in nodes:
        node["others"] = [other for other in nodes if other is not node]
    nodes[0]["self"] = nodes[0]
    start = time.perf_counter()
    reads = Reads([lambda t, q, v: -nodes[0]["k"] * q])
    assert not reads.changed()
    nodes[-1]["k"] = 20.0
    assert reads.changed()
    assert time.perf_counter() - start < 1.0


def test_containers_of_many_items_take_bounded_time():
    rows = [[[float(i)] * 100 for _ in range(100)] for i in range(500)]  # five million numbers
    start = time.perf_counter()
    reads = Reads([lambda t, q, v: -rows[0][0][0] * q])
    assert not reads.changed()
    assert time.perf_counter() - start < 1.0
    rows[0][0][0] = 7.0
    assert reads.changed()


def test_a_function_that_reads_too_much_is_named():
    class Records:
        def __init__(self):
            self.history = [[Law() for _ in range(4000)] for _ in range(5)]
            self.law = Law()

        def force(self, t, q, v):
            return -self.law.k * q + 0 * self.history[0][0].k

    records = Records()
    with pytest.warns(UserWarning, match="Records.force reads more than 10000 values from outside"):
        reads = Reads([records.force])
    assert not reads.changed()
    records.law.k = 2.0  # what comes first in the code is looked at
    assert reads.changed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning comes once
        Reads([records.force])


def test_imports_in_functions():
    def pull(q):
        from read_here import stiffness

        return stiffness * q

    module = sys.modules["read_here"] = types.ModuleType("read_here")
    module.stiffness = 1.0
    reads = Reads([pull])
    module.stiffness = 2.0
    assert reads.changed()

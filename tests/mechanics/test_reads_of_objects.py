"""Values that functions read from objects and containers: which changes count, and which do not."""

import time

import jax.numpy as jnp
import numpy as np
import pytest

from genalpha.mechanics.reads import Reads


class Law:
    """A law with a stiffness, which helpers read."""

    def __init__(self, k=1.0):
        self.k = k


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


WAYS = [
    by_long_list_in_a_dict,
    by_large_array_in_a_dict,
    by_array_of_a_million_in_a_dict,
    by_array_of_objects,
    by_jax_array_that_was_deleted,
]


@pytest.mark.parametrize("way", WAYS)
def test_a_changed_value_counts(way):
    pull, change = way()
    reads = Reads([pull])
    assert not reads.changed()
    change()
    assert reads.changed()
    assert not Reads([pull]).changed()


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

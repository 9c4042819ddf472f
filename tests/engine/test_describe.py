"""Methods, functions and arguments as text, by which a state identifies its run."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.engine.describe import described
from genalpha.engine.run_data import identity

OWN = """
    import sys
    import numpy as np
    import genalpha as ga

    class Mine(ga.SOI2):
        name = "mine"

        def v1(self, s, a1):
            return super().v1(s, a1){more}

    spring = ga.System(mass=np.eye(1), force=lambda t, q, v: -q)
    path, out, t0, t1 = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    at = {{"state": ga.load_state(path)}} if t0 else {{"q0": [1.0], "v0": [0.0]}}
    sol = ga.solve(spring, (t0, t1), **at, method=Mine(), h=0.01)
    sol.state.save(path)
    np.save(out, sol.q)
"""


@pytest.mark.slow
def test_a_method_of_ones_own_goes_on_in_another_process(tmp_path):
    def by_itself(t0: float, t1: float, more: str = "") -> np.ndarray:
        (tmp_path / "own.py").write_text(textwrap.dedent(OWN.format(more=more)))
        command = [sys.executable, "own.py", "state.npz", "q.npy", str(t0), str(t1)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return np.load(tmp_path / "q.npy")

    whole = by_itself(0.0, 1.0)
    by_itself(0.0, 0.5)
    np.testing.assert_array_equal(by_itself(0.5, 1.0), whole[50:])


def test_methods_are_told_apart():
    assert described(ga.SOI2()) == described(ga.SOI2(ga.chung_hulbert(0.8)))
    assert described(ga.SOI2()) != described(ga.SOI2(ga.chung_hulbert(0.8 + 1e-15)))
    assert described(ga.SOI2()) != described(ga.StabilizedIndex2())
    assert described(ga.SOI2()) != described(ga.SOI2(adjust=False))
    c = ga.SOI2().coefficients
    same = ga.Coefficients(c.alpha_m, c.alpha_f, c.beta, c.gamma, "another name")
    assert described(ga.SOI2(same)) == described(ga.SOI2())  # names do not count

    def made(factor: float) -> Any:
        class Mine(ga.SOI2):
            def v1(self, s: Any, a1: Any) -> Any:
                return factor * a1 if factor else a1

        return Mine

    def other() -> Any:
        class Mine(ga.SOI2):
            def v1(self, s: Any, a1: Any) -> Any:
                return a1

        return Mine

    assert described(made(1.0)()) == described(made(1.0)())
    assert described(other()()) != described(made(1.0)())


def test_descriptions_do_not_depend_on_print_options():
    @dataclasses.dataclass(frozen=True)
    class Weights:
        values: Any

    weights = [Weights(np.linspace(0, 1, 5000) + shift) for shift in (0.0, 1e-12)]
    texts = [described(w) for w in weights]
    with np.printoptions(precision=2, threshold=5):
        assert [described(w) for w in weights] == texts
    assert texts[0] != texts[1]


def test_descriptions_of_functions_and_objects():
    class Plain:
        def __init__(self, x: Any) -> None:
            self.x = x

    def scaled(k: float) -> Any:
        return lambda x: k * x

    assert described(Plain(2.0)) == described(Plain(2.0)) != described(Plain(3.0))
    assert described(scaled(2.0)) == described(scaled(2.0)) != described(scaled(3.0))
    assert described(Plain(1).__init__) != described(Plain(2).__init__)
    assert described(functools.partial(max, 3)) != described(functools.partial(max, 4))
    assert described(np.sin) == described(np.sin) != described(np.cos)
    assert described(jax.jit(scaled(2.0))) != described(jax.jit(scaled(3.0)))
    assert described({"a": 1, "b": {2, 3}}) == described({"b": {3, 2}, "a": 1})
    assert described(jax.random.key(1)) != described(jax.random.key(2))
    again: list[Any] = []
    again.append(again)
    assert described(again) == described(again)  # and comes to an end
    assert described(ga.Product(ga.SO3(), ga.Euclidean(2))) != described(
        ga.Product(ga.SO3(), ga.Euclidean(3))
    )


def test_identities_know_shapes_and_random_numbers():
    assert identity(np.zeros((2, 3))) != identity(np.zeros((3, 2)))
    assert identity(jax.random.key(1)) == identity(jax.random.key(1)) != identity(jax.random.key(2))
    assert identity((1.0,)) == identity((jnp.array(1.0),))
    assert identity("text") != identity("texts")

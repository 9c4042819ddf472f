"""Kinds of parts that several assemblies use are traced and written once."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb
from genalpha.backends.sparse import front
from genalpha.backends.sparse.kinds import Kind
from genalpha.mechanics.parts import Part


def chain(kinds: str, mass: float = 1.0) -> mb.Model:
    """Bars in a row with hinges (r), balls (s) and springs (f) between them, in this order."""
    model = mb.Model()
    last, at = model.ground, 0.0
    for k, kind in enumerate(kinds):
        bar = model.add(mb.Body.bar(f"bar {k}", mass, (at, 0, 0), (at + 1, 0, 0), radius=0.1))
        if kind == "r":
            model.add(mb.Revolute(f"hinge {k}", last, bar, at=(at, 0, 0), axis=(0, 1, 0)))
        else:
            model.add(mb.Spherical(f"ball {k}", last, bar, at=(at, 0, 0)))
        if kind == "f":
            model.add(mb.SpringDamper(f"spring {k}", model.ground.frame((at, 0, 1)), bar, 50.0, 1.0))
        last, at = bar, at + 1.0
    return model


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of the kinds that are traced."""
    found: list[str] = []
    trace = Kind._trace

    def traced(self: Kind) -> None:
        found.append(self.model.label)
        trace(self)

    monkeypatch.setattr(Kind, "_trace", traced)
    monkeypatch.setattr(front, "DENSE", 0)
    monkeypatch.setenv("GENALPHA_CACHE", "off")
    return found


RUN: dict[str, Any] = {"save": ["q", "v", "lam"]}


@pytest.mark.parametrize(
    "how",
    [
        {"rtol": 1e-5},
        *(pytest.param({"h": 0.01, "method": m}, marks=pytest.mark.slow) for m in ("index3", "soi2")),
    ],
)
def test_other_models_use_the_same_kinds(
    how: dict[str, Any], counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers, order and number of parts differ; results are those of a model that traces for itself."""
    chain("rrsf").solve((0.0, 0.1), **RUN, **how)
    counted.clear()
    model = chain("rfsrs", mass=2.0)
    found = model.solve((0.0, 0.2), **RUN, **how)
    assert not counted
    monkeypatch.setattr(Part, "sharing", lambda self, made, identity: self)
    alone = chain("rfsrs", mass=2.0)
    expected = alone.solve((0.0, 0.2), **RUN, **how)
    assert len(counted) == len(alone.system.parts)
    for name in ("t", "q", "v", "lam"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def test_other_methods_trace_anew(counted: list[str]) -> None:
    model = chain("rs")
    model.solve((0.0, 0.05), h=0.01, rho_inf=0.7)
    counted.clear()
    chain("sr").solve((0.0, 0.05), h=0.01, rho_inf=0.71)
    assert counted


def test_derivatives_share_kinds(counted: list[str]) -> None:
    """Gradients through a second model, beside differences."""

    def end(model: mb.Model, stiffness: Any) -> Any:
        sol = model.solve((0.0, 0.2), h=0.01, values={"spring 0.stiffness": stiffness}, method="index3")
        return sol.q[-1, 2]

    first, second = chain("frs"), chain("frrs")
    jax.grad(lambda k: end(first, k))(50.0)
    counted.clear()
    found = jax.grad(lambda k: end(second, k))(50.0)
    assert not counted
    expected = (end(second, 50.5) - end(second, 49.5)) / 1.0
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_systems_are_freed(counted: list[str], new_garbage: None) -> None:
    """What is shared holds no assembly."""
    model = chain("rs")
    model.solve((0.0, 0.05), h=0.01, rho_inf=0.6, method="index3")
    assert counted
    watched = weakref.ref(model.system)
    del model
    gc.collect()
    assert watched() is None


def test_two_parts_with_the_same_functions(counted: list[str]) -> None:
    """Their modules have the same text but for the name; both run in one program."""
    force = lambda t, q, v: jnp.array([0.0, -9.81])
    rod = lambda t, q: jnp.array([q @ q - 1.0])
    points = [Part(mass=np.eye(2), force=force, nodes=[k]) for k in range(4)]
    rods = [Part(holonomic=rod, nodes=[k]) for k in range(4)]
    net = ga.Assembly([*points, *rods], space=ga.Euclidean(2), count=4)
    q0 = np.array([1.0, 0.0, 0.6, -0.8, 0.0, -1.0, -0.6, 0.8])
    sol = ga.solve(net, (0.0, 0.5), q0, np.zeros(8), h=0.01)
    assert len([label for label in counted if label.startswith("part ")]) == 8
    one = ga.System(np.eye(2), force, rod, space=ga.Euclidean(2))
    for k in range(4):
        alone = ga.solve(one, (0.0, 0.5), q0[2 * k : 2 * k + 2], np.zeros(2), h=0.01)
        np.testing.assert_allclose(sol.q[:, 2 * k : 2 * k + 2], alone.q, atol=1e-10)

"""The rates of the equations of parts, from the expressions of their terms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha import multibody as mb
from genalpha.backends.sparse import models
from genalpha.backends.sparse.terms import along_motion, read_off, terms_of
from genalpha.compiler.rows import RowFunction


def mixed() -> mb.Model:
    """Parts of all sorts: bodies, joints that move and roll, springs, and a force that depends on time."""
    model = mb.Model()
    arm = model.add(mb.Body.bar("arm", 1.0, (0, 0, 0), (1, 0, 0), radius=0.1))
    wheel = model.add(mb.Body("wheel", mb.sphere(2.0, 0.4), at=(1.0, 0.3, 0.4)))
    model.add(mb.Universal("knee", model.ground, arm, at=(0, 0, 0), axis=(1, 0, 0), second=(0, 1, 0)))
    model.add(mb.RollingSphere("roll", model.ground, wheel, 0.4))
    model.add(mb.Bushing("mount", arm, wheel, 50.0, 1.0, at=(1, 0, 0)))
    model.add(mb.SpringDamper("spring", model.ground, wheel, 80.0, 2.0))
    model.add(mb.AppliedForce("push", arm, lambda t: jnp.array([jnp.sin(3 * t), 0.0, 1.0])))
    return model


def row_of(model: models.KindModel, rng: np.random.Generator) -> tuple[Any, ...]:
    size, n, m, p = model.dims
    q = model.space.normalize(jnp.asarray(rng.normal(size=size)))
    numbers = jax.tree.map(lambda x: np.asarray(x)[0] if np.ndim(x) else np.asarray(x), model.data)
    return (np.float64(0.7), np.asarray(q), *(rng.normal(size=k) for k in (n, n, m, p)), numbers)


def test_rates_of_all_terms() -> None:
    """Equal to those of the functions by JAX, at random states."""
    rng, assembly = np.random.default_rng(1), mixed().system
    parts = models.of_assembly(assembly, ()).parts
    assert {bool(part.dims.m) for part in parts} == {bool(part.dims.p) for part in parts} == {True, False}
    for part in parts:
        row = row_of(part, rng)
        terms = RowFunction("terms", lambda *x, part=part: terms_of(part, *x), (*row[:3], row[-1]))
        rates = read_off("along", part, terms, row)
        for one in (row, (*row_of(part, rng)[:-1], row[-1])):
            expected = np.asarray(along_motion(part, *one))
            found, good = rates.interpret(rates.row(one))
            assert good
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())
        assert np.abs(expected).max() > 1e-3, part.label

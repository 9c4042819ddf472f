"""Every example model is a function and a file: both are the same system."""

import runpy
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from examples import mechanisms

import genalpha as ga
from genalpha import multibody as mb


def test_every_model_has_its_file():
    names = {path.stem for path in mechanisms.MODELS.iterdir()}
    assert names == set(mechanisms.BUILT)


@pytest.mark.parametrize("name", sorted(path.name for path in mechanisms.MODELS.parent.glob("*.py")))
def test_an_example_finds_what_it_imports_as_a_script(name, monkeypatch):
    """Python puts the folder of a script on its path, and not the folder where it was started."""
    root = mechanisms.MODELS.parents[1]
    elsewhere = [path for path in sys.path if path and Path(path).resolve() != root]
    monkeypatch.setattr(sys, "path", [str(root / "examples"), *elsewhere])
    for module in [x for x in sys.modules if x.partition(".")[0] == "examples"]:
        monkeypatch.delitem(sys.modules, module)
    assert runpy.run_path(str(root / "examples" / name))["__doc__"]


def pair(name):
    return mechanisms.BUILT[name](), mb.load(mechanisms.MODELS / f"{name}.json")


@pytest.mark.parametrize("name", mechanisms.BUILT)
def test_the_file_of_an_example_is_the_same_system(name):
    """The same bodies at the same places, and the same parts between them with the same numbers."""
    built, loaded = pair(name)
    for one, two in zip(built.bodies, loaded.bodies, strict=True):
        assert one.name == two.name
        np.testing.assert_allclose(two.x, one.x, atol=1e-14)
        np.testing.assert_allclose(two.R, one.R, atol=1e-14)
    np.testing.assert_allclose(loaded.v0, built.v0, rtol=1e-13, atol=1e-13)
    kinds = lambda model: [[(type(x), x.name, x.rows) for x in group.members] for group in model.groups]
    assert kinds(built) == kinds(loaded)
    same = lambda x, y: np.testing.assert_allclose(y, x, rtol=1e-14, atol=1e-14)
    jax.tree.map(same, built.system.args, loaded.system.args)


SLOW = [x if x == "bicycle" else pytest.param(x, marks=pytest.mark.slow) for x in mechanisms.BUILT]


@pytest.mark.parametrize("name", SLOW)
def test_the_file_of_an_example_has_the_same_accelerations(name):
    states = []
    for model in pair(name):
        model.assemble(redundant="drop")
        states.append(ga.consistent(model.system, 0.0, model.q0, model.v0))
    a, b = (state.a for state in states)
    np.testing.assert_allclose(b, a, atol=1e-10 * (1 + np.abs(a).max()))

"""``genalpha sweep``: the schema of the file, exit codes, and resuming."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb
from genalpha.cli import Refused, study
from genalpha.cli.main import main

pytest.importorskip("zarr")
STUDY = """
[model]
name = "spring-chain"
[run]
h = 1e-2
t_end = 0.1
[axes]
"v0[0]" = { from = 0.0, to = 1.0, count = 5 }
"q0[1]" = [0.0, 0.1]
[output]
store = "chains.zarr"
save = ["q"]
t_eval = [0.0, 0.1]
"""


def written(folder: Path, text: str = STUDY) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def test_a_study_is_run_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    assert main(["sweep", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["done"], found["failed"], found["computed_now"]) == (10, 10, 0, 10)
    opened = ga.open_sweep(tmp_path / "chains.zarr").open(grid=True)
    assert opened.q.dims == ("v0[0]", "q0[1]", "time", "q_index")
    np.testing.assert_array_equal(opened.q[:, 1, 0, 1], 0.1)
    assert main(["sweep", str(path)]) == 2
    assert "pass --resume" in capsys.readouterr().err
    assert main(["sweep", str(path), "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["computed_now"] == 0
    assert main(["sweep", str(written(tmp_path, STUDY.replace("1e-2", "2e-2"))), "--resume"]) == 2
    assert "belongs to another sweep" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("[model]\nname", "[model]\nnmae", "model: unknown entry 'nmae'. Known: name"),
        ('name = "spring-chain"', "", "model.name is missing"),
        ("h = 1e-2", 'h = "small"', "run.h must be a finite number, got 'small'"),
        ("h = 1e-2", "hh = 1e-2", "run: unknown entry 'hh'"),
        (", count = 5", "", "axes.'v0[0]'.count is missing"),
        ("[0.0, 0.1]\n[output]", '[0.0, "x"]\n[output]', "axes.'q0[1]'[1] must be a finite number"),
        ('save = ["q"]', 'save = ["q", "x"]', "output.save[1]: unknown value 'x'"),
        ("[run]", "[runs]", "unknown table 'runs'"),
        ("[axes]", "[table]\nfile = 'a.csv'\n[axes]", "one of axes, sampler, table must say what varies"),
        ("[output]", "[output", "is not TOML"),
    ],
)
def test_an_error_names_the_entry(tmp_path: Path, old: str, new: str, text: str) -> None:
    assert old in STUDY
    with pytest.raises(Refused) as refusal:
        study.read(written(tmp_path, STUDY.replace(old, new)))
    assert text in str(refusal.value)


SAMPLER = STUDY.replace(
    STUDY[STUDY.index("[axes]") : STUDY.index("[output]")],
    "[sampler]\ncount = 8\nseed = 1\n[sampler.axes]\n"
    '"v0[0]" = {distribution = "normal", mean = 1, std = 0.1}\n',
)


def test_a_model_file_with_numbers_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Axes are numbers of a mechanism whose file is beside the study."""
    model = mb.Model(gravity=(0, 0, 0))
    cart = model.add(mb.PointMass("cart", 2.0, at=(1.5, 0, 0)))
    model.add(mb.SpringDamper("spring", model.ground, cart, 8.0, length=1.0))
    model.save(tmp_path / "cart.json")
    text = STUDY.replace("spring-chain", "cart.json").replace("t_end = 0.1", "t_end = 1.0")
    axes = """[axes]\n"spring.stiffness" = [4.0, 8.0]\n"cart.mass" = [1.0, 2.0]\n"""
    text = text[: text.index("[axes]")] + axes + text[text.index("[output]") :].replace("0.1]", "1.0]")
    assert main(["sweep", str(written(tmp_path, text))]) == 0
    found = ga.open_sweep(tmp_path / "chains.zarr").open(grid=True)
    k, m = np.meshgrid([4.0, 8.0], [1.0, 2.0], indexing="ij")
    np.testing.assert_allclose(found.q[:, :, -1, 0], 1 + np.cos(np.sqrt(k / m)) / 2, atol=1e-4)
    wrong = text.replace("cart.mass", "cart.mas").replace("chains", "others")
    assert main(["sweep", str(written(tmp_path, wrong))]) == 2
    assert "do you mean 'cart.mass'?" in capsys.readouterr().err


def test_a_sampler_and_a_table(tmp_path: Path) -> None:
    found = study.read(written(tmp_path, SAMPLER))
    assert (found.over.count, found.over.seed, found.over.design) == (8, 1, "sobol")
    assert found.over.distributions["v0[0]"].std() == pytest.approx(0.1)
    for old, new, text in (
        ('"normal"', '"gauss"', "sampler.axes.'v0[0]'.distribution: unknown value 'gauss'"),
        ("std = 0.1", "std = -1", "sampler.axes.'v0[0]'.std must be above zero"),
        ("count = 8", "count = 1.5", "sampler.count must be a whole number"),
    ):
        with pytest.raises(Refused) as refusal:
            study.read(written(tmp_path, SAMPLER.replace(old, new)))
        assert text in str(refusal.value)
    (tmp_path / "a.csv").write_text("v0[0],q0[1]\n1,2\n3,4\n")
    table = (
        SAMPLER[: SAMPLER.index("[sampler]")] + '[table]\nfile = "a.csv"\n' + STUDY[STUDY.index("[output]") :]
    )
    assert study.read(written(tmp_path, table)).over["q0[1]"].tolist() == [2, 4]


def test_failed_runs_have_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = """
import jax.numpy as jnp, genalpha as ga
system = ga.System(mass=jnp.eye(1), force=lambda t, q, v, k: -jnp.sqrt(k) * q)
problem = dict(system=system, t_span=(0.0, 0.1), q0=[1.0], v0=[0.0], args=(1.0,))
"""
    (tmp_path / "model.py").write_text(model)
    text = STUDY.replace('"spring-chain"', '"model.py:problem"').replace('"q0[1]"', '"args[0]"')
    text = text.replace("[0.0, 0.1]\n[output]", "[1.0, -1.0]\n[output]")
    assert main(["sweep", str(written(tmp_path, text))]) == 1
    assert "failed           5" in capsys.readouterr().out

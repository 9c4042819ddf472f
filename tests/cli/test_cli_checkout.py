"""``genalpha reproduce`` and ``genalpha bench``, inside and outside of a clone."""

from pathlib import Path

import pytest
from reproduce import __main__ as reproduce

from conftest import widest
from genalpha.cli import checkout
from genalpha.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def test_reproduce_lists(genalpha):
    code, out, err = genalpha("reproduce")
    assert (code, err) == (0, "")
    assert widest(out) <= 80
    for name in reproduce.EXPERIMENTS:
        assert f"\n{name} " in out


def test_reproduce_runs(genalpha, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(reproduce, "main", lambda arguments: calls.append(arguments) or 0)
    assert genalpha("reproduce", "JN08-figure1", "J11-figure7.1")[0] == 0
    assert genalpha("reproduce", "all", "--to", tmp_path)[0] == 0
    to = str(ROOT / "out" / "reproduce")
    assert calls == [["--to", to, "JN08-figure1", "J11-figure7.1"], ["--to", str(tmp_path)]]
    monkeypatch.setattr(reproduce, "main", lambda arguments: 1)
    assert genalpha("reproduce", "all")[0] == 1


@pytest.mark.slow
def test_reproduce_for_real(genalpha, tmp_path):
    code, out, _ = genalpha("reproduce", "JN08-figure1", "--to", tmp_path)
    assert code == 0
    assert "within their bands" in out
    assert (tmp_path / "JN08-figure1.png").exists()


def test_reproduce_refuses(genalpha):
    code, out, err = genalpha("reproduce", "JN08-figure3")
    assert (code, out) == (2, "")
    assert "unknown experiment 'JN08-figure3'" in err
    assert "Did you mean 'JN08-figure" in err


def test_reproduce_without_matplotlib(genalpha, monkeypatch):
    def absent(name):
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    monkeypatch.setattr(checkout.importlib, "import_module", absent)
    code, out, err = genalpha("reproduce")
    assert (code, out) == (2, "")
    assert err == "genalpha: reproduce needs matplotlib: pip install genalpha[plot]\n"


def test_bench_lists(genalpha):
    code, out, err = genalpha("bench")
    assert (code, err) == (0, "")
    assert widest(out) <= 80
    names = [line.split()[0] for line in out.splitlines()[1:] if line and line[0] != " "]
    assert {"work_precision", "costs", "heavy_top", "native", "yen", "gpu"} <= set(names)
    assert "peers" not in names  # has nothing to run


def test_bench_refuses(genalpha):
    for name in ("smal", "peers"):
        code, out, err = genalpha("bench", name)
        assert (code, out) == (2, "")
        assert f"unknown benchmark '{name}'" in err


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with benchmarks that take no time."""
    for folder in ("src/genalpha", "benchmarks"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "benchmarks" / "__init__.py").touch()
    end = 'if __name__ == "__main__":\n    '
    quick = f'"""Takes no time.\n\nTruly."""\nimport os\n{end}print("measured in", os.getcwd(), flush=True)\n'
    (tmp_path / "benchmarks" / "quick.py").write_text(quick)
    (tmp_path / "benchmarks" / "peer.py").write_text(f"import scipy_dae_absent as x\n{end}print(x)\n")
    monkeypatch.setattr(checkout, "PEERS", ("scipy_dae_absent",))
    monkeypatch.setattr(checkout, "BESIDE_PACKAGE", tmp_path / "nothing")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_bench_runs_in_the_current_directory(clone, capfd):
    assert main(["bench"]) == 0
    assert "quick      Takes no time.\n" in capfd.readouterr().out
    assert main(["bench", "quick"]) == 0
    assert f"measured in {clone}" in capfd.readouterr().out


def test_bench_says_how_to_install_peers(clone, capfd):
    assert main(["bench", "peer"]) == 1
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == (
        "genalpha: scipy_dae_absent is not installed. To install all peers: pip install --group bench"
    )


def test_outside_of_a_clone(genalpha, monkeypatch, tmp_path):
    monkeypatch.setattr(checkout, "BESIDE_PACKAGE", tmp_path / "nothing")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()  # somebody else's
    (tmp_path / "benchmarks" / "__init__.py").touch()
    for command in ("reproduce", "bench"):
        code, out, err = genalpha(command)
        assert (code, out) == (2, "")
        assert "run this from a clone of the repository" in err

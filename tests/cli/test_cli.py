"""The command line: every command and option, exit codes, and messages without tracebacks."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import genalpha as ga
from conftest import widest
from genalpha import methods
from genalpha.cli import running

SHORT = ["run", "spring-chain", "--h", "0.01", "--t-end", "0.1"]


def test_list(genalpha):
    code, out, err = genalpha("list")
    assert (code, err) == (0, "")
    assert widest(out) <= 80
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line and line[0] != " "}
    for name in [*ga.problems.names(), *methods.names()]:
        assert len(rows[name]) > 1, name
    assert rows["body-chain"][1:7] == ["18", "9", "0", "0", "to", "2"]
    assert rows["slider-crank"][1:7] == ["9", "8", "0", "0", "to", "1"]


def test_list_as_json(genalpha):
    code, out, err = genalpha("list", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [p["name"] for p in found["problems"]] == ga.problems.names()
    assert [m["name"] for m in found["methods"]] == methods.names()
    assert all(m["description"] for m in found["methods"])
    top = next(p for p in found["problems"] if p["name"] == "heavy-top")
    assert (top["size"], top["n"], top["m"], top["p"], top["t_span"]) == (7, 6, 3, 0, [0.0, 1.0])
    assert next(p for p in found["problems"] if p["name"] == "andrews")["reference"] is None


def test_run_prints_a_summary(genalpha):
    code, out, err = genalpha("run", "pendulum", "--h", "0.01", "--t-end", "0.5")
    assert (code, err) == (0, "")
    assert widest(out) <= 80
    lines = dict(line.split("  ", 1) for line in out.splitlines() if line[0] != " ")
    assert lines["problem"].strip() == "pendulum: Pendulum with torsional spring and damper"
    assert lines["method"].strip() == "soi2, rho_inf = 0.8"
    assert lines["time span"].strip() == "0 to 0.5"
    assert lines["steps"].strip() == "50 (0 rejected), h = 0.01"
    assert lines["backend"].strip() == "native"
    assert "a step" in lines["Newton iterations"]
    assert "position" in lines["largest residuals"]
    assert "nonholonomic" not in lines["largest residuals"]
    assert "q " in lines["error at the end"]
    assert "λ " in lines["error at the end"]
    assert "DOP853" in out
    assert lines["q(0.5)"].strip().startswith("[")
    assert lines["v(0.5)"].strip().endswith("]")


def test_run_as_json_agrees_with_solve(genalpha):
    options = ["--method", "stabilized", "--rho-inf", "0.9", "--backend", "xla", "--json"]
    code, out, err = genalpha("run", "double-pendulum", "--h", "0.01", "--t-end", "0.2", *options)
    assert (code, err) == (0, "")
    found = json.loads(out)
    problem = ga.problems.get("double-pendulum")
    sol = problem.solve(t_end=0.2, h=0.01, method="stabilized", rho_inf=0.9, backend="xla")
    for name in ("q", "v", "lam", "psi"):
        assert found[name] == getattr(sol, name)[-1].tolist()
    assert (found["method"], found["rho_inf"], found["h"], found["rtol"]) == ("stabilized", 0.9, 0.01, None)
    assert (found["backend"], found["fallback"]) == ("xla", None)
    assert (found["success"], found["message"]) == (True, "reached the end of the time span")
    assert (found["t_span"], found["t"]) == ([0.0, 0.2], 0.2)
    for name in ("steps", "rejected", "newton_iterations", "jacobians"):
        assert found[name] == getattr(sol.stats, name)
    assert found["residuals"] == {k: float(r.max()) for k, r in sol.residuals._asdict().items()}
    true = problem.reference(0.2)
    assert found["reference"]["kind"] == problem.reference.kind
    assert found["reference"]["errors"]["q"] == pytest.approx(float(np.linalg.norm(sol.q[-1] - true.q)))
    assert set(found["reference"]["errors"]) == {"q", "v", "a", "lam"}
    assert found["seconds"] > 0


def test_run_saves_and_draws(genalpha, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = genalpha(*SHORT, "--save", "run.npz", "--plot", "run.png")
    assert (code, err) == (0, "")
    assert widest(out) <= 80
    assert ga.load("run.npz").stats.steps == 10
    assert Path("run.png").read_bytes()[:4] == b"\x89PNG"
    assert out.splitlines()[-2:] == [f"{'saved':<21}run.npz", f"{'plot':<21}run.png"]
    code, out, err = genalpha(*SHORT, "--save", "run.npz", "--plot", "run.svg", "--json")
    assert (json.loads(out)["saved"], json.loads(out)["plot"]) == ("run.npz", "run.svg")
    assert "<svg" in Path("run.svg").read_text(encoding="utf-8")


def test_without_constraints_and_with_many_coordinates(genalpha, tmp_path):
    file = tmp_path / "many.py"
    file.write_text("import genalpha as ga\ndef chain():\n    return ga.problems.get('spring-chain', n=30)\n")
    code, out, _ = genalpha("run", f"{file}:chain", "--h", "0.01", "--t-end", "0.1")
    assert code == 0
    assert "no constraints" in out
    assert "..." in next(line for line in out.splitlines() if line.startswith("q(0.1)"))
    assert "(30 in all)" in out


def test_a_run_that_stops_halfway(genalpha, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("falls.py").write_text(
        "import jax.numpy as jnp, genalpha as ga\n"
        "force = lambda t, q, v: jnp.where(t > 0.55, jnp.nan, -9.81) + 0 * q\n"
        "system = ga.System(mass=jnp.eye(1), force=force)\n"
        "problem = dict(system=system, t_span=(0.0, 1.0), q0=[0.0], v0=[0.0])\n"
    )
    code, out, err = genalpha("run", "falls.py:problem", "--h", "0.1", "--save", "part.npz")
    assert code == 1
    assert err.startswith("genalpha: stopped after t = 0.5 (step 5): ")
    assert err.count("\n") == 1
    assert "stopped after t = 0.5" in out
    assert "0 to 0.5 of 1\n" in out
    assert widest(out) <= 80
    assert len(ga.load("part.npz").t) == 6
    code, out, err = genalpha("run", "falls.py:problem", "--h", "0.1", "--json")
    found = json.loads(out)
    assert code == 1
    assert (found["success"], found["steps"], found["t"], found["t_span"]) == (False, 5, 0.5, [0.0, 1.0])
    assert found["message"] in err


def test_json_holds_no_nan(genalpha, tmp_path):
    file = tmp_path / "model.py"
    file.write_text(
        "import numpy as np, genalpha as ga\n"
        "from types import SimpleNamespace\n"
        "system = ga.System(mass=np.eye(1), force=lambda t, q, v: -q)\n"
        "problem = SimpleNamespace(system=system, t_span=(0, 1), q0=[1.0], v0=[0.0])\n"
        "problem.reference = lambda t: SimpleNamespace(q=np.array([np.nan]), v=np.array([np.inf]))\n"
    )
    code, out, _ = genalpha("run", f"{file}:problem", "--h", "0.1", "--json")
    assert code == 0
    assert json.loads(out, parse_constant=pytest.fail)["reference"]["errors"] == {"q": None, "v": None}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "pendlum", "--h", "0.1"], "unknown problem 'pendlum'. .* Did you mean 'pendulum'"),
        ([*SHORT, "--method", "soi3"], "unknown method 'soi3'.*Did you mean 'soi2'"),
        ([*SHORT, "--backend", "nativ"], "unknown backend 'nativ'.*Did you mean 'native'"),
        ([*SHORT, "--rho-inf", "1.5"], r"rho_inf = 1.5 must lie in \[0, 1\]"),
        ([*SHORT, "--rtol", "1e-6"], "pass either --h or --rtol and --atol, not both"),
        ([*SHORT, "--atol", "1e-6"], "pass either --h or --rtol and --atol, not both"),
        (["run", "pendulum", "--h", "0"], "must be a positive"),
        (["run", "pendulum", "--h", "small"], "genalpha run: argument --h: invalid float value: 'small'"),
        (["run", "pendulum", "--h", "0.1", "--t-end", "-1"], "the end must be later than the start"),
        (["run", "pendulum", "--h", "0.1", "--method", "generalized-alpha"], "unconstrained systems"),
        ([*SHORT, "--save", "nowhere/run.npz"], "no folder nowhere"),
        ([*SHORT, "--plot", "nowhere/run.png"], "no folder nowhere"),
        ([*SHORT, "--save", "."], r"--save \. is a folder"),
        (
            [*SHORT, "--save", "run.cvs"],
            r"--save run.cvs: a solution cannot be written as .cvs: choose .npz, .nc, .zarr, .csv, .parquet$",
        ),
        (
            [*SHORT, "--save", "run.h5"],
            r"--save run.h5: a solution cannot be written as .h5: choose .npz, .nc",
        ),
        ([*SHORT, "--plot", "picture"], "--plot picture: .*such as picture.png"),
        ([*SHORT, "--plot", "picture.xyz"], r"--plot picture.xyz: .* png"),
        (["run"], "genalpha run: .*required: PROBLEM"),
        (["run", "pendulum", "--rho", "0.5"], "unrecognized arguments: --rho"),
        (["rnu", "pendulum"], "unknown command 'rnu'.*Did you mean 'run'"),
        (["--verson"], "--verson"),
    ],
)
def test_bad_input(genalpha, arguments, message):
    code, out, err = genalpha(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("genalpha")
    assert re.search(message, err), err


def test_no_command_shows_the_help(genalpha):
    code, out, err = genalpha()
    assert (code, out) == (2, "")
    assert "usage: genalpha" in err
    assert "reproduce" in err


@pytest.mark.parametrize("command", [[], ["list"], ["run"], ["reproduce"], ["bench"]])
def test_help_has_examples(genalpha, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = genalpha(*command, "--help")
    assert (code, err) == (0, "")
    assert f"usage: {' '.join(['genalpha', *command])}" in out
    assert "examples:\n  genalpha " in out
    assert widest(out) <= 80


def test_version(genalpha):
    assert genalpha("--version") == (0, f"genalpha {ga.__version__}\n", "")


def test_without_h_steps_follow_the_tolerances(genalpha):
    problem = ga.problems.get("spring-chain")
    span = (problem.t_span[0], 1.0)
    arguments = ["run", "spring-chain", "--t-end", "1", "--rtol", "1e-5"]
    code, out, _ = genalpha(*arguments)
    sol = ga.solve(problem.system, span, problem.q0, problem.v0, args=problem.args, rtol=1e-5)
    assert code == 0
    assert "soi2, rho_inf = 0.8, rtol = 1e-05, atol = 1e-07" in out
    assert f"{sol.stats.steps} ({sol.stats.rejected} rejected), h from " in out
    code, out, _ = genalpha(*arguments, "--atol", "1e-3", "--json")
    found = json.loads(out)
    assert (found["h"], found["rtol"], found["atol"]) == (None, 1e-5, 1e-3)
    assert found["steps"] < sol.stats.steps


def test_progress_on_a_terminal(genalpha, monkeypatch):
    monkeypatch.setattr(running, "on_terminal", lambda: True)
    code, _, err = genalpha("run", "spring-chain", "--t-end", "1")
    assert code == 0
    assert "t = 1 of 1" in err


def test_without_matplotlib(genalpha, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = genalpha(*SHORT, "--plot", "run.png")
    assert (code, out) == (2, "")
    assert err == "genalpha: --plot needs matplotlib: pip install genalpha[plot]\n"


def test_interrupt(genalpha, monkeypatch):
    def interrupted(*arguments, h=None, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(ga, "solve", interrupted)
    assert genalpha(*SHORT) == (130, "", "genalpha: interrupted\n")


def test_bugs_keep_their_traceback(genalpha, monkeypatch):
    def broken(*arguments, h=None, **options):
        raise ZeroDivisionError

    monkeypatch.setattr(ga, "solve", broken)
    with pytest.raises(ZeroDivisionError):
        genalpha(*SHORT)


def test_a_disk_that_fails_leaves_the_summary(genalpha, monkeypatch):
    def full(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ga.Solution, "save", full)
    code, out, err = genalpha(*SHORT, "--save", "run.npz")
    assert code == 2
    assert "spring-chain" in out
    assert "saved" not in out
    assert err == "genalpha: cannot write run.npz: No space left on device\n"

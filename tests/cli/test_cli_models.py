"""Models in files, run from the command line: valid ones, and messages for invalid ones."""

import json
import re
import sys

import pytest

import genalpha as ga
from genalpha import multibody as mb

HEAD = """import jax.numpy as jnp
import genalpha as ga
from types import SimpleNamespace

circle = ga.System(
    mass=jnp.eye(2),
    force=lambda t, q, v, g: jnp.array([0.0, -g]),
    holonomic=lambda t, q, g: jnp.array([q @ q - 1.0]),
)
parts = dict(system=circle, t_span=(0.0, 0.2), q0=[1.0, 0.0], v0=[0.0, 0.0], args=(9.81,))
"""


@pytest.fixture
def run(tmp_path, monkeypatch, genalpha):
    """Writes a model file and runs one of its attributes; returns the exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def command(text, what="model.py:problem", *options):
        (tmp_path / "model.py").write_text(text, encoding="utf-8")
        return genalpha("run", what, "--h", "0.02", *options)

    return command


@pytest.mark.parametrize(
    "definition",
    [
        "problem = parts",
        "problem = SimpleNamespace(**parts)",
        "def problem():\n    return parts",
        "class problem:\n    system, t_span, q0, v0, args = parts.values()",
        "class problem:\n    def __init__(self):\n        vars(self).update(parts)",
    ],
)
def test_valid_models(run, definition):
    code, out, err = run(HEAD + definition, "model.py:problem", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    scope: dict = {}
    exec(HEAD, scope)
    parts = scope["parts"]
    sol = ga.solve(parts["system"], parts["t_span"], parts["q0"], parts["v0"], h=0.02, args=parts["args"])
    assert found["q"] == sol.q[-1].tolist()
    assert (found["problem"], found["reference"], found["steps"]) == ("model.py:problem", None, 10)


def test_a_problem_of_the_package_with_other_parameters(run):
    text = "import genalpha as ga\nproblem = ga.problems.get('spring-chain', n=2)\n"
    code, out, _ = run(text, "model.py:problem", "--t-end", "0.1")
    assert code == 0
    assert "model.py:problem: Chain of masses and springs" in out
    assert "error at the end" in out


def test_neighbours_can_be_imported_and_printing_does_not_spoil_json(run, tmp_path):
    (tmp_path / "gravity_of_model.py").write_text("g = 9.81\n")
    text = HEAD + "from gravity_of_model import g\nprint('hello')\nproblem = parts | {'args': (g,)}\n"
    code, out, err = run(text, "model.py:problem", "--json")
    assert (code, err) == (0, "hello\n")
    assert json.loads(out)["success"] is True


def test_dataclasses_and_other_coordinates(run):
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        + HEAD
        + "@dataclass\nclass Bob:\n    g: float = 9.81\n"
        "problem = parts | {'args': (Bob().g,), 'coordinates': ['x', 'y', 'too many'], 'title': 'Bob'}\n"
    )
    code, out, err = run(text, "model.py:problem", "--plot", "bob.png")
    assert (code, err) == (0, "")
    assert "model.py:problem: Bob" in out


def test_a_reference_that_fails_does_not_lose_the_run(run):
    text = HEAD + "problem = parts | {'reference': lambda t: 1 / 0}\n"
    code, out, err = run(text)
    assert (code, err) == (0, "")
    assert "which failed: ZeroDivisionError" in out


@pytest.mark.parametrize(
    ("text", "what", "message"),
    [
        (HEAD, "absent.py:problem", "cannot read absent.py: No such file"),
        (HEAD, "pendulum:problem", "cannot read pendulum: No such file"),
        (
            HEAD + "problem = parts",
            "model.py",
            r"without an attribute: write model.py:ATTRIBUTE.*It has: .*circle, parts",
        ),
        (
            HEAD + "problem = parts",
            "model.py:problm",
            "attribute of model.py 'problm'.*Did you mean 'problem'",
        ),
        ("x = 1\ndef f(:\n", "model.py:f", "model.py, line 2: invalid syntax"),
        ("x = 1\ny = z\n", "model.py:x", "model.py, line 2: NameError: name 'z' is not defined"),
        ("import no_such_module\n", "model.py:x", "model.py, line 1: ModuleNotFoundError: .*no_such_module"),
        ("raise SystemExit(3)\n", "model.py:x", "model.py, line 1: SystemExit: 3"),
        (HEAD + "problem = circle", "model.py:problem", "is of type System and lacks system, t_span, q0, v0"),
        (
            HEAD + "del parts['v0']\nproblem = parts",
            "model.py:problem",
            "lacks v0: it must have system, t_span",
        ),
        (HEAD + "problem = lambda n: parts", "model.py:problem", "is a function that needs arguments"),
        (HEAD + "def problem():\n    return 1 / 0", "model.py:problem", "line 12: ZeroDivisionError"),
        (
            HEAD + "problem = parts | {'t_span': 1.0}",
            "model.py:problem",
            r"model.py:problem: t_span must be a pair",
        ),
        (HEAD + "problem = parts | {'q0': [1.1, 0.0]}", "model.py:problem", "q0"),
        (HEAD + "problem = parts | {'system': 3}", "model.py:problem", r"must be a ga\.System, got int"),
        (HEAD + "problem = parts | {'args': 9.81}", "model.py:problem", r"args=\(x,\)"),
        (
            HEAD + "problem = parts | {'args': ()}",
            "model.py:problem",
            "missing 1 required positional argument: 'g' This happened in force",
        ),
        (
            HEAD.replace("jnp.array([0.0, -g])", "jnp.array([0.0, -mg])") + "problem = parts",
            "model.py:problem",
            r"model.py, line 7: NameError: name 'mg' is not defined This happened in force\(t, q, v",
        ),
    ],
)
def test_messages_for_bad_models(run, text, what, message):
    code, out, err = run(text, what)
    assert (code, out) == (2, "")
    assert err.startswith("genalpha: ")
    assert err.count("\n") == 1
    assert re.search(message, err), err


OPTIONS = (
    HEAD
    + """
parts |= dict(q0=[1.1, 0.0], initial="project", rtol=1e-5, method="stabilized", max_step=0.05)
problem = parts
"""
)


def test_options_in_a_model_count_and_the_command_line_replaces_them(tmp_path, monkeypatch, genalpha):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(OPTIONS, encoding="utf-8")
    command = lambda *options: json.loads(genalpha("run", "model.py:problem", "--json", *options)[1])
    found = command()
    assert (found["method"], found["rtol"], found["h"]) == ("stabilized", 1e-5, None)
    assert found["atol"] == pytest.approx(1e-7)
    assert found["residuals"]["position"] < 1e-12
    given = command("--h", "0.01", "--newton", "full", "--method", "soi2")
    assert (given["method"], given["h"], given["rtol"], given["steps"]) == ("soi2", 0.01, None, 20)
    assert command("--rtol", "1e-7")["steps"] > found["steps"]
    code, _, err = genalpha("run", "model.py:problem", "--initial", "check")
    assert code == 2
    assert "holonomic[0] = 0.21" in err


def test_what_means_nothing_is_refused(run, genalpha):
    code, _, err = run(HEAD + "problem = parts | dict(initail='project')")
    assert code == 2
    assert "unknown key 'initail'" in err
    assert "Did you mean 'initial'?" in err
    for option in ("initial", "newton"):
        code, _, err = genalpha("run", "pendulum", f"--{option}", "fool")
        assert code == 2
        assert f"unknown value of --{option} 'fool'" in err


def test_multibody_models(run, genalpha, tmp_path):
    model = mb.Model(gravity=(0, 0, -9.81))
    bar = model.add(mb.Body.bar("bar", 1.0, (0, 0, 0), (1, 0, 0)))
    model.add(mb.Revolute("hinge", model.ground, bar, at=(0, 0, 0), axis=(0, 1, 0)))
    model.save(tmp_path / "bar.json")
    expected = model.solve((0.0, 0.2), h=0.02).q[-1].tolist()
    code, out, err = genalpha("run", "bar.json", "--h", "0.02", "--t-end", "0.2", "--json")
    assert (code, err, json.loads(out)["q"]) == (0, "", expected)
    code, out, err = genalpha("run", "bar.json", "--h", "0.02")
    assert "bar.json: 1 degree of freedom" in out
    assert "0 to 1" in out
    text = "from genalpha import multibody as mb\nproblem = mb.load('bar.json')\n"
    code, out, err = run(text, "model.py:problem", "--t-end", "0.2", "--json")
    assert (code, err, json.loads(out)["q"]) == (0, "", expected)
    code, _, err = genalpha("run", "none.urdf")
    assert (code, err) == (2, "genalpha: cannot read none.urdf: No such file or directory\n")
    (tmp_path / "bad.json").write_text(
        '{"format": "genalpha model 1", "gravity": [0, 0, 0], "gravity": [1, 0, 0]}'
    )
    code, _, err = genalpha("run", "bad.json")
    assert code == 2
    assert "bad.json is no JSON: the name 'gravity' occurs twice in one object" in err


def robot(folder, more):
    """A robot whose joint has more elements."""
    mass = "<inertial><mass value='1'/><inertia ixx='1' iyy='1' izz='1' ixy='0' ixz='0' iyz='0'/></inertial>"
    joint = f"<joint name='j' type='continuous'><parent link='base'/><child link='arm'/>{more}</joint>"
    text = f"<robot><link name='base'/><link name='arm'>{mass}</link>{joint}<transmission/></robot>"
    (folder / "robot.urdf").write_text(text)


@pytest.mark.filterwarnings("always")
def test_what_is_not_read_is_listed_with_its_places(tmp_path, monkeypatch, genalpha):
    """One line for each reason: there is no model.notes to look at."""
    monkeypatch.chdir(tmp_path)
    robot(tmp_path, "<safety_controller k_velocity='1'/><limit effort='3' velocity='1'/>")
    code, _, err = genalpha("run", "robot.urdf", "--h", "0.1")
    said = [
        "calibrations and safety controllers are not read: robot/joint (j)/safety_controller",
        "limits of effort and velocity are not applied: 'j' (3, 1)",
        "transmissions are not read: robot/transmission",
    ]
    assert (code, err.splitlines()) == (0, [f"genalpha: warning: robot.urdf: {line}" for line in said])


@pytest.mark.parametrize("name", ["robot.urdf", "robot.XML", "folder/robot.json", "robot.toml"])
def test_files_of_models_have_no_attributes(genalpha, name):
    code, _, err = genalpha("run", f"{name}:foo")
    said = f"{name} is the file of a model, which has no attributes such as 'foo': write {name}"
    assert (code, err) == (2, f"genalpha: {said}\n")


def test_a_file_without_an_ending_is_npz(tmp_path, monkeypatch, run):
    text = HEAD + "problem = parts\n"
    code, _, _ = run(text, "model.py:problem", "--save", "result")
    assert code == 0
    assert ga.load(tmp_path / "result").success
    code, _, err = run(text, "model.py:problem", "--save", "result.cvs")
    assert (code, (tmp_path / "result.cvs").exists()) == (2, False)
    assert "cannot be written as .cvs" in err

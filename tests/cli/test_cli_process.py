"""The command line in processes of its own, and the examples of docs/cli.md."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import genalpha as ga

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def process(*arguments, **options):
    """The same in a process of its own."""
    command, environment = [sys.executable, "-m", "genalpha", *arguments], ENVIRONMENT | options
    return subprocess.run(command, capture_output=True, env=environment, timeout=120)


def test_module():
    done = process("run", "spring-chain", "--h", "0.01", "--t-end", "0.1", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    problem = ga.problems.get("spring-chain")
    assert json.loads(done.stdout)["q"] == problem.solve(h=0.01, t_end=0.1).q[-1].tolist()


@pytest.mark.parametrize("arguments", [["list"], pytest.param(["--help"], marks=pytest.mark.slow)])
def test_a_reader_that_leaves_early(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "genalpha", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=120)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_a_terminal_without_greek():
    done = process("run", "spring-chain", "--h", "0.01", "--t-end", "0.1", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")


def test_interrupt_from_outside(tmp_path):
    (tmp_path / "long.py").write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "time.sleep(9)\n"
    )
    done = process("run", f"{tmp_path}/long.py:problem", "--h", "0.1")
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"genalpha: interrupted\n")


def without_numbers(text):
    """What is the same on all machines: rounding and run times are not."""
    return re.sub(r"\s+", " ", re.sub(r"-?\b\d[\d.]*(e[+-]?\d+)?", "#", text)).strip()


@pytest.mark.slow
@pytest.mark.parametrize("example", re.findall(r"```console\n\$ (.*?)```", PAGE, flags=re.DOTALL))
def test_examples_of_the_page(example, genalpha, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, source in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, flags=re.DOTALL):
        Path(name).write_text(source, encoding="utf-8")
    command, shown = example.split("\n", 1)
    program, *arguments = command.split()
    _, out, err = genalpha(*arguments)
    assert program == "genalpha"
    for part in shown.split("...\n"):
        assert without_numbers(part) in without_numbers(out + err)

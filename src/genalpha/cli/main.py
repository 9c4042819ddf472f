"""The command line: ``genalpha list``, ``run``, ``sweep``, ``reproduce`` and ``bench``.

Exit codes: 0 success, 1 a run that stopped half-way, 2 wrong usage or bad input, 130 interrupted.

This file holds only the parser. The modules of a command are imported when it is called. (The package itself
imports JAX, which takes most of the 0.7 s of ``--help``.)
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from genalpha import __version__
from genalpha.cli import Refused
from genalpha.errors import unknown

_EXAMPLES = """examples:
  genalpha list
  genalpha run slider-crank --plot slider-crank.png
  genalpha run my_model.py:problem --method stabilized --h 1e-3
  genalpha reproduce JN08-figure1

exit codes: 0 success, 1 a run that stopped half-way, 2 wrong usage or bad
input, 130 interrupted. "genalpha COMMAND --help" explains a command."""

_LIST = """examples:
  genalpha list
  genalpha list --json | python -m json.tool"""

_RUN = """PROBLEM is a name from "genalpha list", FILE.py:ATTRIBUTE, or the file of a
multibody model (.json, .toml, .urdf, .xml). The attribute is a multibody
model, a ga.problems.Problem, or an object or dict with system, t_span, q0, v0
and, if the functions take any, args. It may also be a function without
arguments that returns one of these. A multibody model runs for 1 s, or up to
--t-end; the joints in its file are closed first.

examples:
  genalpha run pendulum
  genalpha run heavy-top --rtol 1e-6 --t-end 2 --save top.npz
  genalpha run rolling-disk --h 1e-2 --plot disk.png
  genalpha run my_model.py:problem --h 1e-3 --json
  genalpha run robot.urdf --t-end 2

Without --h, error control chooses the steps. Exit code 1 means that the run
stopped half-way. The part before that is still printed, saved and drawn."""

_SWEEP = """examples:
  genalpha sweep study.toml
  genalpha sweep study.toml --resume --json
  genalpha sweep study.toml --scheduler tcp://host:8786

STUDY.toml has the tables model (name), run (h, rtol and so on), one of axes,
sampler and table, output (store, save, t_eval) and work. docs/sweeps.md has all
entries. Exit code 1 means that runs failed, or that the sweep stopped: call it
again with --resume."""

_REPRODUCE = """examples:
  genalpha reproduce
  genalpha reproduce JN08-figure1 J11-figure7.1
  genalpha reproduce all --to pictures

This needs a clone of the repository. Exit code 1 means that a number is outside
of its expected range."""

_BENCH = """examples:
  genalpha bench
  genalpha bench small

This needs a clone of the repository. Most benchmarks also need the other
programs for comparison: pip install --group bench. Results go to out/bench in
the clone."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command line, by default that of the process. Returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # terminals without Greek letters show question marks
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return code
    except Refused as refusal:
        print(f"genalpha: {refusal}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("genalpha: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has closed the pipe; discard the rest of the buffer
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(arguments: list[str]) -> int:
    if arguments and not arguments[0].startswith("-") and arguments[0] not in _COMMANDS:
        raise Refused(str(unknown("command", arguments[0], _COMMANDS)))
    try:
        options = parser().parse_args(arguments)
    except SystemExit as done:  # --help, --version or wrong usage; argparse has printed all
        return int(done.code or 0)
    if options.command is None:
        parser().print_help(sys.stderr)
        return 2
    from genalpha.cli import checkout, listing, running, sweeping

    commands = {
        "list": listing.run,
        "run": running.run,
        "sweep": sweeping.run,
        "reproduce": checkout.reproduce,
        "bench": checkout.bench,
    }
    with warnings.catch_warnings():
        warnings.showwarning = _told
        return commands[options.command](options)


def _told(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning in one line, without the line of a program that it came from."""
    print(f"genalpha: warning: {' '.join(str(message).split())}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """The options of all commands."""
    layout: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    top = _Parser(
        prog="genalpha",
        description="Time integration of constrained mechanical systems.",
        epilog=_EXAMPLES,
        **layout,
    )
    top.add_argument("-V", "--version", action="version", version=f"genalpha {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, (summary, epilog, fill) in _COMMANDS.items():
        fill(commands.add_parser(name, help=summary, description=summary, epilog=epilog, **layout))
    return top


def _list_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON object")


def _run_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("problem", metavar="PROBLEM", help="a name, FILE.py:ATTRIBUTE, or the file of a multibody model")
    add("--method", metavar="M", help='a name from "genalpha list"; the default is soi2')
    add("--rho-inf", metavar="R", type=float, help="damping of the highest frequencies: 0 most, 1 none")
    add("--h", metavar="H", type=float, help="step size, without error control")
    add("--rtol", metavar="R", type=float, help="relative tolerance of error control")
    add("--atol", metavar="A", type=float, help="absolute tolerance of error control")
    add("--accuracy", metavar="E", type=float, help="relative error of the result, estimated and reached")
    add(
        "--initial", metavar="I", help="check (default), project or assume: initial values on the constraints"
    )
    add("--newton", metavar="N", help="modified (default), full or frozen: when Newton's matrix is renewed")
    add("--t-end", metavar="T", type=float, help="another end of the time span")
    add("--plot", metavar="FILE.png", type=Path, help="draw the motion; needs matplotlib")
    add(
        "--save",
        metavar="FILE",
        type=Path,
        help="save the solution, .npz for ga.load; the ending sets the format",
    )
    add("--backend", metavar="B", help="auto (default), native or xla")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def _sweep_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("study", metavar="STUDY.toml", type=Path, help="the file that describes the study")
    add("--resume", action="store_true", help="go on with a store that exists")
    add("--scheduler", metavar="ADDRESS", help="a Dask scheduler whose workers do the work")
    add("--no-verify", action="store_true", help="do not compare checksums of what is done")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def _reproduce_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "what", metavar="WHAT", nargs="*", help='experiments, or "all"; without any, list them'
    )
    command.add_argument(
        "--to", metavar="FOLDER", type=Path, help="folder for the results; the default is out/reproduce"
    )


def _bench_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("what", metavar="WHAT", nargs="?", help="a benchmark; without one, list them")


_COMMANDS: dict[str, tuple[str, str, Callable[[argparse.ArgumentParser], None]]] = {
    "list": ("List the named problems and methods.", _LIST, _list_options),
    "run": ("Solve a problem and print a summary.", _RUN, _run_options),
    "sweep": ("Run a model many times, as a file describes.", _SWEEP, _sweep_options),
    "reproduce": ("Repeat experiments of the papers.", _REPRODUCE, _reproduce_options),
    "bench": ("Measure cost and accuracy, also of other programs.", _BENCH, _bench_options),
}

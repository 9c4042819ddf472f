"""The command line: ``genalpha list``, ``run``, ``reproduce`` and ``bench``.

Exit codes: 0 success, 1 a run that stopped half-way, 2 wrong usage or bad input, 130 interrupted.

Here is the parser only; what a command needs is imported when it is called. (The package itself imports JAX,
which is most of the 0.7 s that ``--help`` takes.)
"""

from __future__ import annotations

import argparse
import io
import os
import sys
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
input, 130 interrupted. "genalpha COMMAND --help" tells more about a command."""

_LIST = """examples:
  genalpha list
  genalpha list --json | python -m json.tool"""

_RUN = """PROBLEM is a name that "genalpha list" shows, or FILE.py:ATTRIBUTE, where the
attribute is a ga.problems.Problem, or an object or dict with system, t_span,
q0, v0 and, where the functions take any, args; or a function without arguments
that returns one of these.

examples:
  genalpha run pendulum
  genalpha run heavy-top --rtol 1e-6 --t-end 2 --save top.npz
  genalpha run rolling-disk --h 1e-2 --plot disk.png
  genalpha run my_model.py:problem --h 1e-3 --json

Without --h, error control chooses the steps. Exit code 1 says that the run
stopped half-way; what was computed until then is printed, saved and drawn."""

_REPRODUCE = """examples:
  genalpha reproduce
  genalpha reproduce JN08-figure1 J11-figure7.1
  genalpha reproduce all --to pictures

Needs a clone of the repository. Exit code 1 says that a number left its band."""

_BENCH = """examples:
  genalpha bench
  genalpha bench small

Needs a clone of the repository, and for most benchmarks the peers that are
compared with: pip install --group bench. Results go to out/bench in the clone."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command line, that of the process by default; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # terminals without Greek letters get question marks
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
    except BrokenPipeError:  # the reader has seen enough; what is left in the buffer goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(arguments: list[str]) -> int:
    if arguments and not arguments[0].startswith("-") and arguments[0] not in _COMMANDS:
        raise Refused(str(unknown("command", arguments[0], _COMMANDS)))
    try:
        options = parser().parse_args(arguments)
    except SystemExit as done:  # --help, --version or wrong usage; all has been said
        return int(done.code or 0)
    if options.command is None:
        parser().print_help(sys.stderr)
        return 2
    from genalpha.cli import checkout, listing, running

    commands = {
        "list": listing.run,
        "run": running.run,
        "reproduce": checkout.reproduce,
        "bench": checkout.bench,
    }
    return commands[options.command](options)


class _Parser(argparse.ArgumentParser):
    """A parser that refuses in one line."""

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
    add("problem", metavar="PROBLEM", help="a name, or FILE.py:ATTRIBUTE")
    add("--method", metavar="M", help='a name that "genalpha list" shows; soi2 by default')
    add("--rho-inf", metavar="R", type=float, help="damping of the highest frequencies: 0 most, 1 none")
    add("--h", metavar="H", type=float, help="steps of this size, without error control")
    add("--rtol", metavar="R", type=float, help="relative tolerance of error control")
    add("--atol", metavar="A", type=float, help="absolute tolerance of error control")
    add("--t-end", metavar="T", type=float, help="stop here, not at the end of the problem's time span")
    add("--plot", metavar="FILE.png", type=Path, help="draw the motion; needs matplotlib")
    add("--save", metavar="FILE.npz", type=Path, help="keep the solution for ga.load")
    add("--backend", metavar="B", help="auto (default), native or xla")
    add("--json", action="store_true", help="print one JSON object and nothing else")


def _reproduce_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("what", metavar="WHAT", nargs="*", help='experiments, or "all"; none lists them')
    command.add_argument(
        "--to", metavar="FOLDER", type=Path, help="for the results; out/reproduce by default"
    )


def _bench_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("what", metavar="WHAT", nargs="?", help="a benchmark; none lists them")


_COMMANDS: dict[str, tuple[str, str, Callable[[argparse.ArgumentParser], None]]] = {
    "list": ("Show the problems and methods that have names.", _LIST, _list_options),
    "run": ("Solve a problem and say what came out.", _RUN, _run_options),
    "reproduce": ("Repeat experiments of the papers.", _REPRODUCE, _reproduce_options),
    "bench": ("Measure cost against accuracy, and against peers.", _BENCH, _bench_options),
}

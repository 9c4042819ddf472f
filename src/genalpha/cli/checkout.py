"""``genalpha reproduce`` and ``genalpha bench``, which need a clone of the repository.

The scripts that they run are in ``reproduce/`` and ``benchmarks/`` of the repository, not in the package.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from genalpha.cli import Refused
from genalpha.cli.text import table
from genalpha.errors import unknown

BESIDE_PACKAGE = Path(__file__).resolve().parents[3]  # the clone, if the package runs from one
PEERS = ("scipy_dae", "sksundae", "exudyn")


def reproduce(options: argparse.Namespace) -> int:
    root = _root("reproduce")
    experiments, main = _experiments(root)
    if not options.what:
        rows = [("experiment", "what it shows"), *((e.name, e.title) for e in experiments.values())]
        print(table([*rows, ("all", "every one of them")]))
        return 0
    wrong = [name for name in options.what if name != "all" and name not in experiments]
    if wrong:
        raise Refused(str(unknown("experiment", wrong[0], [*experiments, "all"])))
    names = [] if "all" in options.what else options.what
    to = options.to if options.to is not None else root / "out" / "reproduce"
    return int(main(["--to", str(to), *names]))


def _experiments(root: Path) -> tuple[dict[str, Any], Any]:
    """The experiments by name, and the function that runs some of them."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        module = importlib.import_module("reproduce.__main__")
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise Refused("reproduce needs matplotlib: pip install genalpha[plot]") from error
    return module.EXPERIMENTS, module.main


def bench(options: argparse.Namespace) -> int:
    root = _root("benchmarks")
    known = _benchmarks(root / "benchmarks")
    if options.what is None:
        print(table([("benchmark", "what it measures"), *known.items()]))
        return 0
    if options.what not in known:
        raise Refused(str(unknown("benchmark", options.what, known)))
    paths = [str(root / "src"), str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", f"benchmarks.{options.what}"]
    code = subprocess.run(command, cwd=root, env=environment, check=False).returncode
    missing = [name for name in PEERS if find_spec(name) is None]
    if code and missing:
        are = "is" if len(missing) == 1 else "are"
        names = ", ".join(missing)
        hint = f"genalpha: {names} {are} not installed. To install all peers: pip install --group bench"
        print(hint, file=sys.stderr)
    return 1 if code else 0


def _benchmarks(folder: Path) -> dict[str, str]:
    """The modules that can be run, and the first lines of their docstrings."""
    found = {}
    for file in sorted(folder.glob("*.py")):
        text = file.read_text(encoding="utf-8")
        if '__name__ == "__main__"' in text:
            found[file.stem] = (ast.get_docstring(ast.parse(text)) or "-").splitlines()[0].replace("``", "")
    return found


def _root(folder: str) -> Path:
    """The clone that has this folder: the package's own, or the current directory."""
    for root in (BESIDE_PACKAGE, Path.cwd()):
        if (root / folder / "__init__.py").is_file() and (root / "src" / "genalpha").is_dir():
            return root
    raise Refused(
        f"the folder {folder}/ is not part of the installed package: run this from a clone of the repository "
        "(git clone, then cd into it)"
    )

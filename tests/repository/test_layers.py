"""The folders of the package are layers: a module imports from its own layer and from those below it."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import genalpha

ROOT = Path(genalpha.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
TESTS = sorted(Path(__file__).parents[1].rglob("*.py"))
# From the lowest to the highest. Names without a folder are modules of the package itself.
LAYERS = (
    "_version errors",
    "numerics",
    "compiler",
    "rotation mechanics",
    "methods",
    "analysis engine",
    "backends",
    "results",
    "run",
    "consistent solve solve_batch",
    "problems",
    "convergence",
    "__init__",
    "cli",
    "__main__",
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}
MOST_LINES, MOST_IN_FUNCTION, MOST_PARAMETERS = 400, 60, 8
FRONT_DOORS = {"solve", "solve_batch"}


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def layer(module: str) -> str:
    """The layer of a module such as ``genalpha.engine.step``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LEVEL else "__init__"


def module_of(path: Path) -> str:
    return ".".join(["genalpha", *path.relative_to(ROOT).with_suffix("").parts])


def imported(path: Path) -> list[tuple[int, str]]:
    """Modules of the package that a file imports, anywhere in it, with their lines."""
    found = []
    for node in _walk(tree(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, name.name) for name in node.names if name.name.startswith("genalpha")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("genalpha"):
            assert node.module is not None
            inside = [f"{node.module}.{name.name}" for name in node.names]
            found += [(node.lineno, name if node.module == "genalpha" else node.module) for name in inside]
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"relative import in {path}"
    return found


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes, without those that only type checkers see."""
    yield node
    for child in ast.iter_child_nodes(node):
        checked = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not checked:
            yield from _walk(child)


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    own = LEVEL[layer(module_of(path))]
    up = [f"line {line}: {name}" for line, name in imported(path) if LEVEL[layer(name)] > own]
    assert not up, f"{module_of(path)} imports from higher layers: {up}"


def test_every_module_has_a_layer() -> None:
    top = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES}
    assert top == set(LEVEL)


def test_class_names_are_unique() -> None:
    classes = [n.name for path in FILES for n in ast.walk(tree(path)) if isinstance(n, ast.ClassDef)]
    assert not {name for name, count in Counter(classes).items() if count > 1}


@pytest.mark.parametrize("path", FILES + TESTS, ids=lambda p: p.name)
def test_sizes(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES
    for function in functions(path):
        body = function.body
        documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        first = body[1] if documented and len(body) > 1 else body[0]
        length = (function.end_lineno or 0) - first.lineno + 1
        assert length <= MOST_IN_FUNCTION, f"{function.name} has {length} lines"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_parameters(path: Path) -> None:
    for function in functions(path):
        given = function.args
        names = [a.arg for a in itertools.chain(given.posonlyargs, given.args, given.kwonlyargs)]
        count = len([name for name in names if name not in ("self", "cls")])
        assert count <= MOST_PARAMETERS or function.name in FRONT_DOORS, f"{function.name} takes {count}"

"""The folders of the package are layers: a module imports from its own layer and from those below it.

Files, functions and parameter lists have limits, and every class name occurs once.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

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
    "results view",
    "run",
    "consistent solve solve_batch",
    "sensitivity sweep",
    "statics",
    "multibody symbolic",
    "problems",
    "convergence",
    "__init__",
    "cli",
    "__main__",
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}
MOST_LINES, MOST_IN_FUNCTION, MOST_PARAMETERS = 400, 60, 8
FRONT_DOORS = {"solve", "solve_batch", "sweep"}
# Bodies, joints and forces have as many options as users have data of them.
MODELLING = {"bodies.py", "contact.py", "forces.py"}


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes, without those that only type checkers see."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from walk(child)


def layer(module: str) -> str:
    """The layer of a module such as ``genalpha.engine.step``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LEVEL else "__init__"


def module_of(path: Path) -> str:
    return ".".join(["genalpha", *path.relative_to(ROOT).with_suffix("").parts])


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Modules of the package that a file imports, anywhere in it, with their lines."""
    for node in walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names if name.name.startswith("genalpha"))
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"a relative import in {path}"
            if node.module == "genalpha":
                yield from ((node.lineno, f"genalpha.{name.name}") for name in node.names)
            elif (node.module or "").startswith("genalpha."):
                yield node.lineno, str(node.module)


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef))


def length(function: ast.FunctionDef) -> int:
    """Lines of the body, without the docstring."""
    body = function.body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    first = body[1] if documented and len(body) > 1 else body[0]
    return (function.end_lineno or 0) - first.lineno + 1


def test_imports_go_down() -> None:
    up = [
        f"{module_of(path)}, line {line}: {name}"
        for path in FILES
        for line, name in imported(path)
        if LEVEL[layer(name)] > LEVEL[layer(module_of(path))]
    ]
    assert not up


def test_an_import_that_goes_up_is_seen(tmp_path: Path) -> None:
    (tmp_path / "low.py").write_text("def f():\n    from genalpha.run import single\n")
    assert list(imported(tmp_path / "low.py")) == [(2, "genalpha.run")]
    assert LEVEL[layer("genalpha.run.single")] > LEVEL[layer("genalpha.engine.step")]


def test_every_module_has_a_layer() -> None:
    top = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES}
    assert top == set(LEVEL)


def test_class_names_are_unique() -> None:
    classes = [node.name for path in FILES for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)]
    assert not {name for name, count in Counter(classes).items() if count > 1}


def test_no_file_is_too_long() -> None:
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES + TESTS}
    assert not {name: count for name, count in lines.items() if count > MOST_LINES}


def test_no_function_is_too_long() -> None:
    long = [(path.name, f.name, length(f)) for path in FILES + TESTS for f in functions(path)]
    assert not [found for found in long if found[2] > MOST_IN_FUNCTION]


def test_no_list_of_parameters_is_too_long() -> None:
    def count(function: ast.FunctionDef) -> int:
        given = function.args
        names = [a.arg for a in itertools.chain(given.posonlyargs, given.args, given.kwonlyargs)]
        return len([name for name in names if name not in ("self", "cls")])

    found = [(path.name, f.name, count(f)) for path in FILES for f in functions(path)]
    many = [f for f in found if f[2] > MOST_PARAMETERS and f[1] not in FRONT_DOORS]
    assert not [f for f in many if f[0] not in MODELLING]


def test_every_package_has_tests_of_its_name() -> None:
    packages = {path.parent.relative_to(ROOT).parts[0] for path in FILES if path.parent != ROOT}
    folders = {path.parent.name for path in TESTS}
    assert packages <= folders

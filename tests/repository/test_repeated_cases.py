"""The list of cases that repeat others names tests that exist."""

from pathlib import Path

from conftest import REPEATED

ROOT = Path(__file__).resolve().parents[2]


def test_every_line_names_a_test():
    lines = [line for line in REPEATED.read_text().splitlines() if line and line[0] != "#"]
    for line in lines:
        path, _, name = line.partition("::")
        assert (ROOT / path).is_file(), line
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), line
    assert lines == sorted(set(lines))

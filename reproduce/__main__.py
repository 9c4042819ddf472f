"""Make every picture, every table and the summary page: ``python -m reproduce [--to FOLDER] [NAME ...]``."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path

from reproduce import ACB15, J11, JN08, YPR98, extrapolation, orders
from reproduce.common import Experiment, Result

PAPERS = (JN08, J11, ACB15, YPR98, orders, extrapolation)
INTRODUCTION = (
    "Made by `make reproduce`. y and z are the papers' symbols for q and v. Slopes are least squares over "
    "all steps shown, unless stated otherwise. Every number that is checked has a band: the expected value "
    "and how far the measured one may be from it."
)
EXPERIMENTS = {e.name: e for paper in PAPERS for e in paper.EXPERIMENTS}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m reproduce", description=__doc__)
    parser.add_argument("names", nargs="*", help="experiments, all by default: " + ", ".join(EXPERIMENTS))
    parser.add_argument("--to", type=Path, default=Path("out/reproduce"), help="folder for the results")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}. Known: {', '.join(EXPERIMENTS)}")
    options.to.mkdir(parents=True, exist_ok=True)
    results = []
    for name in options.names or EXPERIMENTS:
        experiment = EXPERIMENTS[name]
        result = experiment.run()
        experiment.plot(result.data).savefig(options.to / f"{name}.png", dpi=110)
        results.append((experiment, result))
        print(f"{name}: {experiment.title}\n{result.table}\n{verdict(result)}\n", flush=True)
    (options.to / "README.md").write_text(summary(results), encoding="utf-8")
    print(f"pictures and summary in {options.to}")
    return 0 if all(check.passed for _, result in results for check in result.checks) else 1


def verdict(result: Result) -> str:
    failed = [c for c in result.checks if not c.passed]
    if not failed:
        return f"all {len(result.checks)} numbers within their bands"
    return "OUT OF BAND: " + "; ".join(
        f"{c.name} = {c.value:.3f}, expected {c.expected:g} ± {c.band:g}" for c in failed
    )


def summary(results: list[tuple[Experiment, Result]]) -> str:
    """The page that sets paper and measurement side by side."""
    lines = [
        "# Reproduced experiments",
        "",
        *_filled(INTRODUCTION),
        "",
        "| experiment | paper | measured | |",
        "|---|---|---|---|",
    ]
    for experiment, result in results:
        few = result.checks if len(result.checks) <= 6 else []
        measured = (
            ", ".join(f"{c.name} {c.value:.2f}" for c in few) or f"{len(result.checks)} numbers, see below"
        )
        ok = "within bands" if all(c.passed for c in result.checks) else "**out of band**"
        anchor = experiment.name.lower().replace(".", "")
        lines.append(f"| [{experiment.name}](#{anchor}) | {experiment.paper} | {measured} | {ok} |")
    for experiment, result in results:
        picture = f"![{experiment.title}]({experiment.name}.png)"
        title = experiment.title if experiment.title.endswith("?") else f"{experiment.title}."
        lines += ["", f"## {experiment.name}", "", *_filled(title), "", *_filled(experiment.notes), ""]
        lines += [*_filled(f"Paper: {experiment.paper}."), "", picture, "", result.table, ""]
        lines += [f"{verdict(result)}."]
    return "\n".join(lines) + "\n"


def _filled(text: str) -> list[str]:
    """A paragraph in lines of at most 100 characters."""
    return textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    sys.exit(main())

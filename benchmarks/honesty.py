"""Is the error that accuracy states the true one? Random systems against DOP853.

``python -m benchmarks.honesty`` runs the systems of ``tests/accuracy_claims.py``. It writes claims as they
come to ``out/bench/honesty.jsonl``, and a picture beside it. With ``--drawn`` it reads them from that file.
It takes some five minutes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.measure import OUT, markdown

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from accuracy_claims import ACCURACIES, AT_REST, NO_REFERENCE, SMOOTH, Claim, broken, claims, honest

MEMBERS = 13  # of each structure
WHERE, PICTURE = OUT / "honesty.jsonl", OUT / "accuracy_honesty.png"
HEAD = (
    "accuracy",
    "runs",
    "success",
    "counted",
    "true ≤ asked",
    "largest true / asked",
    "q, v: number, 1 %, 5 %, median, 95 %",
    "λ, ψ: number, 1 %, 5 %, median, 95 %",
)


def main(arguments: Sequence[str]) -> int:
    if "--drawn" not in arguments:
        survey()
    found = [Claim(*json.loads(line)) for line in WHERE.read_text(encoding="utf-8").splitlines()]
    print(markdown(HEAD, [row(found, accuracy) for accuracy in ACCURACIES]))
    print("\n".join(left_out(found)))
    picture(found).savefig(PICTURE, dpi=110)
    failed = broken(found)
    print("Broken promises: " + ("; ".join(failed) or "none"))
    return 1 if failed else 0


def survey() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with WHERE.open("w", encoding="utf-8") as file:
        for claim in claims(SMOOTH, MEMBERS):
            file.write(json.dumps(claim) + "\n")
            file.flush()


def power(accuracy: float) -> str:
    """1e-6 and the like."""
    return f"1e{round(np.log10(accuracy))}"


def ratios(good: Sequence[Claim]) -> tuple[np.ndarray, np.ndarray]:
    """Estimated over true errors of q and v, and of λ and ψ, where the reference can tell."""
    motion = [c.estimate / c.true for c in good if c.true > c.reference]
    forces = [c.forces / c.true_forces for c in good if c.true_forces > c.reference_forces]
    return np.array(motion), np.array(forces)


def row(found: Sequence[Claim], accuracy: float) -> list[str]:
    mine = [c for c in found if c.accuracy == accuracy]
    good, errors = honest(found, accuracy)
    done = sum(c.failed in ("", AT_REST, NO_REFERENCE) for c in mine)
    cells = [power(accuracy), *map(str, (len(mine), done, len(good)))]
    cells += [f"{100 * np.mean(errors <= 1):.1f} %", f"{errors.max():.2f}"]
    for x in ratios(good):
        cells.append(f"{len(x)}: " + ", ".join(f"{value:.2g}" for value in np.percentile(x, (1, 5, 50, 95))))
    return cells


def left_out(found: Sequence[Claim]) -> list[str]:
    """What is not counted, and why."""
    lines = [f"{count} times: {why}" for why, count in Counter(c.failed for c in found if c.failed).items()]
    for accuracy in ACCURACIES:
        mine = [c for c in found if c.accuracy == accuracy]
        good, _ = honest(found, accuracy)
        motion, forces = ratios(good)
        coarse = sum(c.reference >= 0.1 * accuracy for c in mine)
        held = sum(not np.isnan(c.true_forces) for c in good)
        lines.append(
            f"{power(accuracy)}: {coarse} with a reference that is not good enough; "
            f"{len(good) - len(motion)} of {len(good)} with errors of q and v below those of the reference, "
            f"{held - len(forces)} of {held} with such errors of λ and ψ"
        )
    return lines


def picture(found: Sequence[Claim]) -> Figure:
    """Histograms of estimated over true errors."""
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    bins = np.linspace(-2, 4, 37)
    for ax, accuracy in zip(axes, ACCURACIES, strict=True):
        kinds = (("q, v", "C0"), ("λ, ψ", "C1"))
        for x, (label, color) in zip(ratios(honest(found, accuracy)[0]), kinds, strict=True):
            logs = np.clip(np.log10(x), bins[0] + 1e-9, bins[-1] - 1e-9)
            style = {"histtype": "stepfilled", "alpha": 0.45, "color": color, "ec": color, "lw": 1.2}
            ax.hist(logs, bins, label=f"{label}: {len(x)} systems", **style)
        ax.axvline(0.0, color="k", lw=0.8)
        ax.set_title(f"accuracy = {power(accuracy)}", fontsize="medium")
        ticks = range(int(bins[0]), int(bins[-1]) + 1)
        ax.set_xticks(ticks, [f"$10^{{{i}}}$" for i in ticks])
        ax.grid(alpha=0.2)
        ax.legend(fontsize="small")
    for ax in axes[2:]:
        ax.set_xlabel("estimated / true error")
    for ax in axes[::2]:
        ax.set_ylabel("systems")
    return figure


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

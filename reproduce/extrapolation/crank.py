"""How far extrapolation goes on a stiff mechanism: the flexible slider crank."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from reproduce.common import Check, Experiment, Result
from reproduce.extrapolation.measure import PARTS, Rows, Run, relative, rows

END = 0.02
FASTEST = 118473.0  # 1/s, the highest frequency of the rod (YPR98-crank)
COLUMNS = (1, 2, 3, 4, 5)
INTERVALS = (25, 250, 1250, 2500, 5000, 10_000, 20_000)  # in a part
REFERENCE = 40_000
SYMBOLS = {"q": "q", "v": "v", "lam": "λ"}
Data = dict[str, np.ndarray]  # relative errors (columns, steps)


def known(found: Rows | None) -> Rows:
    if found is None:
        raise ArithmeticError("a run of the flexible slider crank failed")
    return found


def run() -> Result:
    problem = ga.problems.get("flexible-slider-crank")
    exact = known(rows(problem, END, REFERENCE, 5, Run("projected")))
    doubt = relative(known(rows(problem, END, REFERENCE, 5, Run("soi2", 0.6))), exact)
    data: Data = {name: np.empty((len(COLUMNS), len(INTERVALS))) for name in SYMBOLS}
    for i, columns in enumerate(COLUMNS):
        for j, count in enumerate(INTERVALS):
            found = known(rows(problem, END, count, columns, Run("soi2")))
            for name, error in relative(found, exact).items():
                data[name][i, j] = error
    return Result(data, table(data, doubt), checks(data))


def steps() -> np.ndarray:
    return END / (PARTS * np.array(INTERVALS))


def checks(data: Data) -> list[Check]:
    """With coarse steps five columns are no better than one. With fine ones they give many digits."""
    gain = np.log10(data["q"][0] / data["q"][-1])
    coarse, fine = INTERVALS.index(250), INTERVALS.index(5000)
    return [
        Check("digits of q gained by five columns, h = 2e-5", gain[coarse], 0.0, 0.7),
        Check("digits of q gained by five columns, h = 1e-6", gain[fine], 4.5, 0.7),
    ]


def table(data: Data, doubt: dict[str, float]) -> str:
    head = ["h", "ωh", *(f"{SYMBOLS[name]}, {columns}" for name in ("q", "lam") for columns in COLUMNS)]
    lines = [
        [f"{h:.1e}", f"{FASTEST * h:.2g}", *(f"{e:.0e}" for name in ("q", "lam") for e in data[name][:, j])]
        for j, h in enumerate(steps())
    ]
    text = "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))
    agreement = ", ".join(f"{doubt[name]:.0e} ({SYMBOLS[name]})" for name in SYMBOLS)
    return f"{text}\n\nThe reference agrees with another method to {agreement}."


def plot(data: Data) -> Figure:
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    for ax, name in zip(figure.subplots(1, 2), ("q", "lam"), strict=True):
        for i, columns in enumerate(COLUMNS):
            ax.loglog(steps(), data[name][i], "o-", mfc="none", lw=0.9, label=f"{columns}")
        ax.axvline(1 / FASTEST, color="k", lw=0.8, ls="--")
        ax.text(1.1 / FASTEST, 0.02, "ωh = 1", transform=ax.get_xaxis_transform())
        ax.set(xlabel="length of an interval, s", ylabel=f"relative error of {SYMBOLS[name]}")
        ax.grid(alpha=0.2)
        ax.legend(title="columns", fontsize="small", loc="lower right")
    return figure


EXPERIMENT = Experiment(
    name="extrapolation-crank",
    title="Extrapolated runs of the flexible slider crank",
    paper="none. The expansion of the error needs steps that resolve all vibrations",
    run=run,
    plot=plot,
    notes=(
        f"soi2, ρ∞ = 0.8, 0 to {END} s. The fastest vibration has ω = {FASTEST:g} 1/s. Relative errors as "
        "for `extrapolation`, for one to five columns; h is the length of an interval. The reference is a "
        f"run of `projected` with {PARTS * REFERENCE} intervals and 5 columns."
    ),
)

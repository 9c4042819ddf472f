"""Jay & Negrut 2008: figures 1, 2 and 4, what the adjusting formulas do, and the question under (13)."""

from reproduce.JN08 import adjusting, figure1, figure2, figure4, reduced

EXPERIMENTS = [
    figure1.EXPERIMENT,
    figure2.EXPERIMENT,
    figure4.EXPERIMENT,
    adjusting.EXPERIMENT,
    reduced.EXPERIMENT,
]

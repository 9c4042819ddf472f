"""Jay & Negrut 2008: figures 1, 2, 4, 6 and 7, the adjusting formulas, and the question under (13)."""

from reproduce.JN08 import adjusting, figure1, figure2, figure4, figure6_7, reduced

EXPERIMENTS = [
    figure1.EXPERIMENT,
    figure2.EXPERIMENT,
    figure4.EXPERIMENT,
    figure6_7.EXPERIMENT,
    adjusting.EXPERIMENT,
    reduced.EXPERIMENT,
]

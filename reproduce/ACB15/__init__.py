"""Arnold, Cardona & Brüls 2015: figures 1 and 2, the transient, the start, orders on Lie groups, analysis."""

from reproduce.ACB15 import analysis, figure1, figure2, orders, start, transient

EXPERIMENTS = [
    figure1.EXPERIMENT,
    figure2.EXPERIMENT,
    transient.EXPERIMENT,
    start.EXPERIMENT,
    orders.EXPERIMENT,
    analysis.EXPERIMENT,
]

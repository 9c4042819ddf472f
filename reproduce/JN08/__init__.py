"""Jay & Negrut 2008: figures 1, 2 and 4, and the question under (13)."""

from reproduce.JN08 import figure1, figure2, figure4, reduced

EXPERIMENTS = [figure1.EXPERIMENT, figure2.EXPERIMENT, figure4.EXPERIMENT, reduced.EXPERIMENT]

"""Jay 2011: figures 7.1 and 7.2, and the decay of the starting error."""

from reproduce.J11 import figure7_1, figure7_2, start

EXPERIMENTS = [figure7_1.EXPERIMENT, figure7_2.EXPERIMENT, start.EXPERIMENT]

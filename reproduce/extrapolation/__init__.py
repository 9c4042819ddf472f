"""Orders of extrapolated runs, measured."""

from reproduce.extrapolation import crank, orders

EXPERIMENTS = [orders.EXPERIMENT, crank.EXPERIMENT]

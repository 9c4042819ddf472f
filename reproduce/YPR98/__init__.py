"""Yen, Petzold & Raha 1998: orders, figures 2 to 12, tables 1 and 2, and what they depend on."""

from reproduce.YPR98 import bushing, crank, linear, orders, policies, spring, table2

EXPERIMENTS = [
    orders.EXPERIMENT,
    linear.EXPERIMENT,
    spring.EXPERIMENT,
    bushing.EXPERIMENT,
    policies.EXPERIMENT,
    crank.EXPERIMENT,
    table2.EXPERIMENT,
]

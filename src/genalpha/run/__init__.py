"""Runs, from the arguments of ``solve`` and ``solve_batch`` to a solution."""

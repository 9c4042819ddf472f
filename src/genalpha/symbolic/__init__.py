"""Systems from the expressions of SymPy."""

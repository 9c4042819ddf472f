"""What SymPy's own equations say, by its `lambdify`, and points on its constraints."""

import numpy as np
import sympy as sp
from sympy.physics.mechanics import dynamicsymbols


def function(expressions, *groups):
    """A NumPy function of groups of symbols, which may be derivatives."""
    dummies = {x: sp.Dummy() for group in groups for x in group}
    replaced = sp.Matrix(expressions).xreplace(dummies)
    call = sp.lambdify([[dummies[x] for x in group] for group in groups], replaced, cse=True)
    return lambda *numbers: np.array(call(*numbers), dtype=float)


def closed(expressions, q, numbers, start):
    """Coordinates near ``start`` at which expressions vanish, by Newton's method."""
    jacobian = sp.Matrix(expressions).jacobian(q)
    g, G = (function(x, list(numbers), q) for x in (expressions, jacobian))
    start = np.array(start, dtype=float)
    for _ in range(30):
        at = list(numbers.values()), start
        start -= np.linalg.lstsq(G(*at), g(*at).ravel(), rcond=None)[0]
    return start


def moving(expressions, q, u, numbers, at, start):
    """Speeds near ``start`` at which expressions that are linear in them vanish."""
    jacobian = sp.Matrix(expressions).jacobian(u)
    k, K = (
        function(x, list(numbers), q, u)(list(numbers.values()), at, start) for x in (expressions, jacobian)
    )
    return start - np.linalg.lstsq(K, k.ravel(), rcond=None)[0]


def kane_rates(method, numbers, q, u, given=None):
    """u' from the mass matrix and forcing terms of a ``KanesMethod`` whose equations are formed."""
    given = given or {}
    matrix, right = (
        function(x, [*numbers, *given], list(method.q), list(method.u))(
            [*numbers.values(), *given.values()], q, u
        )
        for x in (method.mass_matrix, method.forcing)
    )
    return np.linalg.solve(matrix, right).ravel()


def lagrange_rates(method, numbers, q, v):
    """q'' and multipliers from the mass matrix and forcing terms of a ``LagrangesMethod``."""
    rates = [x.diff(dynamicsymbols._t) for x in method.q]
    matrix, right = (
        function(x, list(numbers), list(method.q), rates)(list(numbers.values()), q, v)
        for x in (method.mass_matrix_full, method.forcing_full)
    )
    found, n = np.linalg.solve(matrix, right).ravel(), len(method.q)
    return found[n : 2 * n], found[2 * n :]

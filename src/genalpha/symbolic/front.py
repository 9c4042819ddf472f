"""``from_sympy``: a system from an object or from expressions of SymPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genalpha.symbolic.model import SymbolicSystem


@dataclass(frozen=True, eq=False)
class Expressions:
    """Equations of motion M(t, q) u' = f(t, q, u) as expressions of SymPy.

    Parameters
    ----------
    mass : matrix (n, n).
    forcing : list or matrix (n,).
    coordinates : functions of time q(t), a list.
    speeds : functions of time u(t), a list; by default the derivatives of the coordinates.
    kinematics : expressions that vanish, linear in q' and u, one for each coordinate; or {q': expression}.
    configuration : expressions of t and q that vanish, (m,). Their multipliers are λ. For u = q' the
        equations are M q'' = f − Gᵀλ − Kᵀψ with G = ∂g/∂q and K = ∂k/∂q'.
    velocity : expressions of t, q, q' and u that vanish, (p,). Those that are derivatives of configuration
        constraints are left out. The multipliers of the others are ψ.
    """

    mass: Any
    forcing: Any
    coordinates: Sequence[Any]
    speeds: Sequence[Any] = ()
    kinematics: Sequence[Any] | Mapping[Any, Any] = ()
    configuration: Sequence[Any] = ()
    velocity: Sequence[Any] = ()


def from_sympy(
    source: Any,
    parameters: Mapping[Any, float] | None = None,
    specified: Mapping[Any, Any] | None = None,
) -> SymbolicSystem:
    """A system from SymPy's ``LagrangesMethod``, ``KanesMethod`` or ``System``, or from :class:`Expressions`.

    The result is a :class:`genalpha.System` in the coordinates q and v = q'. SymPy need not form equations
    before: they are formed here from the Lagrangian, or from the bodies and loads, which takes less time.
    Dependent coordinates and speeds are not eliminated; the constraints are handed over.

    Parameters
    ----------
    source : the object. ``KanesMethod`` needs ``bodies`` and ``forcelist``, or formed equations.
    parameters : numbers for symbols, by symbol or name. They are defaults: ``solve(..., args=({"m": 2.0},))``
        changes some of them. Without args these are used.
    specified : for functions of time that are neither coordinates nor speeds, by function or name: an
        expression of t, a number, a function of t written with ``jax.numpy``, or a table (times, values),
        through which a cubic spline goes. Before and after the table its ends hold.

    Example
    -------
    >>> import sympy as sp, genalpha as ga
    >>> from sympy.physics.mechanics import LagrangesMethod, dynamicsymbols
    >>> x, y = dynamicsymbols("x y")
    >>> m, g, l = sp.symbols("m g l")
    >>> energy = m * (x.diff()**2 + y.diff()**2) / 2
    >>> method = LagrangesMethod(energy - m * g * y, [x, y], hol_coneqs=[x**2 + y**2 - l**2])
    >>> system = ga.from_sympy(method, parameters={m: 1.0, g: 9.81, l: 1.0})
    >>> q0, v0 = system.start({x: 1.0, y: 0.0})
    >>> sol = ga.solve(system, (0.0, 1.0), q0, v0, h=1e-3)
    >>> change = system.values(sol, energy + m * g * y)
    >>> bool(abs(change).max() < 1e-4)
    True
    """
    try:
        import sympy.physics.mechanics  # noqa: F401 - asked for here, so that the message is clear
    except ImportError as error:
        raise ImportError("from_sympy needs SymPy: pip install genalpha[sympy]") from error
    from genalpha.symbolic.model import make

    return make(source, parameters or {}, specified or {})

"""Random constrained systems: a few structures, whose coefficients come from a seed through ``args``.

Every function is written for NumPy and for JAX alike (``xp``), so that results can be judged without JAX.
Each structure is one :class:`ga.System`, compiled once; its members differ in numbers alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

import genalpha as ga
from genalpha.errors import InconsistentInitialValues, RedundantConstraints, SingularSystem

Args = dict[str, Any]
DEPENDENT = (RedundantConstraints, SingularSystem)


@dataclass(frozen=True)
class Member:
    """One system of a structure: initial values, coefficients, and what must become of it.

    ``trait`` says what is special about it, ``refused`` are the exceptions with which it may be refused at
    the start. ``fate`` is "ends" (reaches the end), "refused" (always so), or "any". ``length`` is the size
    of its coordinates; ``h`` a step that fits it.
    """

    q0: np.ndarray
    v0: np.ndarray
    args: Args
    span: tuple[float, float] = (0.0, 1.0)
    h: float = 0.02
    length: float = 1.0
    trait: str = "plain"
    fate: str = "ends"
    refused: tuple[type[Exception], ...] = ()


@dataclass(frozen=True, eq=False)
class Structure:
    """Functions of (xp, t, q[, v], args) and a way to draw members; n, m, p are the numbers of rows."""

    name: str
    n: int
    m: int
    p: int
    mass: Callable[..., Any]
    force: Callable[..., Any]
    draw: Callable[[np.random.Generator], Member]
    holonomic: Callable[..., Any] | None = None
    nonholonomic: Callable[..., Any] | None = None
    space: ga.Space | None = None
    rate: Callable[[np.ndarray, np.ndarray], np.ndarray] = field(default=lambda q, v: v)

    @functools.cached_property
    def system(self) -> ga.System:
        bind = lambda function: None if function is None else functools.partial(function, jnp)
        return ga.System(
            bind(self.mass),
            bind(self.force),
            bind(self.holonomic),
            bind(self.nonholonomic),
            space=self.space,
        )

    # --- NumPy's opinion, one row at a time ---------------------------------------------------------------

    def g(self, t: float, q: np.ndarray, args: Args) -> np.ndarray:
        return np.zeros(0) if self.holonomic is None else self.holonomic(np, t, q, args)

    def g_dot(self, t: float, q: np.ndarray, v: np.ndarray, args: Args) -> np.ndarray:
        """g_t + G v: the derivative along the motion, by a complex step, exact to rounding."""
        step = 1e-100
        return np.imag(self.g(t + 1j * step, q + 1j * step * self.rate(q, v), args)) / step

    def G(self, t: float, q: np.ndarray, args: Args) -> np.ndarray:
        step = 1e-100
        columns = [np.imag(self.g(t, q + 1j * step * self.rate(q, e), args)) / step for e in np.eye(self.n)]
        return np.array(columns).T.reshape(-1, self.n)

    def k(self, t: float, q: np.ndarray, v: np.ndarray, args: Args) -> np.ndarray:
        return np.zeros(0) if self.nonholonomic is None else self.nonholonomic(np, t, q, v, args)

    def K(self, t: float, q: np.ndarray, v: np.ndarray, args: Args) -> np.ndarray:
        step = 1e-100
        columns = [np.imag(self.k(t, q, v + 1j * step * e, args)) / step for e in np.eye(self.n)]
        return np.array(columns).T.reshape(-1, self.n)


def decades(rng: np.random.Generator, low: float, high: float) -> float:
    return float(10 ** rng.uniform(low, high))


def spd(rng: np.random.Generator, n: int, spread: float = 0.5) -> np.ndarray:
    """A positive definite matrix, with eigenvalues over 2·spread decades."""
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return basis * 10 ** rng.uniform(-spread, spread, n) @ basis.T


# --- polynomials: A q + ½ q·B q = c + d sin ωt, (E + H q) v = e cos ωt, M = M0 + diag(μ q²) -----------------


def poly_mass(xp: Any, t: Any, q: Any, a: Args) -> Any:
    return a["M"] + xp.diag(a["mu"] * q**2)


def poly_force(xp: Any, t: Any, q: Any, v: Any, a: Args) -> Any:
    return a["F"] * xp.cos(a["omega"] * t) - a["K"] @ q - a["D"] @ v - a["cubic"] * q**3


def poly_g(xp: Any, t: Any, q: Any, a: Args) -> Any:
    return (a["A"] + 0.5 * a["B"] @ q) @ q - a["c"] - a["d"] * xp.sin(a["omega"] * t)


def poly_k(xp: Any, t: Any, q: Any, v: Any, a: Args) -> Any:
    return (a["E"] + a["H"] @ q) @ v - a["e"] * xp.cos(a["omega"] * t)


TRAITS = [
    "plain", "plain", "plain", "linear", "stiff", "very stiff", "at rest", "large", "small", "heavy", "light",
    "late", "dependent", "contradictory", "nearly dependent", "singular start", "crossing", "inconsistent",
    "inconsistent v",
    "singular mass", "indefinite mass", "no mass", "fast", "zero row", "unequal rows", "bent", "bent",
]  # fmt: skip


def poly_member(rng: np.random.Generator, n: int, m: int, p: int, trait: str | None = None) -> Member:
    trait = trait or str(rng.choice(TRAITS))
    a = _poly_args(rng, n, m, p, trait)
    q0, wish, t0 = rng.normal(size=n), rng.normal(size=n), 0.0
    if trait == "at rest":
        q0, wish = np.zeros(n), np.zeros(n)
    elif trait == "late":
        t0 = decades(rng, 2, 5)
    elif trait == "fast":
        wish = wish * decades(rng, 1, 3)
    elif trait == "singular start" and m:
        q0 = np.zeros(n)
    elif trait == "crossing" and m and n > 1:
        q0[0], q0[1], wish[0], wish[1] = 0.5, 0.0, -1.0, 0.0
    options = _poly_coefficients(rng, a, n, m, p, trait) | (_poly_rows(rng, a, n, m, trait) if m else {})
    if m:
        a["c"] = np.zeros(m)
        a["c"] = poly_g(np, t0, q0, a)
    if trait == "contradictory" and m > 1:
        a["c"][m - 1] += rng.choice([1e-3, 1.0])
    v0 = _allowed(t0, q0, wish, a)
    if trait == "inconsistent" and m:
        q0 = q0 + rng.normal(size=n)
        options = {"fate": "refused", "refused": (InconsistentInitialValues,)}
    elif trait == "inconsistent v" and m + p:
        v0 = v0 + rng.normal(size=n)
        options = {"fate": "refused", "refused": (InconsistentInitialValues,)}
    member = Member(q0, v0, a, (t0, t0 + 1.0), trait=trait, **options)
    if m + p > n:  # more constraints than motions
        member = _changed(member, fate="refused", refused=(ValueError,))
    return _scaled(rng, member) if trait in ("large", "small", "heavy", "light") else member


def _poly_args(rng: np.random.Generator, n: int, m: int, p: int, trait: str) -> Args:
    """Coefficients as they are before a trait changes them."""
    a: Args = {
        "M": spd(rng, n), "mu": rng.uniform(0, 0.5, n) * rng.integers(2),
        "K": spd(rng, n), "D": 0.1 * spd(rng, n), "cubic": rng.uniform(0, 0.3, n), "F": rng.normal(size=n),
        "omega": rng.uniform(0.5, 4.0),
    }  # fmt: skip
    if m:
        bend = rng.normal(size=(m, n, n)) * {"bent": 0.3}.get(trait, 0.02 * rng.integers(2))
        a |= {"A": np.linalg.qr(rng.normal(size=(n, n)))[0][np.arange(m) % n] + 0.2 * rng.normal(size=(m, n))}
        a |= {"B": bend + bend.transpose(0, 2, 1), "d": 0.3 * rng.normal(size=m) * rng.integers(2)}
    if p:
        a |= {"E": rng.normal(size=(p, n)), "H": 0.3 * rng.normal(size=(p, n, n)) * rng.integers(2)}
        a |= {"e": 0.3 * rng.normal(size=p) * rng.integers(2)}
    return a


UNSURE = {"fate": "any"}
REFUSED_SOMEHOW = (*DEPENDENT, InconsistentInitialValues)


def _poly_coefficients(rng: np.random.Generator, a: Args, n: int, m: int, p: int, trait: str) -> Args:
    """Change mass, forces and what moves; returns what must become of such a member."""
    if trait == "linear":
        a |= {"mu": np.zeros(n), "cubic": np.zeros(n)} | ({"B": np.zeros((m, n, n))} if m else {})
        a |= {"H": np.zeros((p, n, n))} if p else {}
    elif trait in ("stiff", "very stiff"):
        a["K"] = spd(rng, n, 3.0 if trait == "stiff" else 7.0)
    elif trait == "at rest":
        a |= {"F": np.zeros(n)} | ({"d": np.zeros(m)} if m else {}) | ({"e": np.zeros(p)} if p else {})
    elif trait in ("singular mass", "indefinite mass", "no mass"):
        basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
        values = np.ones(n) if trait != "no mass" else np.zeros(n)
        values[0] = {"singular mass": 0.0, "indefinite mass": -1.0, "no mass": 0.0}[trait]
        a |= {"M": basis * values @ basis.T, "mu": np.zeros(n)}
        if trait == "singular mass" and rng.integers(2):  # exactly so, and perhaps held by a constraint
            a["M"] = np.diag(np.append(np.ones(n - 1), 0.0))
        return {"fate": "any", "refused": (SingularSystem,)}
    # Bent constraints may become dependent on the way, or have no solution at all.
    return UNSURE if trait in ("very stiff", "bent", "fast") else {}


def _poly_rows(rng: np.random.Generator, a: Args, n: int, m: int, trait: str) -> Args:
    """Change the holonomic constraints; returns what must become of such a member."""
    first, last = 0, m - 1
    if trait == "singular start":
        a["A"][last] = 0
        return UNSURE | {"refused": REFUSED_SOMEHOW}
    if trait == "crossing" and n > 1:  # q_0 q_1 = 0: its gradient vanishes where the motion passes
        a["A"][0], a["B"][0], a["d"][0] = 0, 0, 0
        a["B"][0, 0, 1] = a["B"][0, 1, 0] = 1.0
        return UNSURE | {"refused": REFUSED_SOMEHOW}
    if trait not in ("dependent", "contradictory", "nearly dependent", "zero row", "unequal rows"):
        return {}
    by = rng.uniform(0.5, 2.0)
    if trait == "zero row":
        for name in ("A", "B", "d"):
            a[name][last] = 0
        return {"fate": "refused", "refused": DEPENDENT}
    if trait == "unequal rows":  # residuals at the start are measured by an absolute tolerance
        size = 10.0 ** rng.uniform(-6, 6, m)
        a |= {name: (a[name].T * size).T for name in ("A", "B", "d")}
        return UNSURE
    if m == 1:
        return {}
    for name in ("A", "B", "d"):
        a[name][last] = by * a[name][first]
    if trait == "nearly dependent":
        a["A"][last] += decades(rng, -13, -2) * rng.normal(size=n)
        return UNSURE | {"refused": REFUSED_SOMEHOW}
    return {"fate": "refused", "refused": REFUSED_SOMEHOW}


def _changed(member: Member, **changes: Any) -> Member:
    return Member(**(member.__dict__ | changes))


def _allowed(t: float, q: np.ndarray, wish: np.ndarray, a: Args) -> np.ndarray:
    """The velocity nearest to a wish that the constraints of a polynomial system allow."""
    rows, rest = [np.zeros((0, len(q)))], [np.zeros(0)]
    if "A" in a:
        rows += [a["A"] + a["B"] @ q]
        rest += [a["d"] * a["omega"] * np.cos(a["omega"] * t)]
    if "E" in a:
        rows += [a["E"] + a["H"] @ q]
        rest += [a["e"] * np.cos(a["omega"] * t)]
    matrix, right = np.concatenate(rows), np.concatenate(rest)
    v = wish
    for _ in range(2 if len(right) else 0):
        v = v + np.linalg.lstsq(matrix, right - matrix @ v, rcond=1e-12)[0]
    return v


def _scaled(rng: np.random.Generator, x: Member) -> Member:
    """The same motion in other units of length or mass."""
    by, a = decades(rng, 2, 7), dict(x.args)
    if x.trait in ("heavy", "light"):
        by = by if x.trait == "heavy" else 1 / by
        a |= {name: a[name] * by for name in ("M", "mu", "K", "D", "cubic", "F")}
        return _changed(x, args=a)
    by = by if x.trait == "large" else 1 / by
    a |= {"F": a["F"] * by, "mu": a["mu"] / by**2, "cubic": a["cubic"] / by**2}
    if "A" in a:  # g is a length, too
        a |= {"B": a["B"] / by, "c": a["c"] * by, "d": a["d"] * by}
    if "E" in a:
        a |= {"H": a["H"] / by, "e": a["e"] * by}
    return _changed(x, q0=x.q0 * by, v0=x.v0 * by, args=a, length=by)


def poly_accelerations(t: float, q: np.ndarray, v: np.ndarray, a: Args) -> np.ndarray:
    """v' of a polynomial system, by elimination: the constraints twice differentiated by hand."""
    n, omega = len(q), a["omega"]
    rows, rest = [np.zeros((0, n))], [np.zeros(0)]
    if "A" in a:
        rows += [a["A"] + a["B"] @ q]
        rest += [-(a["B"] @ v) @ v - a["d"] * omega**2 * np.sin(omega * t)]
    if "E" in a:
        rows += [a["E"] + a["H"] @ q]
        rest += [-(a["H"] @ v) @ v - a["e"] * omega * np.sin(omega * t)]
    matrix, right = np.concatenate(rows), np.concatenate(rest)
    M, f = poly_mass(np, t, q, a), poly_force(np, t, q, v, a)
    basis = np.linalg.svd(matrix)[2][len(matrix) :].T  # motions that the constraints allow
    part = np.linalg.lstsq(matrix, right, rcond=None)[0] if len(right) else np.zeros(n)
    return part + basis @ np.linalg.solve(basis.T @ M @ basis, basis.T @ (f - M @ part))


def poly(n: int, m: int, p: int) -> Structure:
    draw = functools.partial(poly_member, n=n, m=m, p=p)
    g, k = (poly_g if m else None), (poly_k if p else None)
    return Structure(f"poly-{n}-{m}-{p}", n, m, p, poly_mass, poly_force, draw, g, k)

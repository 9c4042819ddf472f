"""A problem as F(t, y, y') = 0, for general solvers of DAEs: F and its derivatives in machine code.

The equations are those that genalpha integrates, with the problem's parameters as numbers in the code, so
that a solver spends its time on its own work: a call of F costs a microsecond or two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import genalpha as ga
from genalpha.backends.native.code import aligned
from genalpha.compiler import emit_llvm, machine
from genalpha.compiler.differentiate import jacobian
from genalpha.compiler.graph import Graph
from genalpha.compiler.program import Builder, Loop, Map, Walk
from genalpha.compiler.reader import Symbols, inline
from genalpha.mechanics.system import Dims

Array = np.ndarray
Problem = ga.problems.Problem


class Form:
    """One statement of a problem, with y = (q, v, x).

    Where ``differentiated``, constraints are those of acceleration, x = (λ, ψ), and the index is 1. Otherwise
    the index is 2: constraints of position and of velocity with q' = v − Gᵀμ after Gear, Gupta and
    Leimkuhler, x = (λ, ψ, μ); q' moves along the problem's space. Where ``integrated``, x are the integrals
    of the multipliers, which then are entries of y': that lowers the index by one.
    """

    def __init__(self, problem: Problem, differentiated: bool = False, integrated: bool = False) -> None:
        self.problem, self.differentiated, self.integrated = problem, differentiated, integrated
        state = ga.consistent(problem.system, problem.t_span[0], problem.q0, problem.v0, problem.args)
        self.dims = Dims(n=len(state.v), m=len(state.lam), p=len(state.psi), size=len(state.q))
        self.y0, self.yp0 = self.at(state)
        self.size = len(self.y0)
        self._compile()

    @property
    def name(self) -> str:
        base = "index 1" if self.differentiated else "GGL" if self.dims.m else "index 2"
        return base + ("∫" if self.integrated else "")

    @property
    def free(self) -> slice:
        """Where x lies in y."""
        return slice(self.dims.size + self.dims.n, None)

    def at(self, state: ga.State) -> tuple[Array, Array]:
        """y and y' of a state. Multipliers that only stabilise are zero."""
        extra = 0 if self.differentiated else self.dims.m
        multipliers = np.concatenate([state.lam, state.psi, np.zeros(extra)])
        zero = np.zeros(len(multipliers))
        rate = np.asarray(self.problem.system.space.rate(jnp.asarray(state.q), jnp.asarray(state.v)))
        y, yp = [state.q, state.v], [rate, state.a]
        if self.integrated:
            return np.concatenate([*y, zero]), np.concatenate([*yp, multipliers])
        return np.concatenate([*y, multipliers]), np.concatenate([*yp, zero])

    # --- the equations ------------------------------------------------------------------------------

    def equations(self, t: jax.Array, y: jax.Array, yp: jax.Array) -> jax.Array:
        """F(t, y, y') with JAX."""
        system, args, (n, m, p) = self.problem.system, self.problem.args, self._sizes
        cut = np.cumsum([self.dims.size, n])
        (q, v, _), (q_dot, a, _) = jnp.split(y, cut), jnp.split(yp, cut)
        lam, psi, mu = jnp.split((yp if self.integrated else y)[self.free], [m, m + p])
        motion = system.M(t, q, args) @ a - system.f(t, q, v, lam, psi, args)
        if self.differentiated:
            drift = v
            constraints = [system.g_ddot(t, q, v, a, args), system.k_dot(t, q, v, a, args)]
        else:
            drift = v + system.holonomic_force(t, q, mu, args) if m else v
            constraints = [*system.g_and_dot(t, q, v, args), system.k(t, q, v, args)]
        return jnp.concatenate([q_dot - system.space.rate(q, drift), motion, *constraints])

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.dims.n, self.dims.m, self.dims.p

    def _compile(self) -> None:
        """Three functions of (t, c, y, y'): F, the pair of its matrices, and F_y + c F_y'."""
        graph, size = Graph(), self.size
        builder = Builder(graph)
        ids = builder.inputs(builder.slot(2 + 2 * size), 0)
        c, t, y, yp = int(ids[0]), ids[1], ids[2 : 2 + size], ids[2 + size :]
        symbols = [Symbols(each, "f") for each in (np.reshape(t, ()), y, yp)]
        values = np.asarray(inline(graph, self.equations, *symbols))
        by_y, by_yp = (jacobian(graph, values, each).reshape(-1) for each in (y, yp))
        pairs = zip(by_y.tolist(), by_yp.tolist(), strict=True)
        mixed = np.array([graph.add(a, graph.mul(c, b)) for a, b in pairs])
        outputs = {"values": values, "matrices": np.concatenate([by_y, by_yp]), "mixed": mixed}
        first = range(builder.slots)
        maps: dict[str, Loop | Map | Walk] = {}
        for name, nodes in outputs.items():
            slots = builder.slot(len(nodes))
            builder.kernel(f"{name}_row", 0, (slots, nodes))
            maps[name] = Map(f"{name}_row", first, range(slots[0], slots[0] + len(nodes)))
        program = builder.build({})
        library = machine.Library(emit_llvm.emit([(program, maps)], 1), list(maps))
        self._work, self._given = aligned(program.slots), aligned(2 + 2 * size)
        self._results = {name: aligned(len(nodes)) for name, nodes in outputs.items()}
        self._run = {name: self._bound(library, name) for name in maps}

    def _bound(self, library: machine.Library, name: str) -> Callable[[], None]:
        entry = library.function(name, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)
        pointers = [each.ctypes.data for each in (self._work, self._given, self._results[name])]
        return lambda: entry(*pointers, 1, len(self._given))

    def _called(self, name: str, t: float, y: Array, yp: Array, c: float = 0.0) -> Array:
        """What one of the functions returns, in an array that the next call overwrites."""
        given, size = self._given, self.size
        given[0], given[1] = c, t
        given[2 : 2 + size] = y
        given[2 + size :] = yp
        self._run[name]()
        return self._results[name]

    def values(self, t: float, y: Array, yp: Array) -> Array:
        """F(t, y, y')."""
        return self._called("values", t, y, yp).copy()

    def values_into(self, t: float, y: Array, yp: Array, out: Array) -> None:
        """The same, written where IDA wants it."""
        out[:] = self._called("values", t, y, yp)

    def matrices(self, t: float, y: Array, yp: Array) -> tuple[Array, Array]:
        """Derivatives of F with respect to y and to y'."""
        found = self._called("matrices", t, y, yp).copy().reshape(2, self.size, self.size)
        return found[0], found[1]

    def mixed_into(self, t: float, y: Array, yp: Array, _: Array, c: float, out: Array) -> None:
        """F_y + c F_y', as IDA asks for it."""
        out[:] = self._called("mixed", t, y, yp, c).reshape(self.size, self.size)


# --- checks --------------------------------------------------------------------------------------------


class Check(NamedTuple):
    """Largest residual, and largest error of a matrix, both relative to the largest entry."""

    residual: float
    jacobian: float


def check(form: Form) -> Check:
    """How well F vanishes at the start, and its matrices agree with JAX's nearby."""
    t, y, yp = float(form.problem.t_span[0]), form.y0, form.yp0
    terms = 1 + max(np.abs(matrix).max() for matrix in form.matrices(t, y, yp))
    residual = float(np.abs(form.values(t, y, yp)).max() / terms)
    shift = 0.1 * np.sin(np.arange(1.0, 1 + y.size))
    near = t, y + shift, yp - shift
    pairs = zip(form.matrices(*near), jax.jit(jax.jacfwd(form.equations, (1, 2)))(*near), strict=True)
    return Check(residual, max(float(np.abs(a - b).max() / (1 + np.abs(a).max())) for a, b in pairs))


def worst(checks: Iterable[Check]) -> Check:
    """The largest of each."""
    return Check(*(max(column) for column in zip(*checks, strict=True)))

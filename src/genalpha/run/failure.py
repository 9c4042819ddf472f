"""Details of a failure that can be found at the last good state."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.cache import program
from genalpha.backends.sparse import front as sparse
from genalpha.engine import start as starts
from genalpha.engine.setup import Setup
from genalpha.mechanics import initial_values, start_errors
from genalpha.mechanics.labels import Labels
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import State

# Iterations of Newton's method that are shown.
_SHOWN = 8
# Residuals at rounding level; their fraction after an iteration that converged, and in one that stagnates.
_AT_ROUNDING, _CONVERGED, _STAGNANT = 1e-12, 1e-10, 0.5


def detail(setup: Setup, status: int, at: State, h: float, args: Args) -> str:
    """Sentences about a failure in the step of size h after the state ``at``."""
    code = codes.behind(status)
    if sparse.large(setup):
        return sparse.detail(setup, at, h, args)
    found = []
    if code == codes.NOT_FINITE:
        found.append(_not_finite(setup, at, h, args))
    if code in (codes.SINGULAR, codes.NOT_CONVERGED, codes.NOT_FINITE):
        found.append(_dependent(setup, at, h, args))
    if code == codes.NOT_CONVERGED:
        found.append(_history(setup, at, h, args))
    return ". ".join(sentence for sentence in found if sentence)


def _not_finite(setup: Setup, at: State, h: float, args: Args) -> str:
    """Which components of which functions are NaN or infinite, at the state or at the end of the step."""
    system, dims = setup.system, setup.dims

    def look(setup: Setup, t: Any, q: Any, v: Any, args: Args) -> dict[str, Any]:
        found = {"force": system.applied(t, q, v, args)}
        if not system.constant_mass:
            found["mass"] = system.M(t, q, args)
        if dims.m:
            found["holonomic"] = system.g(t, q, args)
            found["the gradient of holonomic"] = system.G(t, q, args)
        if dims.p:
            found["nonholonomic"] = system.k(t, q, v, args)
        return found

    seen = program(setup, "what is finite", look)
    # After many rejections the step may be too short to reach the bad point, so longer ones are tried too.
    sizes = [0.0, h, *(size * max(1.0, abs(float(at.t))) for size in (1e-9, 1e-6) if size > h)]
    for size in sizes:
        t, v = at.t + size, at.v + size * at.a
        q = system.space.retract(jnp.asarray(at.q), size * at.v)
        where = "one step after the last row" if size else "at the last row"
        bad = []
        for name, value in seen(t, q, v, args).items():
            for index in np.argwhere(~np.isfinite(np.asarray(value)))[:3].tolist():
                number = ", ".join(map(str, index))
                told = system.labels.told(name, index[0])
                bad.append(f"{name}[{number}]{told} is {np.asarray(value)[tuple(index)]}")
        if bad:
            return f"{start_errors.some(bad)} {where}, t = {float(t):.9g}"
    return ""


def _dependent(setup: Setup, at: State, h: float, args: Args) -> str:
    """Which constraints become dependent at the end of the step."""
    dims = setup.dims
    if not (dims.m or dims.p):
        return ""

    def rows(setup: Setup, t: Any, q: Any, v: Any, h: Any, args: Args) -> tuple[Any, Any]:
        def scaled(t: Any, q: Any) -> Any:
            of = initial_values.matrices(setup.system, dims, t, q, v, args)
            return jnp.concatenate([of.G, of.K]) * initial_values.size_of_mass(of.M)

        return scaled(t, q), scaled(t + h, setup.system.space.retract(q, h * v))

    before, after = program(setup, "rows", rows)(at.t, at.q, at.v, h, args)
    names = start_errors.row_names(dims.m, dims.p, setup.system.labels)
    return start_errors.dependence(np.asarray(after), np.asarray(before), names, float(at.t) + h)


def _history(setup: Setup, at: State, h: float, args: Args) -> str:
    """The residuals of Newton's method in this step, started again, and the rows in which it stagnates."""
    system, method, _, dims, _ = setup
    values = (at.t, at.q, at.v, h, args, (at.lam, at.psi))
    start = program(setup, "start", starts.start_run)(*values)

    def equations(setup: Setup, carry: Any, t: Any, h: Any, scale: Any, x: Any, args: Args) -> Any:
        step = method.prepare(system, carry, t, h, dims, scale, args)
        residual = lambda x: method.residual(system, step, dims, scale, x, args)
        return residual(x), jax.jacfwd(residual)(x)

    equations_at = program(setup, "residual and matrix", equations)
    x, sizes, worst = np.asarray(start.x), [], np.zeros(0)
    for _ in range(_SHOWN):
        value, matrix = map(np.asarray, equations_at(start.carry, at.t, h, start.begin.scale, x, args))
        if not (np.isfinite(value).all() and np.isfinite(matrix).all()):
            break
        sizes.append(float(np.abs(value).max()))
        worst = np.abs(value)
        with np.errstate(all="ignore"):
            try:
                x = x - np.linalg.solve(matrix, value)
            except np.linalg.LinAlgError:
                break
    if not sizes:
        return ""
    names = row_names(method.row_blocks(dims), system.labels)
    names += [f"row[{i}]" for i in range(len(names), len(worst))]
    rows = [names[i] for i in np.argsort(-worst)[:3] if worst[i] > 0.1 * worst.max() > 0]
    history = ", ".join(f"{size:.1e}" for size in sizes)
    stuck = f"; largest at the end in {start_errors.some(rows)}" if rows else ""
    return f"{_cause(sizes, setup)}. Newton's scaled residuals in that step, started anew: {history}{stuck}"


def _cause(sizes: list[float], setup: Setup) -> str:
    """The likely cause, from the residuals of an iteration that starts again with a new matrix each time."""
    newton = setup.newton
    if max(sizes) <= _AT_ROUNDING:
        return (
            "The steps became so short that only rounding is left: a force probably jumps at this time or "
            "velocity (jnp.sign, jnp.where, dry friction). Make it continuous, for example with jnp.tanh, or "
            "use an event"
        )
    if sizes[-1] > _STAGNANT * sizes[0] and sizes[-1] > _STAGNANT * sizes[len(sizes) // 2]:
        return (
            "The residuals do not fall: a force probably jumps between the iterates (jnp.sign, jnp.where, "
            "dry friction), or the step has no solution near the last row. Make the force continuous, for "
            "example with jnp.tanh"
        )
    needed = next((i for i, size in enumerate(sizes) if size <= _CONVERGED * max(sizes)), None)
    if needed is None or needed > newton.max_iterations:
        return (
            f"The residuals fall too slowly for {newton.max_iterations} iterations: take smaller steps, or "
            "raise max_iterations of ga.Newton"
        )
    if newton.policy != "full":
        return (
            f"From the last row, with a new matrix in every iteration, it converges after {needed}: smaller "
            "steps help, and newton=ga.Newton(policy='full') may"
        )
    return (
        f"From the last row alone it converges after {needed}, but not from the guess that continues the "
        "motion of the last steps: the step is too large for this motion"
    )


def row_names(blocks: dict[str, int], labels: Labels) -> list[str]:
    """The names of all rows of a residual, from those of its blocks.

    >>> row_names({"motion": 2, "holonomic (velocity)": 1}, Labels(holonomic=("rod",)))
    ['motion[0]', 'motion[1]', 'holonomic[0] (rod) (velocity)']
    """
    names = []
    for name, size in blocks.items():
        head, _, rest = name.partition(" ")
        names += [f"{labels.row(head, i)} {rest}".strip() for i in range(size)]
    return names

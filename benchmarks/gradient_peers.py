"""The gradient of the pendulum and of the heavy top by other packages: diffrax and MuJoCo's MJX.

Both solve an ODE in as few coordinates as possible: the angle of the pendulum, quaternion and angular
velocity of the top. So they need a derivation by hand that constraints make unnecessary, and give no joint
forces. A peer that is not installed is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import genalpha as ga

ROWS = 1000  # after the first
Loss = Callable[[Any], Any]  # of the parameters (3,)

PENDULUM = {"m": 5.0, "L": 2.0, "g": 9.81}  # JN08 (16)
TOP_J, TOP_M = np.array([0.234375, 0.46875, 0.234375]), 15.0  # ACB15, appendix A.1
PARAMETERS = {
    "pendulum": np.array([3000.0, 100.0, 10.0]),  # stiffness, damping, first angular velocity
    "heavy-top": np.array([0.0, 150.0, -4.61538]),  # first angular velocity
}
ENDS = {"pendulum": 1.0, "heavy-top": 1.0}


def scores(x: Any) -> Any:
    """The loss, from the positions (K, 3) of the centre: all rows count."""
    return jnp.mean(jnp.sum(x * jnp.array([1.0, 2.0, 3.0]), axis=1) ** 2)


def centre(angle: Any) -> Any:
    """Positions (K, 3) of the pendulum, from its angles (K,)."""
    return PENDULUM["L"] * jnp.stack([jnp.cos(angle), jnp.sin(angle), 0 * angle], axis=1)


def own(name: str, **options: Any) -> Loss:
    """genalpha, with the constraints as they are."""
    problem = ga.problems.get(name)

    def loss(x: Any) -> Any:
        if name == "pendulum":
            args: Any = ({**PENDULUM, "k": x[0], "c": x[1]},)
            v0 = x[2] * jnp.array([PENDULUM["L"], 0.0, 1.0])  # it hangs at the start
        else:
            args, v0 = problem.args, jnp.concatenate([jnp.cross(x, jnp.array([0.0, 1.0, 0.0])), x])
        sol = ga.solve(problem.system, (0.0, ENDS[name]), problem.q0, v0, args=args, **options)
        q = sol.q
        return scores(q[:, :3] if name == "heavy-top" else jnp.pad(q[:, :2], ((0, 0), (0, 1))))

    return loss


# --- ordinary differential equations ------------------------------------------------------------------------


def pendulum_rate(t: Any, y: Any, x: Any) -> Any:
    m, L, g = PENDULUM["m"], PENDULUM["L"], PENDULUM["g"]
    torque = -m * g * L * jnp.cos(y[0]) - x[1] * y[1] - x[0] * (y[0] - 1.5 * jnp.pi)
    return jnp.stack([y[1], torque / (4 / 3 * m * L**2)])


def top_rate(t: Any, y: Any, x: Any) -> Any:
    p, w = y[:4], y[4:]
    moments = TOP_J + TOP_M * np.array([1.0, 0.0, 1.0])  # about the tip
    down = ga.rotation.rotate(ga.rotation.inverse(p), jnp.array([0.0, 0.0, -9.81 * TOP_M]))
    turn = (jnp.cross(jnp.array([0.0, 1.0, 0.0]), down) - jnp.cross(w, moments * w)) / moments
    return jnp.concatenate([0.5 * ga.rotation.multiply(p, jnp.append(0.0, w)), turn])


def ode(name: str, solve: Callable[..., Any]) -> Loss:
    """The loss by ``solve(rate, y0, parameters, times)``, which returns rows."""
    times = np.linspace(0.0, ENDS[name], ROWS + 1)

    def loss(x: Any) -> Any:
        if name == "pendulum":
            y = solve(pendulum_rate, jnp.stack([1.5 * np.pi, x[2]]), x, times)
            return scores(centre(y[:, 0]))
        y = solve(top_rate, jnp.concatenate([jnp.array([1.0, 0, 0, 0]), x]), x, times)
        return scores(jax.vmap(lambda p: ga.rotation.rotate(p, jnp.array([0.0, 1.0, 0.0])))(y[:, :4]))

    return loss


def by_diffrax(rate: Any, y0: Any, x: Any, times: Any, solver: str, rtol: float) -> Any:
    import diffrax

    return diffrax.diffeqsolve(
        diffrax.ODETerm(rate),
        getattr(diffrax, solver)(),
        times[0],
        times[-1],
        None,
        y0,
        args=x,
        saveat=diffrax.SaveAt(ts=jnp.asarray(times)),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol / 100),
        max_steps=100_000,
    ).ys


# --- MJX --------------------------------------------------------------------------------------------------

MODELS = {
    "pendulum": """<mujoco><option gravity="0 -9.81 0" timestep="{h}" integrator="{integrator}">
      <flag contact="disable" constraint="disable" eulerdamp="disable"/></option><worldbody><body>
      <joint type="hinge" axis="0 0 1" stiffness="3000" damping="100"/>
      <inertial pos="0 -2 0" mass="5" diaginertia="6.6666666666666667 6.6666666666666667 6.6666666666666667"/>
      </body></worldbody></mujoco>""",
    "heavy-top": """<mujoco><option gravity="0 0 -9.81" timestep="{h}" integrator="{integrator}">
      <flag contact="disable" constraint="disable"/></option><worldbody><body><joint type="ball"/>
      <inertial pos="0 1 0" mass="15" diaginertia="0.234375 0.46875 0.234375"/>
      </body></worldbody></mujoco>""",
}


def by_mjx(name: str, integrator: str) -> Loss:
    """MJX with a step for every row."""
    import mujoco
    from mujoco import mjx

    text = MODELS[name].format(h=ENDS[name] / ROWS, integrator=integrator)
    model = mjx.put_model(mujoco.MjModel.from_xml_string(text))
    start = mjx.make_data(model)

    def loss(x: Any) -> Any:
        if name == "pendulum":
            used = model.replace(jnt_stiffness=x[:1], dof_damping=x[1:2])
            data = start.replace(qvel=x[2:])
        else:
            used, data = model, start.replace(qvel=x)

        def row(data: Any, _: Any) -> Any:
            data = mjx.step(used, data)
            return data, data.qpos

        _, q = jax.lax.scan(row, data, length=ROWS)
        q = jnp.concatenate([start.qpos[None], q])
        if name == "pendulum":
            return scores(centre(q[:, 0] + 1.5 * jnp.pi))
        return scores(jax.vmap(lambda p: ga.rotation.rotate(p, jnp.array([0.0, 1.0, 0.0])))(q))

    return loss


# --- all of them ------------------------------------------------------------------------------------------


def contenders(name: str) -> Iterator[tuple[str, Loss]]:
    """Names and losses."""
    rows = np.linspace(0.0, ENDS[name], ROWS + 1)
    for part in (1, 4, 16):
        yield f"genalpha, soi2, {ROWS * part} steps", own(name, h=ENDS[name] / ROWS / part, save=part)
    yield f"genalpha, {ROWS} steps, extrapolated (4)", own(name, h=ENDS[name] / ROWS, extrapolate=4)
    yield "genalpha, rtol 1e-6", own(name, rtol=1e-6, t_eval=rows)
    if find_spec("diffrax"):
        for solver, rtol in (("Tsit5", 1e-4), ("Tsit5", 1e-6), ("Tsit5", 1e-9), ("Dopri8", 1e-11)):
            solve = partial(by_diffrax, solver=solver, rtol=rtol)
            yield f"diffrax, {solver}, rtol {rtol:.0e}", ode(name, solve)
    if find_spec("mujoco") and find_spec("mujoco.mjx"):
        for integrator in ("Euler", "RK4"):
            yield f"MJX, {integrator}, {ROWS} steps", by_mjx(name, integrator)


def reference(name: str) -> np.ndarray:
    """The gradient (3,): motion and sensitivities as one ODE, by SciPy's DOP853 with a tolerance of 1e-13."""
    from scipy.integrate import solve_ivp

    given = jnp.asarray(PARAMETERS[name])

    def solve(rate: Any, y0: Any, x: Any, times: Any) -> Any:
        @jax.custom_jvp
        def rows(x: Any) -> Any:
            return jnp.asarray(found[:, : len(y0)])

        @rows.defjvp
        def change(at: Any, by: Any) -> Any:
            return rows(*at), jnp.asarray(found[:, len(y0) :]).reshape(-1, len(y0), 3) @ by[0]

        @jax.jit
        def flow(t: Any, y: Any) -> Any:
            state, slopes = y[: len(first)], y[len(first) :].reshape(-1, 3)
            by_y, by_x = jax.jacfwd(rate, (1, 2))(t, state, given)
            return jnp.concatenate([rate(t, state, given), (by_y @ slopes + by_x).ravel()])

        first = starts(given)
        begin = np.concatenate([first, np.asarray(jax.jacfwd(starts)(given)).ravel()])
        sol = solve_ivp(flow, (0.0, times[-1]), begin, "DOP853", times, rtol=1e-13, atol=1e-14)
        found = sol.y.T
        return rows(x)

    def starts(x: Any) -> Any:
        taken = []

        def take(rate: Any, y0: Any, x: Any, times: Any) -> Any:
            taken.append(y0)
            return jnp.zeros((ROWS + 1, len(y0)))

        ode(name, take)(x)
        return taken[0]

    return np.asarray(jax.jacfwd(ode(name, solve))(given))

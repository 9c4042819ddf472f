"""Models made with SymPy's mechanics that `ga.from_sympy` integrates: loops, rolling, dependent speeds.

Every function returns SymPy's object and numbers for its parameters. None of them forms equations of motion:
genalpha does. Run it to see a short motion of each:

    python examples/sympy_models.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy as sp
from sympy.physics import mechanics as me

Numbers = dict[Any, float]


def chain(links: int, span: float = 0.6, relative: bool = False) -> tuple[me.LagrangesMethod, Numbers]:
    """A chain of equal bars of total length 1, its ends fixed at the same height ``span`` apart.

    The coordinates are angles from the horizontal, or, with ``relative``, angles between neighbours.
    """
    q = me.dynamicsymbols(f"q1:{links + 1}")
    m, g, length, d = sp.symbols("m g l d")
    angles = [sum(q[: k + 1]) for k in range(links)] if relative else q
    x, y, lagrangian = sp.S(0), sp.S(0), sp.S(0)
    t = me.dynamicsymbols._t
    vx, vy = sp.S(0), sp.S(0)
    for angle in angles:
        rate = angle.diff(t)
        half = length / 2
        mid_x, mid_y = vx - half * rate * sp.sin(angle), vy + half * rate * sp.cos(angle)
        height = y + half * sp.sin(angle)
        lagrangian += m * (mid_x**2 + mid_y**2) / 2 + m * length**2 / 12 * rate**2 / 2 - m * g * height
        x, y = x + length * sp.cos(angle), y + length * sp.sin(angle)
        vx, vy = vx - length * rate * sp.sin(angle), vy + length * rate * sp.cos(angle)
    method = me.LagrangesMethod(lagrangian, q, hol_coneqs=[x - d, y])
    return method, {m: 1.0 / links, g: 9.81, length: 1.0 / links, d: span}


def chain_start(links: int, span: float = 0.6, relative: bool = False) -> np.ndarray:
    """Angles (links,) of a chain whose bars form two straight arms, the longer one on the left."""
    left = (3 * links + 2) // 5
    a, b = left / links, 1 - left / links
    down = np.arccos((a**2 + span**2 - b**2) / (2 * a * span))
    up = np.arccos((b**2 + span**2 - a**2) / (2 * b * span))
    angles = np.array([-down] * left + [up] * (links - left))
    return np.diff(angles, prepend=0.0) if relative else angles


def four_bar() -> tuple[me.KanesMethod, Numbers]:
    """Crank, coupler and rocker between two fixed pins, with two dependent angles and speeds."""
    q, u = me.dynamicsymbols("q1:4"), me.dynamicsymbols("u1:4")
    lengths, (rho, g, d) = sp.symbols("l1:4"), sp.symbols("rho g d")
    N, start = me.ReferenceFrame("N"), me.Point("A")
    start.set_vel(N, 0)
    bodies, loads, pin = [], [], start
    for k in range(3):
        frame = N.orientnew(f"B{k + 1}", "Axis", [q[k], N.z])
        frame.set_ang_vel(N, u[k] * N.z)
        mass = rho * lengths[k]
        center, end = (
            pin.locatenew(f"{name}{k + 1}", s * lengths[k] * frame.x)
            for name, s in (("C", sp.S(1) / 2), ("P", 1))
        )
        for point in (center, end):
            point.v2pt_theory(pin, N, frame)
        inertia = me.inertia(frame, 0, 0, mass * lengths[k] ** 2 / 12)
        name = ("crank", "coupler", "rocker")[k]
        bodies.append(me.RigidBody(name, center, frame, mass, (inertia, center)))
        loads.append((center, -mass * g * N.y))
        pin = end
    loop = pin.pos_from(start)
    closed = [loop.dot(N.x) - d, loop.dot(N.y)]
    velocity = pin.vel(N)
    method = me.KanesMethod(
        N,
        q_ind=[q[0]],
        u_ind=[u[0]],
        kd_eqs=[a.diff() - b for a, b in zip(q, u, strict=True)],
        q_dependent=q[1:],
        configuration_constraints=closed,
        u_dependent=u[1:],
        velocity_constraints=[velocity.dot(N.x), velocity.dot(N.y)],
        bodies=bodies,
        forcelist=loads,
    )
    return method, {lengths[0]: 0.4, lengths[1]: 1.0, lengths[2]: 0.8, rho: 2.0, g: 9.81, d: 1.1}


def rolling_disc() -> tuple[me.KanesMethod, Numbers]:
    """A thin disc that rolls on a plane without slipping.

    q: yaw, lean, spin, and the point of contact x, y. The speeds u1, u2, u3 are components of the angular
    velocity in axes that do not spin, so they are not derivatives of angles. z is up.
    """
    yaw, lean, spin, x, y = q = me.dynamicsymbols("yaw lean spin x y")
    u = me.dynamicsymbols("u1:6")
    m, g, r = sp.symbols("m g r")
    N = me.ReferenceFrame("N")
    A = N.orientnew("A", "Axis", [yaw, N.z])
    B = A.orientnew("B", "Axis", [lean, A.x])
    disc = B.orientnew("C", "Axis", [spin, B.y])
    kinematics = [disc.ang_vel_in(N).dot(axis) - u[k] for k, axis in enumerate((B.x, B.y, B.z))]
    kinematics += [x.diff() - u[3], y.diff() - u[4]]
    B.set_ang_vel(N, u[0] * B.x + yaw.diff() * A.z)
    disc.set_ang_vel(N, u[0] * B.x + u[1] * B.y + u[2] * B.z)
    # The centre is above the point of contact, in the plane of the disc.
    origin, center = me.Point("O"), me.Point("center")
    origin.set_vel(N, 0)
    center.set_pos(origin, x * N.x + y * N.y + r * B.z)
    center.set_vel(N, u[3] * N.x + u[4] * N.y + r * B.ang_vel_in(N).cross(B.z))
    slip = center.vel(N) + disc.ang_vel_in(N).cross(-r * B.z)
    inertia = me.inertia(B, m * r**2 / 4, m * r**2 / 2, m * r**2 / 4)
    body = me.RigidBody("disc", center, disc, m, (inertia, center))
    method = me.KanesMethod(
        N,
        q_ind=q,
        u_ind=u[:3],
        kd_eqs=kinematics,
        u_dependent=u[3:],
        velocity_constraints=[slip.dot(A.x), slip.dot(A.y)],
        bodies=[body],
        forcelist=[(center, -m * g * N.z)],
    )
    return method, {m: 1.0, g: 9.81, r: 0.5}


def bicycle() -> tuple[me.KanesMethod, Numbers]:
    """The bicycle of Meijaard, Papadopoulos, Ruina & Schwab (2007), table 1: both wheels roll on a plane.

    x is forward, z down. q: yaw, roll, pitch, steer. The speeds of the wheels, u5 and u6, belong to no
    coordinate. The front wheel touches the plane: one configuration constraint, and three velocity
    constraints, one of which is its derivative.
    """
    yaw, roll, pitch, steer = me.dynamicsymbols("yaw roll pitch steer")
    u = me.dynamicsymbols("u1:7")
    w, c, tilt, g, rR, rF = sp.symbols("w c lambda g r_R r_F")
    mR, mB, mH, mF = sp.symbols("m_R m_B m_H m_F")
    xB, zB, xH, zH = sp.symbols("x_B z_B x_H z_H")
    moments = sp.symbols("I_Rxx I_Ryy I_Bxx I_Byy I_Bzz I_Bxz I_Hxx I_Hyy I_Hzz I_Hxz I_Fxx I_Fyy")
    N = me.ReferenceFrame("N")
    Y = N.orientnew("Y", "Axis", [yaw, N.z])
    L = Y.orientnew("L", "Axis", [roll, Y.x])
    B = L.orientnew("B", "Axis", [pitch, L.y])  # rear frame with rider
    S = B.orientnew("S", "Axis", [tilt, B.y])  # z along the steering axis
    E = S.orientnew("E", "Axis", [steer, S.z])
    H = E.orientnew("H", "Axis", [-tilt, E.y])  # handlebar and fork
    R, F = B.orientnew("R", "Axis", [0, B.y]), H.orientnew("F", "Axis", [0, H.y])
    Y.set_ang_vel(N, u[0] * N.z)
    L.set_ang_vel(Y, u[1] * Y.x)
    B.set_ang_vel(L, u[2] * L.y)
    E.set_ang_vel(S, u[3] * S.z)
    R.set_ang_vel(B, u[4] * B.y)
    F.set_ang_vel(H, u[5] * H.y)

    rear, touch = me.Point("rear hub"), me.Point("rear contact")
    touch.set_vel(N, 0)
    rear.set_pos(touch, -rR * L.z)
    rear.set_vel(N, R.ang_vel_in(N).cross(-rR * L.z))  # the point of the wheel in contact is at rest
    body = rear.locatenew("rear centre", xB * B.x + (zB + rR) * B.z)
    axis = rear.locatenew("steering axis", (w + c) * B.x + rR * B.z)
    for point in (body, axis):
        point.v2pt_theory(rear, N, B)
    fork = axis.locatenew("front centre", (xH - w - c) * H.x + zH * H.z)
    front = axis.locatenew("front hub", -c * H.x - rF * H.z)
    for point in (fork, front):
        point.v2pt_theory(axis, N, H)
    across = N.z.dot(H.y)
    down = (N.z - across * H.y) / sp.sqrt(1 - across**2)
    slip = front.vel(N) + F.ang_vel_in(N).cross(rF * down)
    height = (front.pos_from(touch) + rF * down).dot(N.z)
    parts = [
        me.RigidBody("rear wheel", rear, R, mR, (me.inertia(R, moments[0], moments[1], moments[0]), rear)),
        me.RigidBody("rear frame", body, B, mB, (me.inertia(B, *moments[2:5], 0, 0, moments[5]), body)),
        me.RigidBody("fork", fork, H, mH, (me.inertia(H, *moments[6:9], 0, 0, moments[9]), fork)),
        me.RigidBody(
            "front wheel", front, F, mF, (me.inertia(F, moments[10], moments[11], moments[10]), front)
        ),
    ]
    method = me.KanesMethod(
        N,
        q_ind=[yaw, roll, steer],
        u_ind=[u[1], u[3], u[4]],
        kd_eqs=[
            a.diff() - b for a, b in zip((yaw, roll, steer, pitch), (u[0], u[1], u[3], u[2]), strict=True)
        ],
        q_dependent=[pitch],
        configuration_constraints=[height],
        u_dependent=[u[0], u[2], u[5]],
        velocity_constraints=[slip.dot(Y.x), slip.dot(Y.y), slip.dot(N.z)],
        constraint_solver="CRAMER",  # with SymPy's default (LU) its own equations are wrong here
        bodies=parts,
        forcelist=[(part.masscenter, part.mass * g * N.z) for part in parts],
    )
    numbers = {
        w: 1.02,
        c: 0.08,
        tilt: np.pi / 10,
        g: 9.81,
        rR: 0.3,
        rF: 0.35,
        mR: 2.0,
        mB: 85.0,
        mH: 4.0,
        mF: 3.0,
    }
    numbers |= {xB: 0.3, zB: -0.9, xH: 0.9, zH: -0.7}
    values = (0.0603, 0.12, 9.2, 11.0, 2.8, 2.4, 0.05892, 0.06, 0.00708, -0.00756, 0.1405, 0.28)
    return method, numbers | dict(zip(moments, values, strict=True))


def arm_with_slider() -> tuple[me.System, Numbers]:
    """A two-link arm whose tip slides along a level line; a motor in its shoulder gives a torque T(t)."""
    q, u = me.dynamicsymbols("q1 q2"), me.dynamicsymbols("u1 u2")
    (a, b, m1, m2, g, h), T = sp.symbols("a b m1 m2 g h"), me.dynamicsymbols("T")
    ground = me.RigidBody("ground")
    system = me.System.from_newtonian(ground)
    upper, lower = (me.RigidBody(name, mass=m) for name, m in (("upper", m1), ("lower", m2)))
    for body, length in ((upper, a), (lower, b)):
        body.central_inertia = me.inertia(body.frame, 0, 0, body.mass * length**2 / 12)
    shoulder = me.PinJoint(
        "shoulder", ground, upper, q[0], u[0], child_point=-a / 2 * upper.x, joint_axis=ground.z
    )
    elbow = me.PinJoint(
        "elbow", upper, lower, q[1], u[1], a / 2 * upper.x, -b / 2 * lower.x, joint_axis=upper.z
    )
    system.add_joints(shoulder, elbow)
    system.apply_uniform_gravity(-g * ground.y)
    system.add_actuators(me.TorqueActuator(T, ground.z, upper, ground))
    tip = lower.masscenter.locatenew("tip", b / 2 * lower.x)
    system.add_holonomic_constraints(tip.pos_from(ground.masscenter).dot(ground.y) - h)
    system.q_ind, system.q_dep = [q[0]], [q[1]]
    system.u_ind, system.u_dep = [u[0]], [u[1]]
    return system, {a: 0.5, b: 0.4, m1: 1.0, m2: 0.8, g: 9.81, h: 0.2}


def main() -> None:
    import jax.numpy as jnp

    import genalpha as ga

    method, numbers = chain(5)
    system = ga.from_sympy(method, numbers)
    q0, v0 = system.start(chain_start(5))
    sol = ga.solve(system, (0.0, 1.0), q0, v0, h=1e-3)
    print(f"chain of 5 links: tension {sol.lam[-1, 0]:.2f}, drift {sol.residuals.position.max():.1e}")

    method, numbers = four_bar()
    system = ga.from_sympy(method, numbers)
    q0, v0 = system.start([0.5, 1.0, -1.5])
    sol = ga.solve(system, (0.0, 1.0), q0, v0, h=1e-3, initial="project")
    print(f"four-bar linkage: crank at {sol.q[-1, 0]:.3f}, drift {sol.residuals.position.max():.1e}")

    method, numbers = rolling_disc()
    system = ga.from_sympy(method, numbers)
    q0, v0 = system.start([0.0, 0.2, 0.0, 0.0, 0.0], {"u2": 6.0, "u3": 0.5})
    sol = ga.solve(system, (0.0, 1.0), q0, v0, h=1e-3, initial="project")
    print(f"rolling disc: lean {sol.q[-1, 1]:.3f}, slip {sol.residuals.nonholonomic.max():.1e}")

    method, numbers = bicycle()
    system = ga.from_sympy(method, numbers)
    speed = 4.6
    q0, v0 = system.start(np.zeros(4), {"u2": 0.5, "u5": -speed / 0.3, "u6": -speed / 0.35})
    sol = ga.solve(system, (0.0, 2.0), q0, v0, h=1e-3)
    print(f"bicycle: roll {sol.q[-1, 1]:.4f}, speed {-0.3 * system.values(sol)['u5'][-1]:.4f}")

    model, numbers = arm_with_slider()
    system = ga.from_sympy(model, numbers, specified={"T": lambda t: 3.0 * jnp.sin(2.0 * t)})
    q0, v0 = system.start([1.0, -1.6])
    sol = ga.solve(system, (0.0, 1.0), q0, v0, h=1e-3, initial="project")
    print(f"arm with a slider: elbow {sol.q[-1, 1]:.3f}, drift {sol.residuals.position.max():.1e}")


if __name__ == "__main__":
    main()

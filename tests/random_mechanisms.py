"""Random systems of several kinds: jumps, poles, mechanisms, rotating bodies."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import genalpha as ga
from genalpha.errors import InconsistentInitialValues
from random_systems import DEPENDENT, Args, Member, Structure, decades, poly, spd

# --- forces that jump, in the plane, free or on a circle ----------------------------------------------------


def unit_mass(xp: Any, t: Any, q: Any, a: Args) -> Any:
    return a["mass"] * xp.eye(2)


def jumping_force(xp: Any, t: Any, q: Any, v: Any, a: Args) -> Any:
    wall = xp.where(q[0] > a["wall"], -a["stiffness"] * (q[0] - a["wall"]) - a["jump"], 0.0)
    steps = a["stairs"] * xp.floor(3 * t)
    return xp.stack([wall + steps, -9.81 + 0.0 * q[1]]) * a["mass"] - a["friction"] * xp.sign(v)


def circle(xp: Any, t: Any, q: Any, a: Args) -> Any:
    return xp.stack([q @ q - a["radius"] ** 2])


def jumping_member(rng: np.random.Generator, held: bool) -> Member:
    on, angle, radius = rng.integers(2, size=4), rng.uniform(0, 2 * np.pi), rng.uniform(0.5, 2.0)
    a = {
        "mass": decades(rng, -2, 2), "wall": rng.uniform(-1, 1), "stiffness": on[0] * decades(rng, 0, 6),
        "jump": on[1] * decades(rng, -1, 2), "stairs": on[2] * rng.uniform(-5, 5),
        "friction": on[3] * rng.uniform(0, 3), "radius": radius,
    }  # fmt: skip
    q0 = radius * np.array([np.cos(angle), np.sin(angle)])
    v0 = rng.uniform(-2, 2) * np.array([-q0[1], q0[0]]) if held else rng.normal(size=2)
    return Member(q0, v0, a, h=0.01, trait="jumps", fate="any")


# --- forces that are not numbers, or grow without bound -----------------------------------------------------


def broken_force(xp: Any, t: Any, q: Any, v: Any, a: Args) -> Any:
    first = (
        -a["root"] * xp.sqrt(q[0] + a["root_at"])
        + a["pole"] / (q[0] - a["pole_at"])
        + a["square"] * v[0] ** 2
    )
    second = a["log"] * xp.log(q[1] + a["log_at"]) + a["exp"] * xp.exp(a["rate"] * q[1]) - a["spring"] * q[1]
    return xp.stack([first, second])


BROKEN = ["root", "pole", "square", "log", "exp", "nothing"]


def broken_member(rng: np.random.Generator, held: bool) -> Member:
    trait = str(rng.choice(BROKEN))
    a: Args = dict.fromkeys(("root", "pole", "square", "log", "exp"), 0.0)
    a |= {
        "root_at": 1e3,
        "pole_at": 1e3,
        "log_at": 1e3,
        "rate": 1.0,
        "spring": 1.0,
        "mass": 1.0,
        "radius": 1.0,
    }
    if trait != "nothing":
        a[trait] = decades(rng, -1, 2) * (1 if held else rng.choice([-1, 1]))
    a |= {"root": {"root_at": 0.5}, "pole": {"pole_at": rng.uniform(-0.5, 0.5)}, "log": {"log_at": 0.5}}.get(
        trait, {}
    )
    a |= {"rate": decades(rng, 0, 2)} if trait == "exp" else {}
    q0, v0 = np.array([0.6, 0.8]), np.array([0.8, -0.6]) * rng.uniform(-3, 3)
    fate = "ends" if trait == "nothing" else "any"
    return Member(q0, v0, a, (0.0, 2.0), 0.01, trait=trait, fate=fate)


# --- a slider crank, which folds where crank and rod are of one length --------------------------------------


def crank_mass(xp: Any, t: Any, q: Any, a: Args) -> Any:
    return xp.diag(a["masses"])


def crank_force(xp: Any, t: Any, q: Any, v: Any, a: Args) -> Any:
    return a["load"] - a["damping"] * v


def crank(xp: Any, t: Any, q: Any, a: Args) -> Any:
    return xp.stack(
        [
            a["r"] * xp.cos(q[0]) + a["l"] * xp.cos(q[1]) - q[2],
            a["r"] * xp.sin(q[0]) + a["l"] * xp.sin(q[1]),
        ]
    )


def driven_crank(xp: Any, t: Any, q: Any, a: Args) -> Any:
    return xp.concatenate([crank(xp, t, q, a), xp.stack([q[0] - a["theta"] - a["speed"] * t])])


def crank_member(rng: np.random.Generator, driven: bool) -> Member:
    trait = str(rng.choice(["turns", "folds", "locks", "nearly folds"]))
    r = rng.uniform(0.3, 1.0)
    by = {
        "turns": rng.uniform(1.5, 3),
        "folds": 1.0,
        "locks": rng.uniform(0.4, 0.9),
        "nearly folds": 1 + decades(rng, -8, -2),
    }
    rod, speed = r * by[trait], rng.choice([-1, 1]) * rng.uniform(1.0, 6.0)
    theta = rng.uniform(-0.3, 0.3)
    phi = np.arcsin(-r * np.sin(theta) / rod)
    phi_dot = -r * np.cos(theta) * speed / (rod * np.cos(phi))
    q0 = np.array([theta, phi, r * np.cos(theta) + rod * np.cos(phi)])
    v0 = np.array([speed, phi_dot, -r * np.sin(theta) * speed - rod * np.sin(phi) * phi_dot])
    a = {"r": r, "l": rod, "theta": theta, "speed": speed, "masses": 10 ** rng.uniform(-1, 1, 3),
         "load": rng.normal(size=3), "damping": rng.uniform(0, 0.2)}  # fmt: skip
    return Member(q0, v0, a, h=0.005, trait=trait, fate="ends" if trait == "turns" else "any")


# --- bodies that turn ---------------------------------------------------------------------------------------


def matrix(xp: Any, e: Any) -> Any:
    """The rotation matrix of a unit quaternion (w, x, y, z)."""
    w, x, y, z = e[0], e[1], e[2], e[3]
    rows = [
        [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
    ]
    return xp.stack([xp.stack(row) for row in rows])


def turning(e: np.ndarray, omega: np.ndarray) -> np.ndarray:
    """e' of a quaternion with the body-fixed angular velocity omega."""
    w, x = e[0], e[1:]
    return 0.5 * np.append(-x @ omega, w * omega + np.cross(x, omega))


def body_mass(xp: Any, t: Any, q: Any, a: Args) -> Any:
    return a["M"]


def gyration(xp: Any, omega: Any, a: Args) -> Any:
    return -xp.cross(omega, a["J"] @ omega)


def spin_force(xp: Any, t: Any, q: Any, v: Any, a: Args) -> Any:
    return gyration(xp, v, a) + a["torque"] - a["damping"] * v


def tilt(xp: Any, t: Any, q: Any, a: Args) -> Any:
    """The angle between an axis of the body and one of space."""
    return xp.stack([a["along"] @ (matrix(xp, q) @ a["axis"]) - a["cosine"]])


def suslov(xp: Any, t: Any, q: Any, v: Any, a: Args) -> Any:
    return xp.stack([a["no"] @ v])


def spin_member(rng: np.random.Generator, kind: str) -> Member:
    q0 = rng.normal(size=4)
    q0, J = q0 / np.linalg.norm(q0), spd(rng, 3)
    trait = str(rng.choice(["plain", "plain", "fast", "very fast", "at rest", "parallel"]))
    unit = lambda x: x / np.linalg.norm(x)
    a = {"M": J, "J": J, "torque": rng.normal(size=3), "damping": rng.uniform(0, 0.3)}
    v0 = rng.normal(size=3) * {"fast": 30.0, "very fast": 1e3, "at rest": 0.0}.get(trait, 1.0)
    a |= {"along": unit(rng.normal(size=3)), "axis": unit(rng.normal(size=3)), "no": unit(rng.normal(size=3))}
    R = matrix(np, q0)
    if kind == "tilt" and trait == "parallel":  # the angle is at its extreme: no gradient
        a["along"] = R @ a["axis"]
    a["cosine"] = a["along"] @ R @ a["axis"]
    row = np.cross(a["axis"], R.T @ a["along"]) if kind == "tilt" else a["no"]
    if kind != "free" and row @ row > 1e-20:
        v0 = v0 - row * (row @ v0) / (row @ row)
        v0 = v0 - row * (row @ v0) / (row @ row)
    refused = (*DEPENDENT, InconsistentInitialValues) if trait in ("parallel", "very fast") else ()
    fate = "ends" if trait in ("plain", "at rest") else "any"
    return Member(q0, v0, a, h=0.01, trait=trait, fate=fate, refused=refused)


def top_force(xp: Any, t: Any, q: Any, v: Any, a: Args) -> Any:
    return xp.concatenate([a["weight"] + 0.0 * v[:3], gyration(xp, v[3:], a)])


def top_force_se3(xp: Any, t: Any, q: Any, v: Any, a: Args) -> Any:
    forces = matrix(xp, q[3:]).T @ a["weight"] - a["mass"] * xp.cross(v[3:], v[:3])
    return xp.concatenate([forces, gyration(xp, v[3:], a)])


def fixed_point(xp: Any, t: Any, q: Any, a: Args) -> Any:
    return matrix(xp, q[3:]) @ a["X"] - q[:3]


def top_member(rng: np.random.Generator, body_fixed: bool) -> Member:
    e, X, J, mass = rng.normal(size=4), rng.normal(size=3), spd(rng, 3), decades(rng, -1, 1)
    e, omega = e / np.linalg.norm(e), rng.normal(size=3) * decades(rng, -1, 1)
    R, speed = matrix(np, e), np.cross(omega, X)
    M = np.block([[mass * np.eye(3), np.zeros((3, 3))], [np.zeros((3, 3)), J]])
    a = {"M": M, "J": J, "mass": mass, "X": X, "weight": np.array([0.0, 0.0, -9.81 * mass])}
    v0 = np.concatenate([speed if body_fixed else R @ speed, omega])
    return Member(np.concatenate([R @ X, e]), v0, a, (0.0, 0.5), 0.005, trait="top")


def tied_mass(xp: Any, t: Any, q: Any, a: Args) -> Any:
    return a["M"]


def tied_force(xp: Any, t: Any, q: Any, v: Any, a: Args) -> Any:
    return xp.concatenate([gyration(xp, v[:3], a), a["pull"] - 5.0 * q[4:]])


def tied(xp: Any, t: Any, q: Any, a: Args) -> Any:
    """The height of a point of the body is a coordinate of its own, which moves with time too."""
    return xp.stack([(matrix(xp, q[:4]) @ a["axis"])[2] - q[4] + 0.2 * xp.sin(a["omega"] * t)])


def tied_k(xp: Any, t: Any, q: Any, v: Any, a: Args) -> Any:
    return xp.stack([v[4] - a["gear"] * v[2] - 0.1 * v[0] * v[1]])


def tied_member(rng: np.random.Generator) -> Member:
    e = rng.normal(size=4)
    e, J = e / np.linalg.norm(e), spd(rng, 3)
    M = np.block([[J, np.zeros((3, 2))], [np.zeros((2, 3)), spd(rng, 2)]])
    a = {"M": M, "J": J, "pull": rng.normal(size=2), "axis": rng.normal(size=3), "gear": rng.uniform(0.5, 2),
         "omega": rng.uniform(0.5, 3)}  # fmt: skip
    q0, v0 = np.concatenate([e, np.zeros(2)]), np.concatenate([rng.normal(size=3), np.zeros(2)])
    q0[4] = tied(np, 0.0, q0, a)[0]
    e_dot = np.concatenate([turning(e, v0[:3]), np.zeros(2)])
    v0[3] = np.imag(tied(np, 1e-100j, q0 + 1e-100j * e_dot, a))[0] / 1e-100
    v0[4] = a["gear"] * v0[2] + 0.1 * v0[0] * v0[1]
    return Member(q0, v0, a, h=0.01, trait="tied")


def _tied_rate(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.concatenate([turning(q[:4], v[:3]), v[3:]])


def _body_rate(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.concatenate([v[:3], turning(q[3:], v[3:])])


def _body_rate_se3(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.concatenate([matrix(np, q[3:]) @ v[:3], turning(q[3:], v[3:])])


def _bodies() -> list[Structure]:
    spin = functools.partial(Structure, n=3, mass=body_mass, force=spin_force, space=ga.SO3(), rate=turning)
    draw = lambda kind: functools.partial(spin_member, kind=kind)
    hung = lambda body_fixed: functools.partial(top_member, body_fixed=body_fixed)
    top = functools.partial(Structure, n=6, m=3, p=0, mass=body_mass, holonomic=fixed_point)
    return [
        spin("spin", m=0, p=0, draw=draw("free")),
        spin("tilt", m=1, p=0, draw=draw("tilt"), holonomic=tilt),
        spin("suslov", m=0, p=1, draw=draw("suslov"), nonholonomic=suslov),
        top("top", force=top_force, draw=hung(False), space=ga.R3xSO3(), rate=_body_rate),
        top("top-se3", force=top_force_se3, draw=hung(True), space=ga.SE3(), rate=_body_rate_se3),
        Structure("tied", 5, 1, 1, tied_mass, tied_force, tied_member, tied, tied_k,
                  ga.Product(ga.SO3(), ga.Euclidean(2)), _tied_rate),
    ]  # fmt: skip


def _plane() -> list[Structure]:
    kinds = (("jumping", jumping_force, jumping_member), ("broken", broken_force, broken_member))
    found = []
    for name, force, member in kinds:
        for held in (False, True):
            g, draw = circle if held else None, functools.partial(member, held=held)
            where = "-held" if held else ""
            found.append(Structure(name + where, 2, int(held), 0, unit_mass, force, draw, g))
    for driven in (False, True):
        g, draw = driven_crank if driven else crank, functools.partial(crank_member, driven=driven)
        name = "crank-driven" if driven else "crank"
        found.append(Structure(name, 3, 2 + driven, 0, crank_mass, crank_force, draw, g))
    return found


SIZES = [
    (1, 0, 0),
    (1, 1, 0),
    (2, 1, 0),
    (2, 2, 0),
    (2, 3, 0),
    (3, 0, 1),
    (4, 2, 1),
    (5, 2, 2),
    (6, 3, 0),
    (8, 0, 0),
    (8, 3, 0),
]
STRUCTURES = {s.name: s for s in [*(poly(*size) for size in SIZES), *_plane(), *_bodies()]}

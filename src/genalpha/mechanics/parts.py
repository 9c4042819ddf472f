"""Parts of large systems: functions on a few nodes, and the lists of nodes that they act on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from genalpha.compiler import kept
from genalpha.mechanics.spaces import Product, Space
from genalpha.mechanics.user_errors import explaining
from genalpha.numerics.derivatives import by_reader, left_to_reader
from genalpha.numerics.tracing import zeros

FUNCTIONS = ("mass", "force", "holonomic", "nonholonomic", "reaction")
# The arguments of the functions of a part, before its own args.
INPUTS = {
    "mass": ("t", "q"),
    "force": ("t", "q", "v"),
    "holonomic": ("t", "q"),
    "nonholonomic": ("t", "q", "v"),
    "reaction": ("t", "q", "v", "lam", "psi"),
}


@dataclass(frozen=True, eq=False)
class Part:
    """Many copies of one thing: bodies, rods, springs, joints, finite elements.

    The functions are those of one copy, and see only its nodes. They read like the functions of a
    :class:`System`. If ``nodes`` has shape (K,), every copy has one node, and ``q`` and ``v`` are its
    coordinates and velocities. If it has shape (K, k), ``q[i]`` and ``v[i]`` are those of the i-th node of
    the copy, and forces have the same form as ``v``.

    Parameters
    ----------
    nodes : (K,) or (K, k) integers, the nodes of every copy, counted from zero.
    mass : (d, d) array, (K, d, d) array, or callable (t, q, *args) -> (d, d), where d is the number of
        velocities of all nodes of a copy, one node after the other. It is added to the mass of these nodes.
    force : callable (t, q, v, *args), added to the applied forces on the nodes.
    holonomic : callable (t, q, *args) -> (m,), holonomic constraints of one copy.
    nonholonomic : callable (t, q, v, *args) -> (p,), nonholonomic constraints of one copy.
    reaction : callable (t, q, v, lam, psi, *args), the reaction forces of the constraints of one copy. The
        default is −Gᵀλ − Kᵀψ.
    args : arrays whose first axis counts the copies; each copy gets its row. Single numbers are shared.
    name : for messages.

    Example
    -------
    Rods between points, and the points:

    >>> import jax.numpy as jnp, genalpha as ga
    >>> rods = ga.Part(
    ...     holonomic=lambda t, q, length: jnp.array([jnp.sum((q[1] - q[0]) ** 2) - length**2]),
    ...     nodes=[[0, 1], [1, 2]],
    ...     args=([1.0, 0.5],),
    ... )
    >>> points = ga.Part(mass=jnp.eye(2), force=lambda t, q, v: jnp.array([0.0, -9.81]), nodes=[0, 1, 2])
    """

    mass: Callable[..., ArrayLike] | ArrayLike | None = None
    force: Callable[..., Any] | None = None
    holonomic: Callable[..., ArrayLike] | None = None
    nonholonomic: Callable[..., ArrayLike] | None = None
    reaction: Callable[..., Any] | None = None
    nodes: Any = None
    args: tuple[Any, ...] = ()
    name: str = ""
    # What was traced and compiled of the functions. Parts with the same functions may share it.
    _made: dict[Any, Any] = field(default_factory=dict, repr=False, init=False)
    # What the functions are, if they are functions of the library: a text that is the same in every process.
    _identity: str = field(default="", repr=False, init=False)

    def __post_init__(self) -> None:
        if all(getattr(self, name) is None for name in FUNCTIONS):
            raise ValueError(f"{self.label} does nothing: give it a mass, a force or a constraint")
        for name in FUNCTIONS:
            function = getattr(self, name)
            if name != "mass" and function is not None and not callable(function):
                raise TypeError(f"{name} of {self.label} must be a function, got {type(function).__name__}")
        object.__setattr__(self, "nodes", self._node_numbers())
        if self.mass is not None and not callable(self.mass):
            object.__setattr__(self, "mass", _masses(self.mass, len(self.nodes), self.label))
        if not isinstance(self.args, tuple | list):
            raise TypeError(f"args of {self.label} must be a tuple; for one array write args=(x,)")
        object.__setattr__(self, "args", self.checked(self.args))

    def sharing(self, made: dict[Any, Any], identity: str = "") -> Part:
        """This part, which shares what is made of its functions with others that have the same ones.

        If they are functions of the library, their ``identity`` says which, for other processes.
        """
        object.__setattr__(self, "_made", made)
        object.__setattr__(self, "_identity", identity)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Copies trace and compile for themselves."""
        return self.__dict__ | {"_made": {}}

    @property
    def label(self) -> str:
        return f"the part {self.name!r}" if self.name else "a part"

    def _node_numbers(self) -> np.ndarray:
        if self.nodes is None:
            raise TypeError(f"{self.label} needs nodes: the numbers of the nodes of every copy")
        try:
            nodes = np.array(self.nodes)
        except ValueError as error:
            raise ValueError(f"nodes of {self.label} must be an array (K,) or (K, k): {error}") from error
        if nodes.dtype.kind not in "iu":
            raise TypeError(f"nodes of {self.label} must be integers, got {nodes.dtype}")
        if nodes.ndim not in (1, 2) or nodes.size == 0:
            raise ValueError(f"nodes of {self.label} must have shape (K,) or (K, k), got {nodes.shape}")
        if nodes.ndim == 2 and nodes.shape[1] > 1:
            ordered = np.sort(nodes, axis=1)
            twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
            if twice.size:
                at = twice[0]
                raise ValueError(
                    f"copy {at} of {self.label} has a node twice, {nodes[at].tolist()}: its nodes must differ"
                )
        return nodes.astype(np.int64)

    def checked(self, args: Any) -> tuple[Any, ...]:
        """``args`` with one row for each copy, or single numbers."""
        count = len(self.nodes)
        if not isinstance(args, tuple | list):
            raise TypeError(f"args of {self.label} must be a tuple; for one array write (x,)")

        def leaf(x: Any) -> Any:
            x = x if isinstance(x, jax.Array) else np.array(x, dtype=float)  # a copy
            if x.ndim and x.shape[0] != count:
                raise ValueError(
                    f"args of {self.label} must be single numbers or have one row for each of its {count} "
                    f"copies, got an array of shape {x.shape}"
                )
            return x

        return tuple(jax.tree.map(leaf, tuple(args), is_leaf=lambda x: isinstance(x, list)))


def _masses(mass: Any, count: int, label: str) -> np.ndarray:
    found = np.array(mass, dtype=float)
    if (
        found.ndim not in (2, 3)
        or found.shape[-1] != found.shape[-2]
        or (found.ndim == 3) > (len(found) == count)
    ):
        raise ValueError(
            f"mass of {label} must have shape (d, d) or ({count}, d, d), or be a function; got {found.shape}"
        )
    if not np.isfinite(found).all():
        raise ValueError(f"mass of {label} holds NaN or infinite entries: all must be finite")
    return found


class Places(NamedTuple):
    """Where the copies of a part are in the vectors of the whole system, one row of numbers for each copy."""

    q: np.ndarray
    v: np.ndarray
    g: np.ndarray
    k: np.ndarray


class Element:
    """The functions of one copy of a part, on flat vectors q (size,) and v (d,) of all its nodes.

    ``m`` and ``p`` are the numbers of its constraints. ``constant_mass`` says that its mass depends on
    nothing but its args.
    """

    def __init__(self, part: Part, spaces: tuple[Space, ...], label: str) -> None:
        self.part, self.spaces, self.label = part, spaces, label
        self.space: Space = spaces[0] if len(spaces) == 1 else Product(*spaces)
        self.dims = [int(s.dim or 0) for s in spaces]
        self.sizes = [s.size(d) for s, d in zip(spaces, self.dims, strict=True)]
        self.size, self.n = sum(self.sizes), sum(self.dims)
        number = lambda *shape: jax.ShapeDtypeStruct(shape, float)
        own = jax.tree.map(lambda x: number(*x.shape[1:]), part.args)
        make = lambda: kept.value(kept.key(self.identity, "sizes"), lambda: self._sizes(own))
        self.m, self.p, self.constant_mass = self.made("sizes", make)

    def _sizes(self, own: Any) -> tuple[int, int, bool]:
        """The numbers of its constraints, and whether its mass is constant. Its functions are checked."""
        self.m = self._rows("holonomic", own)
        self.p = self._rows("nonholonomic", own)
        for name in ("mass", "force", "reaction"):
            if self.has(name):
                self._check(name, own)
        return self.m, self.p, not callable(self.part.mass) or not self._depends(own)

    @property
    def identity(self) -> str:
        """What its functions are, if they are functions of the library."""
        known = self.part._identity and all(map(kept.of_package, self.spaces))
        return f"{self.part._identity} of {self.spaces} by {self.part.nodes.ndim}" if known else ""

    def has(self, name: str) -> bool:
        """Whether it has a function of this name, or "constraints" of any kind."""
        if name == "constraints":
            return bool(self.m or self.p)
        return getattr(self.part, name) is not None

    @property
    def count(self) -> int:
        return len(self.part.nodes)

    # --- functions of one copy --------------------------------------------------------------------

    def made(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was made of the functions of the part, once for these spaces."""
        key = (key, self.spaces, self.part.nodes.ndim)
        if key not in self.part._made:
            self.part._made[key] = make()
        return self.part._made[key]

    @property
    def traced(self) -> bool:
        """Whether all functions of the part were traced once, and not forgotten since."""
        return ("sizes", self.spaces, self.part.nodes.ndim) in self.part._made

    def forget(self) -> None:
        """Trace the functions of the part anew when they are next called."""
        self.part._made.clear()

    def call(self, name: str, *inputs: Any, own: tuple[Any, ...]) -> Array:
        """The function ``name`` of one copy as a flat array; ``own`` are its args."""
        function = self.made(name, lambda: self._as_array_function(name))
        if by_reader():  # one equation, in place of a copy of all those of the function
            function = self.made((name, "called"), lambda: jax.jit(function))
        return function(*inputs, own=own)

    def _as_array_function(self, name: str) -> Callable[..., Array]:
        """A function of the part on flat vectors. Its Python code runs once, whatever it is traced for."""
        return jax.jit(functools.partial(self.evaluate, name), inline=True)

    def evaluate(self, name: str, *inputs: Any, own: tuple[Any, ...]) -> Array:
        """The same as ``call``, by the Python code of the function."""
        given = [self._apart(x, kind) for x, kind in zip(inputs, INPUTS[name], strict=True)]
        with explaining(f"{name} of {self.label}", noted=True), left_to_reader(False):
            found = getattr(self.part, name)(*given, *own)
            return self._together(found) if name in ("force", "reaction") else jnp.asarray(found, float)

    def _apart(self, x: Any, kind: str) -> Any:
        """The nodes of a copy, from a flat vector."""
        if kind not in ("q", "v") or self.part.nodes.ndim == 1:
            return x
        widths = self.sizes if kind == "q" else self.dims
        if len(set(widths)) == 1:
            return x.reshape(len(widths), widths[0])
        return tuple(jnp.split(x, np.cumsum(widths)[:-1]))

    def _together(self, found: Any) -> Array:
        if isinstance(found, tuple | list):
            return jnp.concatenate([jnp.ravel(jnp.asarray(x, float)) for x in found])
        found = jnp.asarray(found, float)
        return found.reshape(-1) if found.shape == (len(self.dims), self.dims[0]) else found

    def mass(self, t: Any, q: Any, own: tuple[Any, ...], number: Any = None) -> Array:
        """The mass matrix of one copy; of the copy ``number`` if masses are given copy by copy."""
        mass: Any = self.part.mass
        if mass is None:
            return zeros(self.n, self.n)
        if callable(mass):
            return self.call("mass", t, q, own=own)
        return jnp.asarray(mass) if mass.ndim == 2 else jnp.asarray(mass)[number]

    # --- shapes ------------------------------------------------------------------------------------

    def _shape(self, name: str, own: Any) -> tuple[int, ...]:
        number = lambda *shape: jax.ShapeDtypeStruct(shape, float)
        sizes = {"t": (), "q": (self.size,), "v": (self.n,), "lam": (self.m,), "psi": (self.p,)}
        given = [number(*sizes[kind]) for kind in INPUTS[name]]
        return jax.eval_shape(lambda *x: self.call(name, *x[:-1], own=x[-1]), *given, own).shape

    def _rows(self, name: str, own: Any) -> int:
        if not self.has(name):
            return 0
        self.m, self.p = getattr(self, "m", 0), getattr(self, "p", 0)
        shape = self._shape(name, own)
        if len(shape) != 1 or not shape[0]:
            raise ValueError(
                f"{name} of {self.label} must return a one-dimensional array for one copy, got shape "
                f"{shape}; a single constraint is jnp.array([...])"
            )
        return shape[0]

    def _check(self, name: str, own: Any) -> None:
        wanted = (self.n, self.n) if name == "mass" else (self.n,)
        given = self.part.mass
        got = given.shape[-2:] if name == "mass" and isinstance(given, np.ndarray) else self._shape(name, own)
        if got != wanted:
            form = (
                f" or {(len(self.dims), self.dims[0])}" if name != "mass" and len(set(self.dims)) == 1 else ""
            )
            raise ValueError(f"{name} of {self.label} must have shape {wanted}{form} for one copy, got {got}")

    def _depends(self, own: Any) -> bool:
        """Whether the mass depends on t or q."""
        number = lambda *shape: jax.ShapeDtypeStruct(shape, float)
        function = lambda t, q, own: self.call("mass", t, q, own=own)
        traced = jax.make_jaxpr(function)(number(), number(self.size), own).jaxpr
        moving = set(traced.invars[:2])
        for equation in traced.eqns:
            if any(not hasattr(x, "val") and x in moving for x in equation.invars):
                moving.update(equation.outvars)
        return any(not hasattr(x, "val") and x in moving for x in traced.outvars)

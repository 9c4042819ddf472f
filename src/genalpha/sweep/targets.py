"""Where the value of an axis goes: into q0, v0, an entry of args, or a setting of accuracy."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.engine.describe import as_array

SETTINGS = ("h", "rtol", "atol", "accuracy", "force_accuracy", "first_step", "max_step", "min_step")
_PIECE = re.compile(r"\[(-?\d+)\]|\[['\"](.+?)['\"]\]|\.(\w+)")
Path = tuple[int | str, ...]


class Inputs(NamedTuple):
    """The arguments of ``solve_batch`` for some runs. ``settings`` are numbers (b,) by name."""

    q0: np.ndarray
    v0: np.ndarray
    args: tuple[Any, ...]
    axes: Any  # which leaves of args vary: 0 or None
    settings: dict[str, np.ndarray]

    def args_of(self, i: Any) -> tuple[Any, ...]:
        """The args of run i, or of several runs."""
        leaves, tree = jax.tree.flatten(self.args)
        flags = jax.tree.leaves(self.axes, is_leaf=lambda x: x is None)
        return jax.tree.unflatten(tree, [x[i] if f == 0 else x for x, f in zip(leaves, flags, strict=True)])

    def some(self, here: np.ndarray) -> Inputs:
        """The arguments of some of the runs."""
        settings = {name: x[here] for name, x in self.settings.items()}
        return Inputs(self.q0[here], self.v0[here], self.args_of(here), self.axes, settings)


class Target(NamedTuple):
    """``whole`` is "q0", "v0" or "args", ``leaf`` the number of a leaf of args, ``entry`` an entry of it."""

    whole: str
    leaf: int
    entry: tuple[int, ...]


def path(name: str) -> tuple[str, Path]:
    """The parts of a name.

    >>> path("args[0].stiffness[2]")
    ('args', (0, 'stiffness', 2))
    """
    head = re.match(r"\w*", name).group()  # type: ignore[union-attr]
    rest, parts = name[len(head) :], []
    while rest:
        found = _PIECE.match(rest)
        if found is None:
            raise ValueError(f"the axis {name!r} cannot be read at {rest!r}: write such as args[0].mass[2]")
        number, key, attribute = found.groups()
        parts.append(int(number) if number is not None else key or attribute)
        rest = rest[found.end() :]
    return head, tuple(parts)


def _key(key: Any) -> int | str:
    """A key of JAX's paths as in :func:`path`."""
    for field in ("idx", "key", "name"):
        if hasattr(key, field):
            found = getattr(key, field)
            return found if isinstance(found, int) else str(found)
    return str(key)


class Placing:
    """Puts the values of axes into the arguments of runs.

    ``member(**values)``, if given, returns a dict with q0, v0 and args of one run, written with
    ``jax.numpy``. Its parameters are axes. The names of the other axes say where their values go.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        q0: Any,
        v0: Any,
        args: tuple[Any, ...],
        member: Callable[..., Mapping[str, Any]] | None,
    ) -> None:
        self.names, self.base, self.member = names, (q0, v0, args), member
        self.of_member = tuple(n for n in names if n in _parameters(member)) if member else ()
        self.leaves, self.tree = jax.tree.flatten(args)
        paths = [tuple(map(_key, p)) for p, _ in jax.tree_util.tree_leaves_with_path(args)]
        rest = [name for name in names if name not in self.of_member]
        self.settings = [name for name in rest if name in SETTINGS]
        self.targets = {name: self._target(name, paths) for name in rest if name not in SETTINGS}

    def _target(self, name: str, paths: list[Path]) -> Target:
        head, parts = path(name)
        if head in ("q0", "v0") and len(parts) <= 1 and all(isinstance(x, int) for x in parts):
            if self.base[head == "v0"] is None:
                raise ValueError(f"the axis {name!r} changes {head}, which is not given: pass {head}")
            return Target(head, 0, parts)  # type: ignore[arg-type]
        if head == "args":
            for leaf, known in enumerate(paths):
                rest = parts[len(known) :]
                if parts[: len(known)] == known and all(isinstance(x, int) for x in rest):
                    return Target(head, leaf, rest)  # type: ignore[arg-type]
        listed = ["q0", "v0", *("args" + "".join(map(_written, p)) for p in paths), *SETTINGS]
        own = f", or a parameter of member ({', '.join(_parameters(self.member))})" if self.member else ""
        raise ValueError(f"the axis {name!r} is none of {', '.join(listed)}, or an entry of one of them{own}")

    def inputs(self, values: dict[str, np.ndarray]) -> Inputs:
        """The arguments of some runs, from the values (b, ...) of the axes."""
        count = len(next(iter(values.values())))
        whole: dict[str, Any] = dict(zip(("q0", "v0"), self.base, strict=False))
        leaves, axes = [*self.leaves], [None] * len(self.leaves)
        for name, (where, leaf, index) in self.targets.items():
            old = leaves[leaf] if where == "args" else whole[where]
            varies = axes[leaf] == 0 if where == "args" else np.ndim(old) == 2
            new = _placed(name, old, varies, index, values[name], count)
            if where == "args":
                leaves[leaf], axes[leaf] = new, 0  # type: ignore[call-overload]
            else:
                whole[where] = new
        args, flags = jax.tree.unflatten(self.tree, leaves), self._tree_of(axes)
        if self.member is not None:
            made = self._made({name: values[name] for name in self.of_member})
            whole |= {name: made[name] for name in ("q0", "v0") if name in made}
            if "args" in made:
                args = made["args"]
                flags = jax.tree.map(lambda x: 0, args)
        for name, given in whole.items():
            if given is None:
                raise ValueError(
                    f"{name} is not given: pass {name}, an axis {name!r}, or return it from member"
                )
        rows = lambda x: np.broadcast_to(np.asarray(x, dtype=float), (count, np.shape(x)[-1]))
        settings = {name: values[name] for name in self.settings}
        return Inputs(rows(whole["q0"]), rows(whole["v0"]), args, flags, settings)

    def _tree_of(self, axes: list[Any]) -> Any:
        return jax.tree.unflatten(self.tree, axes) if self.leaves else ()

    def _made(self, values: dict[str, np.ndarray]) -> Any:
        made = self._mapped(values)
        return jax.tree.map(np.asarray, made)

    @functools.cached_property
    def _mapped(self) -> Callable[..., Any]:
        return jax.jit(jax.vmap(self._one))

    def _one(self, values: dict[str, Any]) -> Any:
        assert self.member is not None
        made = self.member(**values)
        wrong: list[str] = [] if isinstance(made, Mapping) else [type(made).__name__]
        if wrong or not set(made) <= {"q0", "v0", "args"}:
            raise TypeError(f"member must return a dict with q0, v0 and args, got {wrong or list(made)}")
        array = lambda x: jnp.asarray(x, dtype=float)
        return {k: jax.tree.map(array, tuple(x)) if k == "args" else array(x) for k, x in made.items()}

    def traced(self, values: dict[str, np.ndarray]) -> str:
        """What ``member`` computes, as a text with its constants."""
        if self.member is None:
            return ""
        one = {name: jax.ShapeDtypeStruct(values[name].shape[1:], float) for name in self.of_member}
        found = jax.make_jaxpr(self._one)(one)
        constants = [as_array(x).tobytes().hex() for x in found.consts]
        return re.sub(r" at 0x[0-9a-f]+", "", str(found.jaxpr)) + " ".join(constants)


def _parameters(function: Callable[..., Any] | None) -> tuple[str, ...]:
    """The axes that a function takes: its parameters, or those that it names itself."""
    if function is None:
        return ()
    return tuple(getattr(function, "axis_names", None) or inspect.signature(function).parameters)


def _written(part: int | str) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{part}"


def _placed(
    name: str, old: Any, varies: bool, index: tuple[int, ...], value: np.ndarray, count: int
) -> np.ndarray:
    """The values of an argument (b, ...), in which an axis replaces the whole or an entry."""
    shape = np.shape(old)[1:] if varies else np.shape(old)
    if not index:
        if value.shape[1:] != shape:
            raise ValueError(
                f"the values of the axis {name!r} have shape {value.shape[1:]}, but what they replace has "
                f"{shape}"
            )
        return value
    new = np.array(np.broadcast_to(np.asarray(old, dtype=float), (count, *shape)))
    try:
        new[(slice(None), *index)] = value  # type: ignore[index]
    except (IndexError, ValueError) as error:
        raise ValueError(f"the axis {name!r} does not fit shape {shape}: {error}") from error
    return new

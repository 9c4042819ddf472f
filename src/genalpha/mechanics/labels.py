"""Names and units of the coordinates, velocities and constraints of a system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from genalpha.errors import unknown
from genalpha.mechanics.spaces import Euclidean, Product, Space

if TYPE_CHECKING:
    from genalpha.mechanics.system import Dims

Listed = Mapping[str, Sequence[str]]
# What can have names, and the first letters of keys such as "lam[0]", which no name may look like.
LISTS = ("q", "v", "holonomic", "nonholonomic")
RESERVED = ("q", "v", "a", "lam", "psi")


class Labels(NamedTuple):
    """Names and units of the entries of q and v and of the constraints; empty where there are none.

    The units of constraints are those of their multipliers. ``time`` is the unit of time.
    """

    q: tuple[str, ...] = ()
    v: tuple[str, ...] = ()
    holonomic: tuple[str, ...] = ()
    nonholonomic: tuple[str, ...] = ()
    q_units: tuple[str, ...] = ()
    v_units: tuple[str, ...] = ()
    holonomic_units: tuple[str, ...] = ()
    nonholonomic_units: tuple[str, ...] = ()
    time: str = ""

    @property
    def a(self) -> tuple[str, ...]:
        """Names of accelerations: those of velocities with one more prime."""
        return tuple(f"{name}'" for name in self.v)

    @property
    def a_units(self) -> tuple[str, ...]:
        """Units of accelerations, if those of velocities and of time are known."""
        return rates(self.v_units, self.time)

    def check(self, dims: Dims) -> None:
        """Raise an error if a list has another length than what it names."""
        sizes = dict(zip(LISTS, dims, strict=True))
        what = {"q": "coordinates", "v": "velocities"} | {kind: f"{kind} constraints" for kind in LISTS[2:]}
        for told, suffix in (("names", ""), ("units", "_units")):
            for kind, size in sizes.items():
                count = len(getattr(self, kind + suffix))
                if count not in (0, size):
                    raise ValueError(
                        f"{told}[{kind!r}] has {count} entries, but the system has {size} {what[kind]}: give "
                        "one for each, or leave the list out"
                    )

    def told(self, function: str, i: int) -> str:
        """The name of row i of a function of the system, in brackets; empty if it has none.

        "motion" are the equations of motion, which belong to velocities as forces do.
        """
        rows = {
            "motion": self.v,
            "force": self.v,
            "holonomic": self.holonomic,
            "nonholonomic": self.nonholonomic,
        }
        names = rows.get(function)
        return f" ({names[i]})" if names else ""

    def row(self, function: str, i: int) -> str:
        """A row of a function in messages, with its name if it has one.

        >>> Labels(holonomic=("x", "hinge")).row("holonomic", 1), Labels().row("holonomic", 1)
        ('holonomic[1] (hinge)', 'holonomic[1]')
        """
        return f"{function}[{i}]{self.told(function, i)}"


NO_LABELS = Labels()


def rates(units: Iterable[str], time: str) -> tuple[str, ...]:
    """Units of the rates of quantities, if the unit of time is known.

    >>> rates(["m", "m/s", ""], "s")
    ('m/s', 'm/s²', '1/s')
    """
    if not time:
        return ()
    divided = lambda unit: (
        f"{unit.removesuffix(f'/{time}')}/{time}²" if unit.endswith(f"/{time}") else f"{unit or 1}/{time}"
    )
    return tuple(divided(unit) for unit in units)


def read(names: Any, units: Any, space: Space) -> Labels:
    """The arguments ``names`` and ``units`` of a system. In flat spaces, velocities get theirs from q."""
    found, measured = _lists(names, "names", LISTS), _lists(units, "units", (*LISTS, "t"))
    flat = _flat(space)
    if flat and "q" in found:
        found.setdefault("v", tuple(f"{name}'" for name in found["q"]))
    time = "".join(measured.pop("t", ()))
    if flat and "q" in measured:
        measured.setdefault("v", rates(measured["q"], time))
    labels = Labels(**found, **{f"{kind}_units": listed for kind, listed in measured.items()}, time=time)
    _different(labels)
    return labels


def _lists(given: Any, what: str, known: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The lists of strings that a user gave, by kind."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        form = '{"q": ["x", "y"], "holonomic": ["length"]}'
        raise TypeError(f"{what} must be a dict of lists such as {form}, got {type(given).__name__}")
    found = {}
    for kind, listed in given.items():
        if kind not in known:
            raise unknown(f"list in {what}", kind, known)
        if kind == "t":
            listed = [listed]
        if isinstance(listed, str) or not isinstance(listed, Sequence):
            raise TypeError(f"{what}[{kind!r}] must be a list of strings, got {listed!r}")
        for i, one in enumerate(listed):
            if not isinstance(one, str) or (what == "names" and not one.strip()):
                raise TypeError(f"{what}[{kind!r}][{i}] must be a string that is not empty, got {one!r}")
        found[kind] = tuple(map(str, listed))
    return found


def _different(labels: Labels) -> None:
    """Raise an error if a name has two meanings."""
    for kind in LISTS:
        for name in getattr(labels, kind):
            if name == "t" or (name.endswith("]") and name.partition("[")[0] in RESERVED):
                raise ValueError(
                    f"names[{kind!r}] has {name!r}, by which solutions know something else: choose another"
                )
        for name, count in _repeated(getattr(labels, kind)):
            raise ValueError(f"names[{kind!r}] has {name!r} {count} times: names must differ")
    for name, _ in _repeated((*labels.q, *labels.v, *labels.a)):
        raise ValueError(
            f"the name {name!r} belongs to two of coordinates, velocities and accelerations: choose "
            "others in names['q'] or names['v']. A velocity without a name is called x' after its "
            "coordinate x, and an acceleration has one more prime than its velocity"
        )


def _repeated(names: tuple[str, ...]) -> list[tuple[str, int]]:
    """Names that occur several times, and how often."""
    if len(set(names)) == len(names):
        return []
    return [(name, count) for name, count in Counter(names).items() if count > 1]


def _flat(space: Space) -> bool:
    """Whether the rates of q are v, entry by entry."""
    if isinstance(space, Product):
        return all(_flat(run.space) for run in space.runs)
    return isinstance(space, Euclidean)

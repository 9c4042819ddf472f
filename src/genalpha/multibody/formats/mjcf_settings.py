"""What holds for a whole MJCF file: included files, the compiler, options, and default classes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from genalpha.errors import hint
from genalpha.multibody.formats.markup import Entry, Notes, parsed
from genalpha.multibody.formats.mjcf_actuators import ACTUATORS, Law, changed, shared
from genalpha.multibody.formats.trees import Pose
from genalpha.multibody.frames import along
from genalpha.multibody.things import GRAVITY
from genalpha.multibody.vectors import EYE

_TAGS = "mesh texture material joint geom site camera light pair equality tendon default"
_DEFAULTS = (*_TAGS.split(), *ACTUATORS)
_ANY = "actuator"  # defaults of actuators of all kinds
_SPEED = (  # how MuJoCo computes, which says nothing about the model
    "alignfree conflict convexhull discardvisual exactmeshinertia fitaabb fusestatic passthrough "
    "savecanonical savecompiled saveinertial texturedir usethread"
)
_SOLVER = (
    "apirate ccd_iterations ccd_tolerance collision cone impratio integrator iterations "
    "jacobian ls_iterations ls_tolerance magnetic mpr_iterations mpr_tolerance noslip_iterations "
    "noslip_tolerance o_friction o_margin o_solimp o_solref sdf_initpoints sdf_iterations sleep_tolerance "
    "solver timestep tolerance"
)
_SWITCHES = "gravity contact limit frictionloss equality actuation spring damper passive constraint clampctrl"
_OTHER_SWITCHES = (
    "autoreset diagexact energy eulerdamp filterparent fwdinv invdiscrete ipc island midphase "
    "multiccd nativeccd override refsafe sensor sensornoise sleep speculative warmstart"
)
ORIENTATIONS = {"quat": 4, "axisangle": 4, "euler": 3, "xyaxes": 6, "zaxis": 3}


def silent(words: str) -> dict[str, str]:
    """Attributes that are no part of the motion, for :meth:`Entry.finish`."""
    return dict.fromkeys(words.split(), "")


def whole(path: Path) -> ET.Element:
    """The root of a file, with the content of included files in their place."""
    root, seen = parsed(path), {path.resolve()}
    waiting = [(root, root.tag, path)]
    origin: dict[ET.Element, Path] = {}  # the files of elements that were included
    while waiting:
        element, where, around = waiting.pop()
        i = 0
        while i < len(element):
            one = element[i]
            file = origin.get(one, around)
            if one.tag == "include":
                found, content = _included(one, f"{where}/include", (path.parent, file.parent), seen)
                element[i : i + 1] = content
                origin.update(dict.fromkeys(content, found))
            else:
                waiting.append((one, f"{where}/{one.tag}", file))
                i += 1
    return root


def _included(
    one: ET.Element, where: str, folders: Sequence[Path], seen: set[Path]
) -> tuple[Path, list[ET.Element]]:
    """The file of an element ``include``, from the first folder that has it, and the elements in it.

    Files that were included are added to ``seen``.
    """
    name = one.get("file")
    if not name:
        raise ValueError(f'{where} has no file: write <include file="..."/>')
    if len(one):
        raise ValueError(f"{where} has elements inside: put them after it")
    file = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if file is None:
        tried = ", ".join(str(folder) for folder in dict.fromkeys(folders))
        raise ValueError(f"{where}: there is no file {name!r} to include. It was looked for in {tried}")
    if file.resolve() in seen:
        raise ValueError(f"{where}: {file.name} is included twice: include it once")
    seen.add(file.resolve())
    try:
        found = list(parsed(file))
    except ValueError as error:
        named = "" if file.name in str(error) else f"{file.name}: "
        raise ValueError(f"{where}: {named}{error}") from error
    if not found:
        raise ValueError(f"{where}: {file.name} has no elements to include")
    return file, found


class Settings:
    """The compiler, options and defaults of a file."""

    def __init__(self, root: Entry, notes: Notes) -> None:
        self.notes = notes
        self._compiler(self._section(root, "compiler"))
        self._option(root)
        self.classes: dict[str, dict[str, dict[str, str]]] = {"main": {}}
        self.laws: dict[str, list[Law]] = {"main": [Law()]}  # of actuators: of a class, then around it
        waiting: list[tuple[Entry, str | None]] = []
        waiting += [(one, None) for one in root.children() if one.tag == "default"][::-1]
        while waiting:
            entry, above = waiting.pop()
            found = self._default(entry, above)
            waiting += [(one, found) for one in entry.children() if one.tag == "default"]

    def _section(self, root: Entry, tag: str) -> Entry:
        """All sections with a tag as one."""
        merged = ET.Element(tag)
        for one in root.element.iter(tag):
            merged.attrib.update(one.attrib)
        return Entry(merged, root.tag, self.notes)

    def _compiler(self, entry: Entry) -> None:
        self.unit = np.pi / 180 if entry.choice("angle", ("degree", "radian"), "degree") == "degree" else 1.0
        self.sequence = str(entry.text("eulerseq", "xyz"))
        if len(self.sequence) != 3 or set(self.sequence.lower()) - set("xyz"):
            raise entry.wrong(f"must be three of the letters xyzXYZ, got {self.sequence!r}", "eulerseq")
        if entry.text("coordinate", "local") != "local":
            raise entry.wrong("must be 'local': convert the file with MuJoCo", "coordinate")
        self.auto = entry.true("autolimits", True)
        self.from_geoms = entry.choice("inertiafromgeom", ("false", "true", "auto"), "auto")
        self.groups = entry.integers("inertiagrouprange", 2, np.array([0, 5]))
        folder = entry.text("assetdir", "")
        self.folder, self.strip = str(entry.text("meshdir", folder)), entry.true("strippath")
        self.least = entry.number("boundmass"), entry.number("boundinertia")
        for key in ("balanceinertia", "settotalmass"):
            if str(entry.text(key, "false")) not in ("false", "-1"):
                raise entry.wrong("changes masses and is not supported: write the masses themselves", key)
        entry.finish(silent(_SPEED))

    def _option(self, root: Entry) -> None:
        entry, flag = self._section(root, "option"), self._section(root, "flag")
        self.gravity = entry.numbers("gravity", 3, np.array(GRAVITY))
        for key, count in (("wind", 3), ("density", 1), ("viscosity", 1)):
            if np.any(entry.numbers(key, count, 0.0)):
                self.notes.add("forces of a medium are not read", f"{entry.where}.{key}")
        self.disabled = self._disabled(root)
        entry.text("actuatorgroupdisable")
        entry.finish(silent(_SOLVER))
        off = {
            key for key in _SWITCHES.split() if flag.choice(key, ("enable", "disable"), "enable") == "disable"
        }
        flag.finish(silent(_OTHER_SWITCHES))
        off |= {"contact", "limit", "frictionloss", "equality"} if "constraint" in off else set()
        self.off = off | ({"spring", "damper"} if "passive" in off else set())
        if "gravity" in off:
            self.gravity = np.zeros(3)

    def _disabled(self, root: Entry) -> set[int]:
        """Groups of actuators that do not act. All sections count."""
        found = set[int]()
        for one in root.element.iter("option"):
            entry = Entry(one, root.tag, self.notes)
            groups = entry.integers("actuatorgroupdisable", (0, 31), np.zeros(0, int))
            if (groups < 0).any() or (groups > 30).any():
                raise entry.wrong(
                    f"must be integers from 0 to 30, got {entry.text('actuatorgroupdisable')!r}",
                    "actuatorgroupdisable",
                )
            found |= set(groups.tolist())
        return found

    def _default(self, entry: Entry, above: str | None) -> str:
        """Read the defaults of a class: those of the class around it, with its own. Its name."""
        name = entry.text("class") or ("main" if above is None else None)
        if name is None:
            raise ValueError(f"{entry.where} has no class")
        if above is None and name != "main":
            raise entry.wrong(f"is {name!r}: it must be 'main', with other classes inside", "class")
        if above is not None and name in self.classes:
            raise entry.wrong(f"is {name!r}: there are two classes with this name", "class")
        entry.finish()
        around = "main" if above is None else above
        found = {tag: dict(attributes) for tag, attributes in self.classes[around].items()}
        laws = self.laws[around] if above is None else [self.laws[around][0], *self.laws[around]]
        for one in entry.children():
            if one.tag not in _DEFAULTS:
                raise one.unknown(_DEFAULTS)
            if one.tag in ACTUATORS:
                found.setdefault(_ANY, {}).update(shared(one))
                laws = [changed(laws, one), *laws[1:]]
            elif one.tag != "default":
                found.setdefault(one.tag, {}).update(one.element.attrib)
        self.classes[name], self.laws[name] = found, laws
        return str(name)

    def entry(self, element: ET.Element, parent: str, inherited: str | None = None) -> Entry:
        """An element with the attributes of its default class."""
        name = element.get("class", inherited or "main")
        if name not in self.classes:
            where = Entry(element, parent, self.notes).where
            raise ValueError(f"{where}.class is {name!r}: {hint(name, self.classes, 'there are')}")
        tag = _ANY if element.tag in ACTUATORS else element.tag
        found = Entry(element, parent, self.notes, self.classes[name].get(tag))
        found.text("class")
        return found

    def law(self, entry: Entry) -> Law:
        """The law of an actuator, from its element and its class."""
        return changed(self.laws[entry.text("class", "main")], entry)

    def bounds(self, entry: Entry, key: str, switch: str) -> np.ndarray | None:
        """A range (2,) of an element, if it holds."""
        found, limited = entry.numbers(key, 2), entry.choice(switch, ("true", "false", "auto"), "auto")
        if found is not None and found.any() and limited == "auto" and not self.auto:
            raise entry.wrong(f"is given without {switch}, and autolimits is false: state {switch}", key)
        given = found is not None and found[0] < found[1]
        if limited == "true" and not given:
            raise entry.wrong(f"must be two numbers, the smaller one first, since {switch} is true", key)
        return found if given and limited != "false" else None

    def pose(self, entry: Entry) -> Pose:
        """The pose of an element: pos, and one of the ways to give an orientation."""
        x = entry.numbers("pos", 3, np.zeros(3))
        given = {key: entry.numbers(key, count) for key, count in ORIENTATIONS.items()}
        own = [key for key in ORIENTATIONS if key in entry.element.attrib]  # these replace a default
        stated = own or [key for key in ORIENTATIONS if given[key] is not None]
        if len(stated) > 1:
            raise ValueError(f"{entry.where} has {stated[0]} and {stated[1]}: give one orientation")
        if not stated:
            return Pose(x, EYE)
        try:
            return Pose(x, self._axes(stated[0], given[stated[0]]))
        except ValueError as error:
            raise entry.wrong(f"is no orientation: {error}", stated[0]) from error

    def _axes(self, key: str, value: Any) -> np.ndarray:
        if key == "quat":
            return Rotation.from_quat(np.roll(value, -1)).as_matrix()
        if key == "axisangle":
            axis = along(value[:3], "its axis")[:, 2]
            return Rotation.from_rotvec(self.unit * value[3] * axis).as_matrix()
        if key == "euler":
            R = EYE
            for letter, angle in zip(self.sequence, self.unit * value, strict=True):
                one = Rotation.from_euler(letter.lower(), angle).as_matrix()
                R = R @ one if letter.islower() else one @ R
            return R
        if key == "xyaxes":
            x = along(value[:3], "its x axis")[:, 2]
            y = along(value[3:] - (value[3:] @ x) * x, "its y axis")[:, 2]
            return np.stack([x, y, np.cross(x, y)], axis=1)
        return upright(value)


def upright(axis: np.ndarray) -> np.ndarray:
    """The smallest rotation (3, 3) that brings z to a direction."""
    z = along(axis, "its z axis")[:, 2]
    turn = np.cross(EYE[2], z)
    sine = np.linalg.norm(turn)
    if sine < 1e-10:
        return EYE if z[2] > 0 else np.diag([1.0, -1.0, -1.0])
    return Rotation.from_rotvec(turn / sine * np.arctan2(sine, z[2])).as_matrix()

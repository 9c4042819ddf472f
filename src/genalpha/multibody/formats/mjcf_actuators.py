"""Laws of the actuators of MJCF, and how default classes give them.

All kinds of actuators are short ways to write one law. A class has one such law, which every element in it
changes, so a default of one kind counts for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from genalpha.errors import hint
from genalpha.multibody.formats.markup import Entry

_WORDS = "general motor position velocity intvelocity orientation pid damper cylinder muscle adhesion dcmotor"
ACTUATORS = (*_WORDS.split(), "plugin")
_MEANT = "inputs of actuators are not read"
_RATIO = "damping ratios of actuators are not read"
# Attributes of the law, by kind. All others are the same for all kinds.
_OF_LAWS = {
    "general": {"gaintype", "gainprm", "biastype", "biasprm", "dyntype", "dynprm", "input"},
    "motor": set[str](),
    "position": {"kp", "kv", "dampratio", "timeconst", "inheritrange"},
    "velocity": {"kv"},
}
# The words of MuJoCo 4.0, also for laws that are not supported. Inputs say what a control stands for.
_TYPES = {
    "gaintype": "fixed affine muscle user dcmotor so3 pid",
    "biastype": "none affine muscle user dcmotor so3",
    "dyntype": "none integrator filter filterexact muscle user dcmotor pid",
}
_INPUTS = ("pos", "vel", "pressure", "quat", "expmap", "ff", "voltage", "none")
# What counts for all kinds, of the defaults of a kind that is not read.
_OF_ALL = {"gear", "ctrlrange", "ctrllimited", "forcerange", "forcelimited", "group", "armature", "damping"}


class Law(NamedTuple):
    """Force = gain·control + bias[0] + bias[1]·length + bias[2]·speed, and what wrote it last.

    A positive bias[2] next to the feedback of a position is a damping ratio.
    """

    kind: str = "general"
    gaintype: str = "fixed"
    gain: float = 1.0
    biastype: str = "none"
    bias: tuple[float, ...] = (0.0, 0.0, 0.0)
    dyntype: str = "none"
    time: float = 1.0
    inherits: float = 0.0

    def numbers(self, entry: Entry) -> tuple[float, float, float, float] | None:
        """Gain, bias, slope and drag, or None if this law is not supported."""
        if self.dyntype != "none" or self.gaintype != "fixed" or self.biastype not in ("none", "affine"):
            return None
        bias, slope, drag = self.bias if self.biastype == "affine" else (0.0, 0.0, 0.0)
        if drag > 0 and slope == -self.gain:
            entry.notes.add(_RATIO, f"{entry.where}.dampratio")
            drag = 0.0
        if self.inherits:
            entry.notes.add("limits of actuators are not applied", f"{entry.where}.inheritrange")
        return self.gain, bias, slope, drag


def shared(entry: Entry) -> dict[str, str]:
    """The attributes of a default that count for all kinds of actuators."""
    of_law = _OF_LAWS.get(entry.tag)
    counts = (lambda key: key in _OF_ALL) if of_law is None else (lambda key: key not in of_law)
    return {key: value for key, value in entry.element.attrib.items() if counts(key)}


def changed(laws: Sequence[Law], entry: Entry) -> Law:
    """The law that an element makes of that of its class. ``laws`` are those of the class and around it."""
    if entry.tag == "general":
        return _general(laws[0], entry)
    gives = lambda law: law.kind == entry.tag or (law.kind == "general" and law.gaintype == "fixed")
    start = next((law for law in laws if gives(law)), Law())
    if entry.tag == "position":
        return _position(start, entry)
    if entry.tag == "velocity":
        kv = entry.number("kv", start.gain)
        return Law("velocity", "fixed", kv, "affine", (0.0, 0.0, -kv))
    return Law("motor") if entry.tag == "motor" else Law(entry.tag, gaintype=entry.tag)


def _general(law: Law, entry: Entry) -> Law:
    given = lambda key: entry.text(key) is not None
    word = lambda key, usual: entry.choice(key, _TYPES[key].split(), "") if given(key) else usual
    for one in entry.text("input", "").split():
        if one not in _INPUTS:
            raise entry.wrong(f"is {one!r}: {hint(one, _INPUTS, 'there are')}", "input")
        entry.notes.add(_MEANT, f"{entry.where}.input")
    gain, more, time = (entry.numbers(key, (1, 10), ()) for key in ("gainprm", "biasprm", "dynprm"))
    bias = np.array(law.bias)
    bias[: len(more)] = more[:3]
    return Law(
        "general",
        word("gaintype", law.gaintype),
        float(gain[0]) if len(gain) else law.gain,
        word("biastype", law.biastype),
        tuple(bias.tolist()),
        word("dyntype", law.dyntype),
        float(time[0]) if len(time) else law.time,
        law.inherits,
    )


def _position(law: Law, entry: Entry) -> Law:
    kp, drag = entry.number("kp", law.gain), law.bias[2]
    kv, ratio = entry.numbers("kv", 1), entry.numbers("dampratio", 1)
    if kv is not None and ratio is not None:
        raise ValueError(f"{entry.where} has kv and dampratio: give one of them")
    for key, given, sign in (("kv", kv, -1.0), ("dampratio", ratio, 1.0)):
        if given is not None:
            if given[0] < 0:
                raise entry.wrong(f"is {given[0]:g}, and must not be negative", key)
            drag = sign * float(given[0])
    time = entry.number("timeconst", law.time if law.dyntype == "filterexact" else 0.0)
    delayed = "filterexact" if time > 0 else "none"
    inherits = entry.number("inheritrange", law.inherits)
    return Law("position", "fixed", kp, "affine", (0.0, -kp, drag), delayed, time, inherits)

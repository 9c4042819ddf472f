"""XML files of models: entries with the path that messages name, and notes of what was not read.

A file is text and nothing else: document types and entities are refused, and nothing is fetched.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from genalpha.errors import hint

# Numbers of XML. Python reads more, such as 1_0 and digits of other scripts.
_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.I | re.A
)
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.A)


class Notes:
    """What was not read: places by reason."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def add(self, reason: str, place: str) -> None:
        places = self.found.setdefault(reason, [])
        if place not in places:
            places.append(place)

    def listed(self) -> list[str]:
        """One text for each reason, with all its places."""
        return [f"{reason}: {', '.join(places)}" for reason, places in self.found.items()]

    def summary(self) -> str:
        """The reasons, with the number of places."""
        return "; ".join(f"{reason} ({len(places)})" for reason, places in self.found.items())


class _Refused(ValueError):
    """XML that could be read, but is not."""


class _Plain(ET.TreeBuilder):
    """Elements only."""

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise _Refused("it has a document type (<!DOCTYPE>), which could hold entities: remove it")


def parsed(path: Path) -> ET.Element:
    """The root element of an XML file."""
    parser = ET.XMLParser(target=_Plain())
    try:
        parser.feed(path.read_bytes())
        root = parser.close()
    except _Refused:
        raise
    except (ET.ParseError, LookupError, ValueError) as error:  # the last two are for encodings
        more = ": run xacro first" if "unbound prefix" in str(error) else ""
        raise ValueError(f"{path.name} is no XML that can be read: {error}{more}") from error
    for element in root.iter():
        space, bracket, name = str(element.tag).rpartition("}")
        if bracket and "xacro" in space:
            raise ValueError(f"{path.name} has the element 'xacro:{name}', a macro: run xacro first")
    return root


class Entry:
    """An element. What is asked for counts as known; :meth:`finish` names all else.

    ``given`` are attributes that it has from elsewhere, such as a default class.
    """

    def __init__(
        self, element: ET.Element, parent: str, notes: Notes, given: Mapping[str, str] | None = None
    ) -> None:
        self.element, self.tag, self.notes = element, element.tag, notes
        self.attributes = {**(given or {}), **element.attrib}
        name = element.get("name") if parent else None
        self.where = (f"{parent}/" if parent else "") + self.tag + (f" ({name})" if name else "")
        self._asked: set[str] = set()

    def wrong(self, text: str, key: str = "") -> ValueError:
        return ValueError(f"{self.where}{'.' if key else ''}{key} {text}")

    def text(self, key: str, default: Any = None) -> Any:
        self._asked.add(key)
        return self.attributes.get(key, default)

    def needed(self, key: str) -> str:
        found = self.text(key)
        if not found:
            raise ValueError(f"{self.where} has no {key}")
        return str(found)

    def numbers(self, key: str, count: int | tuple[int, int], default: Any = None) -> Any:
        """Finite numbers (count,), or between two counts."""
        found = self.text(key)
        if found is None:
            return default
        least, most = (count, count) if isinstance(count, int) else count
        words = found.split()
        values = np.array([float(x) for x in words] if all(map(_NUMBER.fullmatch, words)) else [], float)
        if not least <= len(values) <= most or not np.isfinite(values).all():
            wanted = (
                f"{least} number{'s' if least > 1 else ''}" if least == most else f"{least} to {most} numbers"
            )
            more = ": run xacro first" if "${" in found else ""
            raise self.wrong(f"must be {wanted}, got {found!r}{more}", key)
        return values

    def number(self, key: str, default: float = 0.0) -> float:
        found = self.numbers(key, 1)
        return default if found is None else float(found[0])

    def integers(self, key: str, count: int | tuple[int, int], default: Any = None) -> Any:
        """Integers (count,), or between two counts."""
        found = self.numbers(key, count)
        if found is None:
            return default
        if not all(map(_INTEGER.fullmatch, self.attributes[key].split())):
            wanted = "an integer" if count == 1 else "integers"
            raise self.wrong(f"must be {wanted}, got {self.attributes[key]!r}", key)
        return found.astype(int)

    def integer(self, key: str, default: int = 0) -> int:
        found = self.integers(key, 1)
        return default if found is None else int(found[0])

    def choice(self, key: str, options: Iterable[str], default: str) -> str:
        found, options = str(self.text(key, default)), list(options)
        if found not in options:
            raise self.wrong(f"is {found!r}: {hint(found, options, 'there are')}", key)
        return found

    def true(self, key: str, default: bool = False) -> bool:
        return self.choice(key, ("true", "false"), "true" if default else "false") == "true"

    def children(self) -> Iterator[Entry]:
        for element in self.element:
            yield Entry(element, self.where, self.notes)

    def unknown(self, known: Iterable[str]) -> ValueError:
        """The error for an element that is unknown where it is."""
        return ValueError(f"{self.where} is unknown: {hint(self.tag, known, 'there can be')}")

    def finish(self, unread: Mapping[str, str] | None = None) -> None:
        """All attributes were asked for, or are ``unread``, which gives reasons by name: these become notes.

        An empty reason is for what says nothing about the motion, which is no note.
        """
        unread = unread or {}
        for key in self.attributes:
            if key in self._asked:
                continue
            if key not in unread:
                raise self.wrong(f"is unknown: {hint(key, [*self._asked, *unread], 'there can be')}", key)
            if unread[key]:
                self.notes.add(unread[key], f"{self.where}.{key}")

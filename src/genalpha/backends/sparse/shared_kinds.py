"""What several programs may use of a kind of thing, whatever the other kinds of their assemblies are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import jax
import numpy as np

from genalpha.backends.sparse.models import Blocks, KindModel, bare
from genalpha.backends.sparse.points import NodePoints
from genalpha.compiler import kept, repeated_modules
from genalpha.compiler.kept import KeptOnDisk, of_package
from genalpha.compiler.program import Program
from genalpha.compiler.repeated import Each
from genalpha.compiler.repeated_modules import NAME, KindModule
from genalpha.engine.setup import Setup
from genalpha.mechanics.programs import Programs
from genalpha.mechanics.spaces import Space

# How many kinds are kept for each part, with other methods and other options.
MOST = 8
_nodes = Programs()


class SharedKind(KeptOnDisk):
    """The part of a kind that says who may use it.

    A kind of a program is a copy of a general one, with the model of this program and its name. The general
    one is made once for a part, a method and the form of its blocks. Its name is ``NAME``, and ``code_name``
    is what its kernels call it.
    """

    HEAVY = frozenset(
        {"graph", "builder", "program", "traced", "value", "variables", "begun", "_scale_nodes"}
    )
    points: Any
    nodes: Mapping[Space, NodePoints]
    setup: Setup
    model: KindModel
    blocks: Blocks
    program: Program
    name: str
    code_name: str
    _general: Self

    def __init__(self, setup: Setup, model: KindModel, blocks: Blocks) -> None:
        self.setup, self.model, self.blocks = setup, model, blocks
        self.name = self.code_name = model.name
        self._modules, self._derived = dict[Any, KindModule](), Programs(MOST)

    @classmethod
    def shared(
        cls, setup: Setup, model: KindModel, blocks: Blocks, taped: bool, nodes: Mapping[Space, NodePoints]
    ) -> Self:
        """The kind of a model. What does not depend on the other kinds is made once for all programs."""
        about = (cls, taped, setup.method, bool(setup.dims.m), bool(setup.dims.p), blocks.outline)
        given = (bare(setup), model._replace(name=NAME), blocks, taped, nodes)
        if model.element is None:
            identity = f"nodes of {model.space}" if of_package(model.space) else ""
            more: tuple[Any, ...] = (model.space,)
            programs = _nodes
        else:
            leaves, structure = jax.tree.flatten(model.data)
            identity, shapes = model.element.identity, tuple(np.shape(leaf)[1:] for leaf in leaves)
            more = structure, shapes, tuple(nodes[space] for space in model.element.spaces)
            programs = model.element.made("kinds", lambda: Programs(MOST))
        known = identity if not taped and of_package(setup.method) else ""
        key = lambda: kept.key(known, cls.__qualname__, *about[2:], *more[:2])
        found = programs.made((*about, *more), lambda: cls._kept(key(), *given))
        return found._for(setup, model, blocks)

    @classmethod
    def _kept(cls, place: bytes | None, *given: Any) -> Self:
        """The kind that is kept at a place, or else a new one of what is ``given``."""
        found = cls.at(place, lambda: cls(*given))
        if found.remake is not None:  # it was kept
            found.setup, found.model, found.blocks, _, found.nodes = given
            found._derived = Programs(MOST)
            if found.model.element is not None:
                found.points.nodes = [found.nodes[space] for space in found.model.element.spaces]
        return found

    def light(self) -> dict[str, Any]:
        others = ("setup", "model", "blocks", "nodes", "_general", "_derived")
        return {name: value for name, value in super().light().items() if name not in others}

    def _for(self, setup: Setup, model: KindModel, blocks: Blocks) -> Self:
        """This kind for the copies of a model."""
        mine = copy.copy(self)
        mine.setup, mine.model, mine.blocks, mine.name = setup, model, blocks, model.name
        mine._general = self
        return mine

    def derived(self, kind: Callable[[Any, Blocks], Any], blocks: Blocks) -> Any:
        """A kind that is made from the expressions of this one."""
        found = self._general._derived.made((kind, blocks.outline), lambda: kind(self._general, blocks))
        return found._for(self.setup, self.model, blocks)

    def module(self, loops: Callable[[Self], Iterable[Each]]) -> tuple[KindModule, list[Each]]:
        """Its machine code with some loops, and the loops for this model."""
        mine, general = (list(dict.fromkeys(loops(kind))) for kind in (self, self._general))
        key = (self.model.lanes, tuple(general))
        if key not in self._modules:
            program = self._general.program
            self._modules[key] = repeated_modules.of_kind(key[0], program, general, self.held)
            self._general.keep()
        return self._modules[key], mine

    @property
    def held(self) -> np.ndarray:
        """The slots that are read or written outside of machine code."""
        raise NotImplementedError

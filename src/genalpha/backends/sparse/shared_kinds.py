"""What several programs may use of a kind of thing, whatever the other kinds of their assemblies are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import jax
import numpy as np

from genalpha.backends.sparse.models import Blocks, KindModel, bare
from genalpha.backends.sparse.points import NodePoints
from genalpha.compiler import repeated_modules
from genalpha.compiler.program import Program
from genalpha.compiler.repeated import Each
from genalpha.compiler.repeated_modules import NAME, KindModule
from genalpha.engine.setup import Setup
from genalpha.mechanics.programs import Programs
from genalpha.mechanics.spaces import Space

# How many kinds are kept for each part, with other methods and other options.
MOST = 8
_nodes = Programs()


class SharedKind:
    """The part of a kind that says who may use it.

    A kind of a program is a copy of a general one, with the model of this program and its name. The general
    one is made once for a part, a method and the form of its blocks. Its name is ``NAME``, and ``code_name``
    is what its kernels call it.
    """

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
        make = lambda: cls(bare(setup), model._replace(name=NAME), blocks, taped, nodes)  # type: ignore[call-arg]
        if model.element is None:
            found = _nodes.made((*about, model.space), make)
        else:
            leaves, structure = jax.tree.flatten(model.data)
            shapes = tuple(np.shape(leaf)[1:] for leaf in leaves)
            reads = tuple(nodes[space] for space in model.element.spaces)
            programs: Programs = model.element.made("kinds", lambda: Programs(MOST))
            found = programs.made((*about, structure, shapes, reads), make)
        return found._for(setup, model, blocks)

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
            self._modules[key] = repeated_modules.of_kind(key[0], self.program, general, self.held)
        return self._modules[key], mine

    @property
    def held(self) -> np.ndarray:
        """The slots that are read or written outside of machine code."""
        raise NotImplementedError

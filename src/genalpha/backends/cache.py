"""Programs compiled by XLA, kept with the system they belong to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax

from genalpha.engine.setup import Setup


def program(
    setup: Setup, key: Hashable, function: Callable[..., Any], outermost: bool = True
) -> Callable[..., Any]:
    """The compiled ``function(setup, ...)``, kept with the system it belongs to.

    ``key`` identifies everything that the function depends on apart from the setup and its arguments. Numbers
    are arguments, not part of a key. ``outermost`` says that no JAX transform surrounds the call. Only then
    compiler options are allowed.
    """

    def make() -> Callable[..., Any]:
        options = compiler_options() if outermost else {}
        return jax.jit(lambda *inputs: function(setup, *inputs), compiler_options=options)

    return setup.system._programs.made((key, *setup[1:]), make)


@functools.cache
def compiler_options() -> dict[str, Any]:
    """Options that halve the compile time and do not change the run time, if this XLA supports them."""
    options = {"xla_cpu_use_fusion_emitters": False}
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda x: x, compiler_options=options)(0.0)
    except Exception:  # an XLA without this option
        return {}
    return options

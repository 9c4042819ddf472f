"""Energies along a motion of a problem."""

import jax
import numpy as np


def energies(p, t, q, v):
    return np.asarray(jax.jit(jax.vmap(lambda t, q, v: p.energy(t, q, v, *p.args)))(t, q, v))

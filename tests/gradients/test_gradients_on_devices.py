"""Derivatives of runs in a program for two devices, which run it at the same time."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np, genalpha as ga
from jax.sharding import Mesh, NamedSharding, PartitionSpec

placed = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
gravities = jnp.linspace(8.0, 11.0, 4)
found = []
for _ in range(4):  # each needs code of its own
    system = ga.System(np.eye(2), lambda t, q, v, g: g * jnp.array([0.0, -1.0]), lambda t, q, g: jnp.array([q @ q - 1.0]))
    end = lambda g: ga.solve(system, (0.0, 0.2), [1.0, 0.0], [0.0, 0.0], args=(g,), h=0.02).q[-1, 1]
    program = jax.jit(jax.vmap(jax.grad(end)))
    sys.setswitchinterval(1e-6)
    found.append(program(jax.device_put(gravities, placed)))
    sys.setswitchinterval(5e-3)
alone = [jax.grad(end)(g) for g in gravities]
np.testing.assert_allclose(found, [alone] * 4, rtol=1e-12)
print(len(jax.devices()), "devices")
"""  # noqa: E501 - a program


@pytest.mark.slow
def test_batches_that_lie_on_two_devices():
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 devices\n"

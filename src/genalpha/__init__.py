"""genalpha: generalized-α time integration of constrained mechanical systems.

Importing the package switches JAX to double precision (``jax_enable_x64``): constraints divided by h²
leave no digits in single precision.
"""

import jax

jax.config.update("jax_enable_x64", True)

from genalpha import problems  # noqa: E402
from genalpha.coefficients import (  # noqa: E402
    Coefficients,
    chung_hulbert,
    hht,
    newmark,
    stormer,
    trapezoidal,
    wbz,
)
from genalpha.errors import (  # noqa: E402
    InconsistentInitialValues,
    IntegrationError,
    RedundantConstraints,
    SingularSystem,
)
from genalpha.methods import HHTSOI2, SOI2, GeneralizedAlpha  # noqa: E402
from genalpha.newton import Newton  # noqa: E402
from genalpha.solution import Solution, load  # noqa: E402
from genalpha.solve import consistent, solve  # noqa: E402
from genalpha.spaces import Euclidean  # noqa: E402
from genalpha.state import State  # noqa: E402
from genalpha.system import System  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "HHTSOI2",
    "SOI2",
    "Coefficients",
    "Euclidean",
    "GeneralizedAlpha",
    "InconsistentInitialValues",
    "IntegrationError",
    "Newton",
    "RedundantConstraints",
    "SingularSystem",
    "Solution",
    "State",
    "System",
    "chung_hulbert",
    "consistent",
    "hht",
    "load",
    "newmark",
    "problems",
    "solve",
    "stormer",
    "trapezoidal",
    "wbz",
]

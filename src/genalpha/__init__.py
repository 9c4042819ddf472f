"""genalpha: generalized-α time integration of constrained mechanical systems.

Importing the package switches JAX to double precision (``jax_enable_x64``). Single precision is not enough,
because constraints are divided by h².
"""

import jax

jax.config.update("jax_enable_x64", True)

from genalpha import analysis, methods, multibody, problems, rotation  # noqa: E402
from genalpha._version import __version__ as __version__  # noqa: E402
from genalpha.compiler.tiers import finish_compiling  # noqa: E402
from genalpha.consistent import consistent, project_position, project_velocity  # noqa: E402
from genalpha.engine.discrete import Controller  # noqa: E402
from genalpha.engine.events import Event, Reset  # noqa: E402
from genalpha.engine.run_data import RunState  # noqa: E402
from genalpha.errors import (  # noqa: E402
    EquilibriumNotFound,
    FallbackWarning,
    GradientWarning,
    HostWarning,
    InconsistentInitialValues,
    IntegrationError,
    RedundantConstraints,
    SingularSystem,
)
from genalpha.mechanics.assembly import Assembly  # noqa: E402
from genalpha.mechanics.host import host  # noqa: E402
from genalpha.mechanics.lookup_table import LookupTable  # noqa: E402
from genalpha.mechanics.parts import Part  # noqa: E402
from genalpha.mechanics.spaces import SE3, SO3, Euclidean, Product, R3xSO3, Space, States  # noqa: E402
from genalpha.mechanics.state_system import StateSystem  # noqa: E402
from genalpha.mechanics.system import System  # noqa: E402
from genalpha.methods import (  # noqa: E402
    HHTI3,
    HHTSOI2,
    SOI2,
    CoordinateSplit,
    DAEAlpha,
    GeneralizedAlpha,
    Index3,
    Method,
    ProjectedAlpha,
    StabilizedIndex2,
    Unknown,
)
from genalpha.methods.coefficients import (  # noqa: E402
    Coefficients,
    chung_hulbert,
    hht,
    newmark,
    stormer,
    trapezoidal,
    wbz,
)
from genalpha.numerics.data import State  # noqa: E402
from genalpha.numerics.newton import Newton  # noqa: E402
from genalpha.results.concatenate import concatenate  # noqa: E402
from genalpha.results.files import load, load_state  # noqa: E402
from genalpha.results.phases import Phase  # noqa: E402
from genalpha.results.solution import Solution  # noqa: E402
from genalpha.sensitivity import Sensitivity, sensitivity  # noqa: E402
from genalpha.solve import solve  # noqa: E402
from genalpha.solve_batch import solve_batch  # noqa: E402
from genalpha.statics.equilibrium import Equilibrium, equilibrium  # noqa: E402
from genalpha.statics.inverse import InverseDynamics, inverse_dynamics  # noqa: E402
from genalpha.statics.linear import Linear, linearize  # noqa: E402
from genalpha.statics.modes import Modes, modes  # noqa: E402
from genalpha.sweep import reductions  # noqa: E402
from genalpha.sweep.axes import Samples  # noqa: E402
from genalpha.sweep.front import sweep  # noqa: E402
from genalpha.sweep.gradient import sweep_gradient  # noqa: E402
from genalpha.sweep.opening import open_sweep  # noqa: E402
from genalpha.sweep.sweeping import Sweep  # noqa: E402
from genalpha.symbolic.front import Expressions, from_sympy  # noqa: E402
from genalpha.view import shapes  # noqa: E402
from genalpha.view.front import View, view  # noqa: E402
from genalpha.view.live import Live  # noqa: E402
from genalpha.view.scene import Scene  # noqa: E402

__all__ = [
    "HHTI3",
    "HHTSOI2",
    "SE3",
    "SO3",
    "SOI2",
    "Assembly",
    "Coefficients",
    "Controller",
    "CoordinateSplit",
    "DAEAlpha",
    "Equilibrium",
    "EquilibriumNotFound",
    "Euclidean",
    "Event",
    "Expressions",
    "FallbackWarning",
    "GeneralizedAlpha",
    "GradientWarning",
    "HostWarning",
    "InconsistentInitialValues",
    "Index3",
    "IntegrationError",
    "InverseDynamics",
    "Linear",
    "Live",
    "LookupTable",
    "Method",
    "Modes",
    "Newton",
    "Part",
    "Phase",
    "Product",
    "ProjectedAlpha",
    "R3xSO3",
    "RedundantConstraints",
    "Reset",
    "RunState",
    "Samples",
    "Scene",
    "Sensitivity",
    "SingularSystem",
    "Solution",
    "Space",
    "StabilizedIndex2",
    "State",
    "StateSystem",
    "States",
    "Sweep",
    "System",
    "Unknown",
    "View",
    "analysis",
    "chung_hulbert",
    "concatenate",
    "consistent",
    "equilibrium",
    "finish_compiling",
    "from_sympy",
    "hht",
    "host",
    "inverse_dynamics",
    "linearize",
    "load",
    "load_state",
    "methods",
    "modes",
    "multibody",
    "newmark",
    "open_sweep",
    "problems",
    "project_position",
    "project_velocity",
    "reductions",
    "rotation",
    "sensitivity",
    "shapes",
    "solve",
    "solve_batch",
    "stormer",
    "sweep",
    "sweep_gradient",
    "trapezoidal",
    "view",
    "wbz",
]

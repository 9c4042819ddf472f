"""What an error at the start of a run means for a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from genalpha.errors import InconsistentInitialValues, NoMultipliers, RedundantConstraints, SingularSystem
from genalpha.multibody.rolling import lying

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


@contextlib.contextmanager
def noted(model: Model) -> Iterator[None]:
    """Add to errors at the start what they mean for joints."""
    try:
        yield
    except InconsistentInitialValues as error:
        error.add_note("The joints are not closed: model.assemble() closes them, at a time t.")
        raise
    except RedundantConstraints as error:
        if any(joint.dropped for joint in model.joints):
            error.add_note("Redundant rows were left out: move the model away from this singular position.")
        else:
            error.add_note("model.assemble(redundant='drop') leaves redundant rows of joints out.")
        raise
    except (NoMultipliers, SingularSystem) as error:
        rubbing = [repr(joint.name) for joint in model.joints if "friction" in joint.numbers]
        if rubbing:
            error.add_note(
                f"Friction in {', '.join(rubbing)} depends on its reactions, and may jam it: then "
                "no reactions balance the loads. Try a smaller coefficient, or longer guides."
            )
        raise
    except ValueError as error:
        if flat := lying(model):
            error.add_note(flat)
        raise

"""What an error at the start of a run means for a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from genalpha.errors import InconsistentInitialValues, NoMultipliers, RedundantConstraints, SingularSystem
from genalpha.multibody.rolling import lying

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


def _say(error: Exception, text: str) -> None:
    """Add a sentence to the message of an error."""
    said = str(error)
    error.args = (f"{said}{'' if said.endswith('.') else '.'} {text}", *error.args[1:])


@contextlib.contextmanager
def noted(model: Model) -> Iterator[None]:
    """Add to errors at the start what they mean for joints."""
    try:
        yield
    except InconsistentInitialValues as error:
        _say(error, "In a model the joints are not closed: model.assemble() closes them, at a time t.")
        raise
    except RedundantConstraints as error:
        if any(joint.dropped for joint in model.joints):
            _say(error, "Redundant rows were left out: move the model away from this singular position.")
        else:
            _say(error, "model.assemble(redundant='drop') leaves redundant rows of joints out.")
        raise
    except (NoMultipliers, SingularSystem) as error:
        rubbing = [repr(joint.name) for joint in model.joints if "friction" in joint.numbers]
        if rubbing:
            _say(
                error,
                f"Friction in {', '.join(rubbing)} depends on its reactions, and may jam it: then "
                "no reactions balance the loads. Try a smaller coefficient, or longer guides.",
            )
        raise
    except ValueError as error:
        if flat := lying(model):
            _say(error, flat)
        raise

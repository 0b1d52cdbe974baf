"""From a definition to a plan: points, hosts, processes, phases and order. Pure functions only.

What builds plans is loaded when it is asked for: short commands read the model of a plan alone, and the definitions
with all their engines take more than half a second of CPU.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from microshard.plan.build import build_plan
    from microshard.plan.inputs import Inputs, PlanError

__all__ = ["Inputs", "PlanError", "build_plan"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("microshard.plan.build"), name)

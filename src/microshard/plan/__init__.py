"""From a definition to a plan: points, hosts, processes, phases and order. Pure functions only."""

from microshard.plan.build import Inputs, PlanError, build

__all__ = ["Inputs", "PlanError", "build"]

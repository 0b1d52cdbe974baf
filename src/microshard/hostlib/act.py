"""What an act is, and how it becomes a module."""

from __future__ import annotations

import time
from typing import Any, Protocol

from ansible.module_utils.basic import AnsibleModule

from .refused import Refused


class Act(Protocol):
    """A module of the package `acts`."""

    ARGUMENTS: dict[str, Any]

    def act(self, wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
        """Do it, or with `check` only say what would be done; the module's result, or Refused."""


def perform(act: Act, wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The act's result with its duration, failed or not."""
    began = time.monotonic()
    try:
        result = act.act(wanted, check=check)
    except (Refused, OSError) as problem:
        details = problem.details if isinstance(problem, Refused) else {}
        result = {"failed": True, "msg": str(problem), **details}
    return {"changed": False, **result, "seconds": round(time.monotonic() - began, 3)}


def as_module(act: Act) -> None:
    """Be a module that does this act."""
    module = AnsibleModule(argument_spec=act.ARGUMENTS, supports_check_mode=True)
    result = perform(act, module.params, check=module.check_mode)
    if result.pop("failed", False):
        module.fail_json(**result)
    module.exit_json(**result)

"""Performs an act of microshard where it belongs, without a second interpreter where that is here."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

_PACKAGE = "ansible.module_utils.hostlib"
_MODULE_UTILS = str(Path(__file__).resolve().parents[1] / "module_utils")


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible has no types
    """Base of the action plugins that carry the names of our modules.

    Sending a module costs 0.2 s even to this machine: an archive is packed, a Python started, and everything compiled
    from source. A run has some hundred tasks between its measurements. So where the module would be executed by this
    very interpreter, its function is called at once; everywhere else the module is sent as usual. Both do the same act.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Perform the act that the task names."""
        super().run(tmp, task_vars)
        return self.perform(dict(self._task.args), task_vars or {})

    def perform(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """The result of the act with these arguments."""
        name = self._task.action.rpartition(".")[2]
        if not self._is_here(variables):
            return dict(self._execute_module(module_name=name, module_args=arguments, task_vars=variables))
        act = self.act_of(name)
        validated = ArgumentSpecValidator(act.ARGUMENTS).validate(arguments)
        if validated.error_messages:
            raise AnsibleActionFail("; ".join(validated.error_messages))
        perform = importlib.import_module(f"{_PACKAGE}.act").perform
        return dict(perform(act, validated.validated_parameters, check=self._task.check_mode))

    @staticmethod
    def act_of(name: str) -> Any:
        """The act of a module, imported."""
        if _MODULE_UTILS not in ansible.module_utils.__path__:
            ansible.module_utils.__path__.append(_MODULE_UTILS)
        return importlib.import_module(f"{_PACKAGE}.acts.{name}")

    def keep(self, path: Any, content: Any) -> None:
        """Write what a host said of itself into a file of the controller, as JSON; nothing where nothing was said."""
        if not path or not content or self._task.check_mode:
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(content, indent=4, sort_keys=True) + "\n", encoding="utf-8")

    def _is_here(self, variables: dict[str, Any]) -> bool:
        """Whether the module would run on this machine, as this user, with this interpreter."""
        interpreter = self._templar.template(variables.get("ansible_python_interpreter", ""))
        return (
            self._connection.transport == "local"
            and not self._play_context.become
            and not any(self._task.environment or ())
            and not self._task.async_val
            and interpreter == sys.executable
        )

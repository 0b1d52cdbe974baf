"""Executes a module of this project in Ansible's own process where it would run on this machine, else sends it.

meta/runtime.yml of the collection names it for the modules that have no action plugin of their own; those extend it by
work on the controller. `record` is a file of the controller for what a host reports.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

_HOSTLIB = "ansible_collections.microshard.lab.plugins.module_utils.hostlib"


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible has no types
    """Calls `main` of hostlib/NAME.py, as the module NAME does.

    To send a module costs 0.2 s even to this machine (an archive is packed, a Python started, everything compiled), and
    a run has some hundred tasks between its measurements: rows 2 and 6 of docs/benchmarks.md.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of the task."""
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        record = arguments.pop("record", None)
        result = self.execute(arguments, task_vars or {})
        if record and result.get("record") and not self._task.check_mode:
            self.write_json(Path(record), result.pop("record"))
        return result

    def execute(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """The result of the module with these arguments. Plugins with work on the controller extend this."""
        if not self._runs_here(variables):
            return dict(self._execute_module(module_name=self._task.action, module_args=arguments, task_vars=variables))
        module = self.load(self._task.action.rpartition(".")[2])
        validated = ArgumentSpecValidator(module.ARGUMENTS).validate(arguments)
        if validated.error_messages:
            raise AnsibleActionFail("; ".join(validated.error_messages))
        call_main = self.load("errors").call_main
        return dict(call_main(module.main, validated.validated_parameters, check=self._task.check_mode))

    @staticmethod
    def load(name: str) -> Any:
        """A file of hostlib, imported as on a host."""
        return importlib.import_module(f"{_HOSTLIB}.{name}")

    @staticmethod
    def write_json(path: Path, content: Any) -> None:
        """Keep on the controller what a host has reported."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def _runs_here(self, variables: dict[str, Any]) -> bool:
        """Whether the module would run on this machine, as this user, with this interpreter."""
        interpreter = self._templar.template(variables.get("ansible_python_interpreter", ""))
        return (
            self._connection.transport == "local"
            and not self._play_context.become
            and not any(self._task.environment or ())
            and not self._task.async_val
            and interpreter == sys.executable
        )

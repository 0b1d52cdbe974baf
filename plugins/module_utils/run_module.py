"""Runs a file of hostlib as a module of Ansible."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.microshard.lab.plugins.module_utils.hostlib.errors import call_main


def run_module(implementation: Any) -> None:
    """Check the arguments of the task, call `main` of the file, and report its result or failure."""
    module = AnsibleModule(argument_spec=implementation.ARGUMENTS, supports_check_mode=True)
    result = call_main(implementation.main, module.params, check=module.check_mode)
    if result.pop("failed", False):
        module.fail_json(**result)
    module.exit_json(**result)

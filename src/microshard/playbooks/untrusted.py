"""Variables for ansible-playbook whose values it must not evaluate.

Ansible takes every string of a file of variables for a template, those of an experiment too: a pipeline with
`{{ lookup('pipe', …) }}` in it would run a command. A string marked as below is left as it is.
https://docs.ansible.com/ansible/latest/playbook_guide/playbooks_advanced_syntax.html#unsafe-or-raw-strings
"""

from __future__ import annotations

from typing import Any

from microshard.errors import EXIT_DEFINITION, MicroshardError

_MARK = "__ansible_unsafe"
_RESERVED = "__ansible_"  # Ansible's JSON reader makes something else of a mapping with such a key
_TEMPLATES = ("{{", "{%", "{#")


class ReservedKeyError(MicroshardError):
    """A key that Ansible reads as an instruction."""

    exit_code = EXIT_DEFINITION


def marked(value: Any) -> Any:
    """`value` with every string marked that Ansible would evaluate. Raises ReservedKeyError."""
    if isinstance(value, str):
        return {_MARK: value} if any(mark in value for mark in _TEMPLATES) else value
    if isinstance(value, dict):
        for key in value:
            if str(key).startswith(_RESERVED):
                raise ReservedKeyError(f"{key}: names that begin with {_RESERVED} are Ansible's own; take another one")
        return {key: marked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [marked(item) for item in value]
    return value

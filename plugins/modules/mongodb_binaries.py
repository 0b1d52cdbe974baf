#!/usr/bin/python
"""The binaries of a run: there, executable, and of the version the run was planned for."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mongodb_binaries
short_description: mongod and mongos of a run execute and are of its version
description:
  - Executes both with C(--version) and compares; changes nothing.
options:
  mongod:
    description: Path of mongod.
    type: path
    required: true
  mongos:
    description: Path of mongos; empty where no point of the run is sharded.
    type: path
    default: ""
  version:
    description: Version that mongod must have, as far as given (6.0 or 6.0.5).
    type: str
    default: ""
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: The binaries of the run execute
  mongodb_binaries:
    mongod: "{{ microshard_run.bin.mongod }}"
    version: "6.0.5"
"""

RETURN = r"""
versions:
  description: First line of what each binary says of itself.
  returned: success
  type: dict
"""

import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule


class Unusable(Exception):
    """A binary that does not do, and why."""


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "mongod": {"type": "path", "required": True},
            "mongos": {"type": "path", "default": ""},
            "version": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    paths = {name: module.params[name] for name in ("mongod", "mongos") if module.params[name]}
    try:
        with ThreadPoolExecutor(len(paths)) as pool:
            versions = dict(zip(paths, pool.map(_ask, paths.values())))
        _require_version(paths["mongod"], versions["mongod"], module.params["version"])
    except Unusable as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(changed=False, versions=versions, msg="; ".join(versions.values()))


def _ask(path: str) -> str:
    """The first line of `path --version`."""
    if not os.path.isfile(path):
        raise Unusable(f"{path} is not there. Set it up again, or point to another with topology.mongodb.path")
    if not os.access(path, os.X_OK):
        raise Unusable(f"{path} may not be executed: chmod +x {path}")
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        raise Unusable(f"{path} cannot be executed on this machine: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Unusable(f"{path} --version did not end within 30 s") from None
    if answer.returncode == -signal.SIGILL:
        raise Unusable(f"{path} needs instructions this processor lacks (mongod since 5.0 needs AVX)")
    if answer.returncode != 0 or not answer.stdout.strip():
        words = (answer.stderr or answer.stdout).strip()[-500:] or "it said nothing"
        raise Unusable(f"{path} --version ended with exit code {answer.returncode}: {words}")
    return answer.stdout.splitlines()[0]


def _require_version(path: str, line: str, wanted: str) -> None:
    found = re.search(r"v(\d+\.\d+\.\d+)", line)
    if not found:
        raise Unusable(f"{path} is not a mongod: it says {line!r}")
    if wanted and not f"{found[1]}.".startswith(f"{wanted}."):
        raise Unusable(f"{path} is MongoDB {found[1]}, the run was planned for {wanted}")


if __name__ == "__main__":
    main()

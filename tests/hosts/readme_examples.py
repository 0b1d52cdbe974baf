"""The example playbooks in the roles' READMEs, run as they stand there: by ansible-playbook, on machines of the bed.

    converge(lab, "run_secrets", tmp_path)      # twice: the second run must change nothing

The first block of YAML in `roles/NAME/README.md` that is a playbook is the example. It is written to `FOLDER/NAME.yml`;
what its README says must lie beside the playbook is the test's to put there. `inventory` and variables stand for what a
user has of their own: a mirror, a device, a binary. Nothing of microshard runs on the controller but the roles.
"""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hosts.bed import Bed
from tests.hosts.controller import ANSIBLE_PLAYBOOK

ROOT = Path(__file__).parents[2]
_LONGEST = 15  # lines of an example


@dataclass(frozen=True)
class Here:
    """This machine instead of the bed, with other ports than the examples' 27100 and following."""

    inventory: Path
    first_port: int

    def inside(self, command: list[Any]) -> list[Any]:
        """The command line."""
        return command

    def moved(self, text: str) -> str:
        """An example with its ports."""
        return re.sub(r"\b271(\d\d)\b", lambda found: str(self.first_port + int(found[1])), text)


def example(role: str) -> str:
    """The example playbook of a role, from its README."""
    readme = (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```yaml\n(- name: .*?)^```$", readme, re.DOTALL | re.MULTILINE)
    assert found, f"roles/{role}/README.md has no example playbook"
    assert len(found[1].splitlines()) <= _LONGEST, f"the example of roles/{role}/README.md is too long"
    return found[1]


def play(
    lab: Bed | Here,
    role: str,
    folder: Path,
    *words: str,
    inventory: Path | None = None,
    text: str = "",
    **variables: Any,
) -> subprocess.CompletedProcess[str]:
    """Run the example of a role, or `text` instead, from a folder; `words` are options of ansible-playbook: --check."""
    playbook = folder / f"{role}.yml"
    text = text or example(role)
    playbook.write_text(lab.moved(text) if isinstance(lab, Here) else text, encoding="utf-8")
    command: list[str | Path] = [ANSIBLE_PLAYBOOK, "--inventory", inventory or lab.inventory, playbook, *words]
    return subprocess.run(
        lab.inside([*command, "--extra-vars", json.dumps(variables)]),
        cwd=folder,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_HOME": str(folder / "ansible")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def succeed(lab: Bed | Here, role: str, folder: Path, *words: str, **options: Any) -> str:
    """The same, and it must succeed; what it printed."""
    done = play(lab, role, folder, *words, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def changes(output: str) -> dict[str, int]:
    """Host → tasks that changed it, from the recap of a play."""
    return {host: int(count) for host, count in re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", output, re.MULTILINE)}


def converge(lab: Bed | Here, role: str, folder: Path, **options: Any) -> str:
    """Run the example twice: the first run must change every host of it, the second none. What the first printed."""
    first = succeed(lab, role, folder, **options)
    assert changes(first), first
    assert all(changes(first).values()), first
    second = succeed(lab, role, folder, **options)
    assert not any(changes(second).values()), second
    return first

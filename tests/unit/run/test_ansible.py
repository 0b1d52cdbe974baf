"""What Ansible is started with: the project's own settings, whatever the user's environment says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from microshard.run.ansible import Playbooks
from microshard.run.folder import RunFolder
from microshard.run.place import project_root


def test_host_keys_are_checked_and_temporary_files_lie_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
    monkeypatch.setenv("ANSIBLE_SSH_ARGS", "-o StrictHostKeyChecking=no")
    run = RunFolder.create(tmp_path, "sample")
    command = [str(Path(sys.executable).with_name("ansible-config")), "dump", "--format", "json"]
    environment = Playbooks(run)._environment(project_root())
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    said = {one["name"]: one["value"] for one in json.loads(done.stdout) if "name" in one}
    assert said["HOST_KEY_CHECKING"] is True
    assert said["DEFAULT_LOCAL_TMP"].startswith(str(run / "tmp"))
    assert "StrictHostKeyChecking" not in environment.get("ANSIBLE_SSH_ARGS", "")
    assert "StrictHostKeyChecking=no" not in (project_root() / "ansible.cfg").read_text(encoding="utf-8")

"""What Ansible is started with, by the real Ansible; and how a failed playbook is explained."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from microshard.records.run_folder import RunFolder
from microshard.run.ansible import Playbooks, ReservedKeyError, explain, mark_unsafe
from microshard.this_machine import project_root

PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: "{{ {'whole': given, 'part': 'a ' ~ given.text, 'in a list': given.list} | to_json }}"
        dest: "{{ out }}"
        mode: "0600"
"""


def test_host_keys_are_checked_and_temporary_files_lie_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
    monkeypatch.setenv("ANSIBLE_SSH_ARGS", "-o StrictHostKeyChecking=no")
    run = RunFolder.create(tmp_path, "sample")
    command = [str(Path(sys.executable).with_name("ansible-config")), "dump", "--format", "json"]
    environment = Playbooks(run).environment(project_root())
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    said = {one["name"]: one["value"] for one in json.loads(done.stdout) if "name" in one}
    assert said["HOST_KEY_CHECKING"] is True
    assert said["DEFAULT_LOCAL_TMP"].startswith(str(run / "tmp"))
    assert "StrictHostKeyChecking" not in environment.get("ANSIBLE_SSH_ARGS", "")
    assert "StrictHostKeyChecking=no" not in (project_root() / "ansible.cfg").read_text(encoding="utf-8")


@pytest.mark.parametrize(("code", "by"), [(-9, "SIGKILL"), (-15, "SIGTERM"), (99, "SIGINT"), (130, "SIGINT")])
def test_a_playbook_that_was_ended_is_reported_without_what_python_was_at(tmp_path: Path, code: int, by: str) -> None:
    log = tmp_path / "ansible.log"
    log.write_text("TASK [sleep]\nTraceback (most recent call last):\nKeyboardInterrupt\n", encoding="utf-8")
    assert explain("measure", code, [], log) == f"playbook measure was ended by {by}; see {log}"


def test_a_playbook_that_failed_without_a_task_shows_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "ansible.log"
    log.write_text("[ERROR]: the playbook could not be found\n", encoding="utf-8")
    said = explain("measure", 4, [], log)
    assert said.startswith("playbook measure ended with exit code 4; the end of ")
    assert said.endswith("[ERROR]: the playbook could not be found")


def test_no_template_in_a_value_or_key_is_evaluated(tmp_path: Path) -> None:
    trap = f"{{{{ lookup('ansible.builtin.pipe', 'touch {tmp_path}/trapped') }}}}"
    given = {"text": trap, "list": [trap, {"deep": "{% set a = 1 %}", trap: 1}], "comment": "{# gone? #}", "n": 1e-7}
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    variables = {"given": given, "out": str(tmp_path / "out.json")}
    (tmp_path / "vars.json").write_text(json.dumps(mark_unsafe(variables)), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "-c", "local"]
    done = subprocess.run(
        [*command, "-e", f"@{tmp_path}/vars.json", "-e", f"ansible_python_interpreter={sys.executable}",
         str(tmp_path / "play.yml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "trapped").exists()
    out = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert out == {"whole": given, "part": f"a {trap}", "in a list": given["list"]}


@pytest.mark.parametrize("key", ["__ansible_vault", "__ansible_unsafe"])
def test_a_key_that_ansible_would_read_as_its_own_is_refused(key: str) -> None:
    with pytest.raises(ReservedKeyError, match=key):
        mark_unsafe({"pipeline": [{"$match": {key: "x"}}]})

"""The role run_secrets: secrets are readable by their owner only, and written nowhere else."""

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from microshard.run import secrets
from tests.cluster.ansible.lab import BIN, ROOT

pytestmark = pytest.mark.cluster
NAMES = ["keyfile", "ca.pem", "server.pem", "users.json"]
# Everything somebody may have done to the secrets between two runs; in this order.
SPOILED = (
    "true",
    "chmod 755 {folder}",
    "chmod 644 {folder}/keyfile",
    "echo old >{folder}/keyfile",
    "rm {folder}/keyfile",
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    secrets.make(tmp_path / "secrets", ["127.0.0.1"])
    return tmp_path / "secrets"


def play(folder: Path, *words: str, spoil: tuple[str, ...] = (), **variables: Any) -> tuple[int, str]:
    """The role on this machine, and again after each of the commands `spoil`; its exit code and output."""
    role = {"ansible.builtin.include_role": {"name": "microshard.lab.run_secrets"}}
    tasks: list[dict[str, Any]] = [role]
    for command in spoil:
        tasks += [{"ansible.builtin.shell": command.format(folder=folder / "there")}, role]
    playbook = folder / "play.json"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    given = {
        "ansible_python_interpreter": str(BIN / "python"),
        "run_secrets_folder": str(folder / "there"),
        "run_secrets_names": NAMES,
        **variables,
    }
    done = subprocess.run(
        [BIN / "ansible-playbook", "-i", "localhost,", "-c", "local", *words, playbook, "-e", json.dumps(given)],
        cwd=ROOT, env={**os.environ, "ANSIBLE_HOME": str(folder / "tmp")}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_ansible_at_its_most_talkative_shows_none_of_them(tmp_path: Path, source: Path) -> None:
    code, said = play(tmp_path, "-vvvvv", "--diff")
    assert code == 0, said
    for name in NAMES:
        text = (source / name).read_text(encoding="utf-8")
        assert (tmp_path / "there" / name).read_text(encoding="utf-8") == text
        assert stat.S_IMODE((tmp_path / "there" / name).stat().st_mode) == 0o600
        for line in text.splitlines():
            hidden = json.loads(line)["admin"]["password"] if name == "users.json" else line
            assert hidden.startswith("-----") or hidden not in said


@pytest.mark.long
def test_whatever_was_done_to_them_is_undone(tmp_path: Path, source: Path) -> None:
    code, said = play(tmp_path, spoil=SPOILED, run_secrets_names=["keyfile"])
    assert code == 0, said
    # Folder and file at first, nothing again, and then for each command two: itself, and what it did is undone.
    assert f"changed={2 + 1 + 2 * (len(SPOILED) - 1)} " in said
    there = tmp_path / "there"
    assert stat.S_IMODE(there.stat().st_mode) == 0o700
    assert stat.S_IMODE((there / "keyfile").stat().st_mode) == 0o600
    assert (there / "keyfile").read_text() == (source / "keyfile").read_text()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"run_secrets_names": ["keyfile", "none.pem"]}, "none.pem of run_secrets_names: no file"),
        ({"run_secrets_names": ["../secrets/keyfile"]}, "../secrets/keyfile of run_secrets_names: no file"),
        ({"run_secrets_names": [["keyfile"]]}, "run_secrets_names"),
        ({"run_secrets_owner": "nobody-of-that-name"}, "failed to look up user nobody-of-that-name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_nothing_is_written(
    tmp_path: Path, source: Path, variables: dict[str, Any], message: str
) -> None:
    code, said = play(tmp_path, **variables)
    assert code != 0
    assert message in " ".join(said.split())
    assert not (tmp_path / "there" / "keyfile").exists()


def test_they_go_through_no_link(tmp_path: Path, source: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "there").symlink_to(tmp_path / "elsewhere")
    code, said = play(tmp_path)
    assert code != 0
    assert "already exists as a link" in said
    assert not list((tmp_path / "elsewhere").iterdir())

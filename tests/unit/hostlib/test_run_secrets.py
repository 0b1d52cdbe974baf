"""The secrets of a run on a host: readable by their owner only, and written nowhere else."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from microshard.hostlib import run_secrets
from microshard.hostlib.errors import call_main
from microshard.run import secrets

ROOT = Path(__file__).resolve().parents[3]
NAMES = ["keyfile", "ca.pem", "server.pem", "users.json"]
PLAY = [{
    "hosts": "localhost", "gather_facts": False,
    "vars": {
        "microshard_run": {"folder": "{{ folder }}", "process_manager": "direct"},
        "run_secrets_source": "{{ source }}", "run_secrets_names": NAMES,
    },
    "roles": [str(ROOT / "roles" / "run_secrets")],
}]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of a run on a host."""
    made = tmp_path / "host" / "tiny-1"
    made.mkdir(parents=True)
    (made / "run.json").write_text('{"microshard": "host", "run_id": "tiny-1"}', encoding="utf-8")
    return made


def put(folder: Path, files: dict[str, str], *, check: bool = False, **other: Any) -> dict[str, Any]:
    """The result of the module."""
    parameters = {"run_folder": str(folder), "owner": "", "files": files, **other}
    return call_main(run_secrets.main, parameters, check=check)


def test_the_files_are_their_owners_alone_whatever_was_there_before(folder: Path) -> None:
    assert put(folder, {"keyfile": "abc"}, check=True)["changed"]
    assert not (folder / "secrets").exists()
    assert put(folder, {"keyfile": "abc", "ca.pem": "x"})["changed"]
    assert not put(folder, {"keyfile": "abc", "ca.pem": "x"})["changed"]
    for spoil in (
        lambda: (folder / "secrets").chmod(0o755),
        lambda: (folder / "secrets" / "keyfile").chmod(0o644),
        lambda: (folder / "secrets" / "keyfile").write_text("old", encoding="utf-8"),
        (folder / "secrets" / "keyfile").unlink,
    ):
        spoil()
        assert put(folder, {"keyfile": "abc"})["changed"]
        assert (folder / "secrets" / "keyfile").read_text(encoding="utf-8") == "abc"
        assert stat.S_IMODE((folder / "secrets").stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "secrets" / "keyfile").stat().st_mode) == 0o600


def test_they_go_to_no_other_place_and_to_nobody_unknown(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / "secrets").symlink_to(tmp_path / "elsewhere")
    assert "is a link" in put(folder, {"keyfile": "abc"})["msg"]
    (folder / "secrets").unlink()
    assert "not the name of a file" in put(folder, {"../keyfile": "abc"})["msg"]
    assert "there is no user nobody-of-that-name" in put(folder, {"keyfile": "a"}, owner="nobody-of-that-name")["msg"]
    assert "is not a folder of a run" in put(tmp_path / "elsewhere", {"keyfile": "abc"})["msg"]
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (folder / "secrets").exists()
    assert not (folder / "keyfile").exists()


@pytest.mark.parametrize("interpreter", [sys.executable, "/usr/bin/python3"], ids=["here", "sent as a module"])
def test_ansible_at_its_most_talkative_tells_none_of_them(folder: Path, tmp_path: Path, interpreter: str) -> None:
    secrets.make(tmp_path / "secrets", ["127.0.0.1"])
    (tmp_path / "play.json").write_text(json.dumps(PLAY), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-vvvvv", "--diff", "-i", "localhost,"]
    command += ["-c", "local", "-e", f"folder={folder}", "-e", f"source={tmp_path / 'secrets'}"]
    command += ["-e", f"ansible_python_interpreter={interpreter}", str(tmp_path / "play.json")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "tmp")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "4 files, 4 of them written" in done.stdout
    for name in NAMES:
        text = (tmp_path / "secrets" / name).read_text(encoding="utf-8")
        assert (folder / "secrets" / name).read_text(encoding="utf-8") == text
        for line in text.splitlines():
            hidden = json.loads(line)["admin"]["password"] if name == "users.json" else line
            assert hidden.startswith("-----") or hidden not in done.stdout + done.stderr
    (tmp_path / "secrets" / "ca.pem").unlink()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"{tmp_path / 'secrets' / 'ca.pem'}" in done.stdout

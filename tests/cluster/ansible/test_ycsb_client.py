"""The role ycsb_client on this machine: Java found or named, the built client copied once."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.ansible.lab import BIN, ROOT

PLAY = "- hosts: localhost\n  gather_facts: false\n  roles: [{role: microshard.lab.ycsb_client}]\n"


def play(folder: Path, **variables: str) -> tuple[int, str]:
    (folder / "play.yml").write_text(PLAY)
    jar = folder / "built.jar"
    jar.write_text("a jar")
    given = {
        "ansible_python_interpreter": str(BIN / "python"),
        "ycsb_client_built": str(jar),
        "ycsb_client_jar": str(folder / "tools" / "ycsb.jar"),
        "ycsb_client_install": "{{ false }}",
    } | variables
    command = [str(BIN / "ansible-playbook"), "-i", str(ROOT / "inventories/local/hosts.yml"), str(folder / "play.yml")]
    for name, value in given.items():
        command += ["-e", f'{name}="{value}"' if " " in value else f"{name}={value}"]
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def fake_java(folder: Path, version: str) -> str:
    path = folder / "java"
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.skipif(shutil.which("ansible-playbook", path=str(BIN)) is None, reason="there is no ansible-playbook")
def test_the_jar_is_copied_once_and_a_jvm_too_old_is_named(tmp_path: Path) -> None:
    java = fake_java(tmp_path, "21.0.1")
    code, words = play(tmp_path, ycsb_client_java=java)
    assert code == 0, words
    assert (tmp_path / "tools/ycsb.jar").read_text() == "a jar"
    code, words = play(tmp_path, ycsb_client_java=fake_java(tmp_path, "11.0.2"))
    assert code != 0
    assert "is Java 11, YCSB''s client needs 17 or newer: install a JRE" in words


@pytest.mark.cluster
@pytest.mark.long
def test_a_second_run_changes_nothing_and_a_missing_jar_is_reported(tmp_path: Path) -> None:
    java = fake_java(tmp_path, "17.0.1")
    play(tmp_path, ycsb_client_java=java)
    code, words = play(tmp_path, ycsb_client_java=java)
    assert code == 0, words
    assert "changed=0" in words
    code, words = play(tmp_path, ycsb_client_java=java, ycsb_client_built=str(tmp_path / "none.jar"))
    assert code != 0
    assert "build the YCSB client with `make clients`" in words
    code, words = play(tmp_path, ycsb_client_java=str(tmp_path / "nothing"))
    assert code != 0
    assert "is not there, YCSB''s client needs 17" in words

"""Roles without a run: the examples of their READMEs, on machines of the bed."""

import hashlib
import json
import shlex
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from microshard.embedded.binary import find_mongod
from tests.hosts.bed import Bed, wheels
from tests.hosts.readme_examples import changes, converge, play, succeed

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def mongodb_user(lab: Bed) -> Iterator[Bed]:
    """The user MongoDB's packages make, on every machine."""
    for machine in lab.machines:
        machine.enter("useradd", "--system", "--no-create-home", "mongodb")
    yield lab
    for machine in lab.machines:
        machine.enter("sh", "-c", "userdel mongodb; rm -rf /etc/mongodb-secrets")


def test_run_secrets(mongodb_user: Bed, tmp_path: Path) -> None:
    lab = mongodb_user
    assert "keyfile of run_secrets_names: no file of that name" in play(lab, "run_secrets", tmp_path).stdout
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "keyfile").write_text("aGlkZGVu\n", encoding="ascii")
    checked = succeed(lab, "run_secrets", tmp_path, "--check", "--diff", "-vvv")
    assert set(changes(checked).values()) == {2}
    said = converge(lab, "run_secrets", tmp_path)
    assert "aGlkZGVu" not in checked + said
    for machine in lab.machines:
        listed = machine.enter("stat", "--format", "%U %a", "/etc/mongodb-secrets", "/etc/mongodb-secrets/keyfile")
        assert listed.splitlines() == ["mongodb 700", "mongodb 600"]
        assert machine.enter("cat", "/etc/mongodb-secrets/keyfile") == "aGlkZGVu"


def archive_of(path: Path) -> None:
    """An archive as MongoDB's."""
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        tar.add(find_mongod(), arcname="mongodb-linux-x86_64-debian12-6.0.5/bin/mongod")
        tar.add(__file__, arcname="mongodb-linux-x86_64-debian12-6.0.5/README")


@pytest.fixture
def archive(lab: Bed, tmp_path: Path) -> Iterator[Path]:
    """The archive, and a checksum beside it; what is made of it on the machines is removed."""
    made = tmp_path / "mongodb.tgz"
    archive_of(made)
    (tmp_path / "mongodb.tgz.sha256").write_text(f"{'0' * 64}  mongodb.tgz\n", encoding="ascii")
    yield made
    for machine in lab.machines:
        machine.enter("rm", "-rf", "/opt/mongodb-6.0")


def test_mongodb_binaries(lab: Bed, archive: Path, tmp_path: Path) -> None:
    refused = play(lab, "mongodb_binaries", tmp_path)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert f"has the SHA-256 {sha256}, not 000" in " ".join(refused.stdout.split())
    assert lab.machines[0].enter("sh", "-c", "ls /opt") == ""
    (tmp_path / "mongodb.tgz.sha256").write_text(f"{sha256}  mongodb.tgz\n", encoding="ascii")
    succeed(lab, "mongodb_binaries", tmp_path, "--check", "--diff")
    converge(lab, "mongodb_binaries", tmp_path)
    for machine in lab.machines:
        found = lab.ssh(machine, "find", "/opt/mongodb-6.0", "-type", "f", "-printf", "%p,%m").stdout
        assert found == "/opt/mongodb-6.0/bin/mongod,755"
    assert "is MongoDB 6.0.5, not 7.0" in play(lab, "mongodb_binaries", tmp_path, mongodb_binaries_version="7.0").stdout


@pytest.mark.parametrize(
    ("user", "version", "message"),
    [("plain", "6.0", "root, which is not reached"), ("lab", "six", "no packages of MongoDB 'six' are known here")],
)
def test_what_packages_need_is_named(lab: Bed, tmp_path: Path, user: str, version: str, message: str) -> None:
    inventory = lab.write_inventory(name="by-hand", user=user)
    variables = {"mongodb_binaries_source": "packages", "mongodb_binaries_version": version}
    text = json.dumps([{"hosts": "host1", "gather_facts": False, "roles": ["microshard.lab.mongodb_binaries"]}])
    done = play(lab, "mongodb_binaries", tmp_path, inventory=inventory, text=text, **variables)
    assert done.returncode != 0
    assert message in " ".join(done.stdout.split())


def test_load_client(lab: Bed, tmp_path: Path) -> None:
    shutil.copy(wheels.fetch(), tmp_path / "wheels.tar")
    host = lab.machines[0]
    try:
        host.enter("mkdir", "-p", "/opt/microshard/left-by-a-run-that-ended")
        checked = succeed(lab, "load_client", tmp_path, "--check", "--diff")
        assert changes(checked) == {"host1": 1}
        assert "left-by" in host.enter("ls", "/opt/microshard")
        converge(lab, "load_client", tmp_path)
        works = "import pymongo, microshard.workloads.program; print('works')"
        assert lab.ssh(host, "/opt/microshard/bin/python", "-c", shlex.quote(works)).stdout == "works\n"
        found = host.enter("ls", "/opt/microshard").split()
        assert "microshard-complete" in found
        assert not {"wheels", "left-by-a-run-that-ended"} & set(found)
    finally:
        host.enter("rm", "-rf", "/opt/microshard")
    refused = play(lab, "load_client", tmp_path, load_client_python="/usr/bin/none").stdout
    assert "needs Python 3.11 or newer with its module venv" in " ".join(refused.split())


def test_run_folder(lab: Bed, tmp_path: Path) -> None:
    converge(lab, "run_folder", tmp_path)
    host = lab.machines[0]
    there = "/var/lib/microshard/by-hand"
    assert '"run_id": "by-hand"' in lab.ssh(host, "cat", f"{there}/run.json").stdout
    said = succeed(lab, "run_folder", tmp_path, "-v", run_folder_state="inspected")
    assert not any(changes(said).values())
    host.enter("rm", f"{there}/run.json")
    assert "is not a folder of a run" in play(lab, "run_folder", tmp_path, state="absent").stdout
    host.enter("rm", "-rf", there)
    succeed(lab, "run_folder", tmp_path, state="absent")
    for machine in lab.machines:
        assert "by-hand" not in machine.enter("ls", "/var/lib/microshard")

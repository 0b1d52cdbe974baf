"""Roles without a run: the examples of their READMEs, on machines of the bed."""

import gzip
import hashlib
import json
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from microshard.embedded.binary import find_mongod
from tests.empty_environment import environment_with_collection
from tests.hosts.bed import Bed, wheels
from tests.hosts.mirror import Mirror, served
from tests.hosts.readme_examples import changes, converge, example, play, succeed

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


_STORAGE = """cat /etc/fstab
blockdev --getra {devices[data]} {devices[journal]}
findmnt --real -rno TARGET
ls /etc/udev/rules.d"""
_KERNEL = """sysctl net.core.somaxconn net.ipv4.tcp_keepalive_time
ls -A /etc/sysctl.d /etc/security/limits.d /etc/microshard"""


@pytest.fixture
def disks(lab: Bed) -> Iterator[Bed]:
    """Data and journal devices under the names of the example, with nothing on them."""
    for machine in lab.machines:
        for name in ("data", "journal"):
            device = machine.devices[name]
            script = f"mkdir -p /dev/disk/by-id; wipefs -aq {device}; ln -sf {device} /dev/disk/by-id/nvme-{name}"
            machine.enter("sh", "-ec", script)
    yield lab
    for machine in lab.machines:
        machine.enter("sh", "-c", "rm -r /dev/disk; rmdir /var/lib/mongodb /var/lib/mongodb-journal; true")


def test_host_storage(disks: Bed, tmp_path: Path) -> None:
    lab, scripts = disks, [_STORAGE.format(devices=machine.devices) for machine in disks.machines]
    before = [
        machine.enter("sh", "-c", f"{script}; true") for machine, script in zip(lab.machines, scripts, strict=True)
    ]
    first = lab.machines[0]
    first.enter("mkfs.ext4", "-q", "-L", "precious", first.devices["journal"])
    assert "carries ext4 'precious', which is not microshard's" in play(lab, "host_storage", tmp_path).stdout
    assert first.enter("wipefs", "--no-act", "--noheadings", first.devices["data"]) == ""
    first.enter("wipefs", "--all", "--quiet", first.devices["journal"])
    refused = play(lab, "host_storage", tmp_path, host_storage_owner="nobody-there").stdout
    assert "nobody-there, and this host has no such user or group" in " ".join(refused.split())

    assert "ext4 ms-journal on" in succeed(lab, "host_storage", tmp_path, "--check")
    assert [m.enter("wipefs", "--no-act", "--noheadings", m.devices["data"]) for m in lab.machines] == [""] * 3
    converge(lab, "host_storage", tmp_path)
    for machine in lab.machines:
        assert machine.enter("blockdev", "--getra", machine.devices["data"], machine.devices["journal"]) == "32\n32"
        mounted = machine.enter("findmnt", "--real", "-rno", "TARGET,FSTYPE,OPTIONS", "-t", "xfs,ext4").splitlines()
        found = {line.split()[0]: line.split()[1] for line in mounted if "noatime" in line.split()[2].split(",")}
        assert found == {"/var/lib/mongodb": "xfs", "/var/lib/mongodb-journal": "ext4"}
        assert (
            machine.enter("grep", "-c", "read_ahead_kb.*16", "/etc/udev/rules.d/99-microshard-readahead.rules") == "2"
        )

    # Something else has changed the readahead since
    first.enter("blockdev", "--setra", "256", first.devices["data"])
    assert changes(succeed(lab, "host_storage", tmp_path, "--tags", "readahead"))[first.name] == 1
    assert first.enter("blockdev", "--getra", first.devices["data"]) == "32"

    assert all(changes(succeed(lab, "host_storage", tmp_path, host_storage_state="absent")).values())
    after = [
        machine.enter("sh", "-c", f"{script}; true") for machine, script in zip(lab.machines, scripts, strict=True)
    ]
    assert after == before
    assert not any(changes(succeed(lab, "host_storage", tmp_path, host_storage_state="absent")).values())


def test_host_kernel(lab: Bed, tmp_path: Path) -> None:
    before = [machine.enter("sh", "-c", f"mkdir -p /etc/microshard; {_KERNEL}") for machine in lab.machines]
    wrong = play(lab, "host_kernel", tmp_path, host_kernel_swappiness="low").stdout
    assert "'host_kernel_swappiness' is of type str and we were unable to convert to int" in " ".join(wrong.split())
    refused = play(lab, "host_kernel", tmp_path, host_kernel_cpu_governor="performance").stdout
    assert "cpu_governor: cannot be set on this host: its CPUs have no governor" in " ".join(refused.split())
    assert set(changes(succeed(lab, "host_kernel", tmp_path, "--check")).values()) == {3}
    assert [machine.enter("sh", "-c", _KERNEL) for machine in lab.machines] == before
    converge(lab, "host_kernel", tmp_path)
    for machine in lab.machines:
        assert machine.enter("sysctl", "-n", "net.core.somaxconn", "net.ipv4.tcp_keepalive_time") == "4000\n120"
        assert "mongodb hard nofile 64000" in machine.enter("cat", "/etc/security/limits.d/90-microshard.conf")
    succeed(lab, "host_kernel", tmp_path, host_kernel_state="absent")
    assert [machine.enter("sh", "-c", _KERNEL) for machine in lab.machines] == before


def test_the_installed_collection_works_on_hosts(lab: Bed, tmp_path: Path) -> None:
    environment = environment_with_collection(tmp_path)
    playbook = environment.folder / "play.yml"
    playbook.write_text(example("host_kernel"), encoding="utf-8")
    before = [machine.enter("sh", "-c", f"mkdir -p /etc/microshard; {_KERNEL}") for machine in lab.machines]
    words: list[str | Path] = [environment.bin / "ansible-playbook", "--inventory", lab.inventory, playbook]
    for variables, changed in (({}, True), ({}, False), ({"host_kernel_state": "absent"}, True)):
        command = lab.inside([*words, "--extra-vars", json.dumps(variables)])
        done = subprocess.run(
            command, cwd=environment.folder, env=environment.variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert [bool(count) for count in changes(done.stdout).values()] == [changed] * 3, done.stdout
    assert [machine.enter("sh", "-c", _KERNEL) for machine in lab.machines] == before


def test_host_packages(lab: Bed, tmp_path: Path) -> None:
    machine, sources = lab.machines[2], "/etc/apt/sources.list"
    inventory = lab.write_inventory({"shard_hosts": [machine.name]}, name="host-packages")
    mirror = Mirror(tmp_path / "mirror")
    mirror.add("mdadm", "4.2", {"usr/sbin/mdadm": "#!/bin/sh\necho mdadm - v4.2\n"})
    mirror.index("tools", "main")
    machine.enter("sh", "-ec", f"cp {sources} {sources}.aside; echo deb file:/nowhere tools main >{sources}")
    try:
        with served(lab, mirror.folder) as url:
            refused = " ".join(play(lab, "host_packages", tmp_path, inventory=inventory).stdout.split())
            assert "host3: mdadm could not be installed. Install it" in refused
            assert "No package matching 'mdadm' is available" in refused
            machine.enter("sh", "-ec", f"echo 'deb [trusted=yes] {url}/apt/debian tools main' >{sources}")
            converge(lab, "host_packages", tmp_path, inventory=inventory)
            assert machine.enter("dpkg-query", "--show", "--showformat", "${Version}", "mdadm") == "4.2"
    finally:
        machine.enter("sh", "-c", f"dpkg --purge mdadm; mv {sources}.aside {sources}; rm -f /var/lib/apt/lists/*tools*")


def test_collect(lab: Bed, tmp_path: Path) -> None:
    there, host = "/var/lib/microshard/by-hand", lab.machines[0]
    inventory = lab.write_inventory({"shard_hosts": [host.name]}, name="by-hand")
    try:
        host.enter("mkdir", "-p", f"{there}/deployments/by-hand/mongod1")
        host.enter("sh", "-c", f"cd {there} && mkdir tmp")
        host.enter("sh", "-c", f"echo a line >{there}/deployments/by-hand/mongod1/mongod.log")
        assert "is not a folder of a run" in play(lab, "collect", tmp_path, inventory=inventory).stdout
        marker = json.dumps({"microshard": "host", "run_id": "by-hand"})
        host.enter("sh", "-c", f"echo {shlex.quote(marker)} >{there}/run.json")
        succeed(lab, "collect", tmp_path, "--check", inventory=inventory)
        assert not (tmp_path / "collected").exists()
        converge(lab, "collect", tmp_path, inventory=inventory)
        with gzip.open(tmp_path / "collected/logs/by-hand/mongod1.log.gz", "rt") as log:
            assert log.read() == "a line\n"
    finally:
        host.enter("rm", "-rf", there)

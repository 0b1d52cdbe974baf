"""A mongod that comes as a tarball."""

import hashlib
import json
import tarfile

import pytest

from microshard.embedded.binary import find_mongod
from microshard.records.run_folder import find_runs
from tests.hosts.controller import Controller, small


@pytest.mark.long
@pytest.mark.timeout(700)
def test_a_tarball_is_sent_once_to_every_host_and_its_mongod_is_run(controller: Controller) -> None:
    archive = controller.folder / "mongodb.tgz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(find_mongod(), arcname="mongodb-linux-x86_64-debian12-6.0.5/bin/mongod")
        tar.add(__file__, arcname="mongodb-linux-x86_64-debian12-6.0.5/README")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    experiment = small(matrix={}, topology={"kind": "replica_set", "replica_set": {"members": 3}})
    experiment["topology"]["mongodb"] = {
        "source": "tarball", "version": "6.0", "tarball": str(archive), "sha256": sha256,
    }  # fmt: skip
    code, said = controller.run("run", controller.write(experiment), "--on", controller.bed.inventory)
    assert code == 0, said
    (folder,) = find_runs(controller.runs)
    there = f"/var/lib/microshard/software/mongodb-6.0-{sha256[:12]}"
    for machine in controller.bed.machines:
        assert controller.bed.ssh(machine, "find", there, "-type", "f").stdout.split() == [f"{there}/bin/mongod"]
    record = json.loads((folder / "points" / "p01" / "processes" / "rs0-3.json").read_text())
    assert record["command"][0] == f"{there}/bin/mongod"
    assert controller.left() == []
    archive.write_bytes(archive.read_bytes() + b"altered")
    code, said = controller.run("run", controller.file, "--on", controller.bed.inventory)
    assert (code, f"not {sha256}" in said) == (4, True), said

"""A mongod that comes as a tarball, and those of old versions that hosts have already."""

import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterator

import pymongo
import pytest

from microshard.embedded.binary import find_mongod
from microshard.records.run_folder import find_runs
from tests.hosts.bed import Bed, wheels
from tests.hosts.controller import Controller, small
from tests.packaged import packaged


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
    code, said = controller.run("run", controller.folder / "experiment.yml", "--on", controller.bed.inventory)
    assert (code, f"not {sha256}" in said) == (4, True), said


OLD = {"4.2": "4.2.6", "4.4": "4.4.2"}  # version of the experiment → of the Python package
DRIVER = "pymongo==3.13"


@pytest.fixture
def old_servers(lab: Bed) -> Iterator[list[str]]:
    """A folder with mongod for each old version, the same on every machine."""
    folders = [f"/opt/mongodb-{version}" for version in OLD]
    for version, folder in zip(OLD.values(), folders, strict=True):
        for machine in lab.machines:
            shutil.copytree(packaged(version).parent, machine.root / folder.lstrip("/"))
    yield folders
    for machine in lab.machines:
        for folder in folders:
            shutil.rmtree(machine.root / folder.lstrip("/"))


@pytest.mark.long
@pytest.mark.timeout(700)
def test_a_driver_of_its_own_measures_4_2_on_hosts(controller: Controller, old_servers: list[str]) -> None:
    """Set-up, engines and telemetry of those points use an environment of the client host with PyMongo 3.13."""
    wheels.fetch(driver=DRIVER)
    experiment = small(
        topology={
            "kind": "replica_set",
            "replica_set": {"members": 3},
            "mongodb": {"source": "path", "path": old_servers[0], "version": "4.2"},
            "storage": {"cache": {"policy": "per_process_mb", "value": 256}},
        },
        matrix={
            "zip": {
                "topology.mongodb.version": list(OLD),
                "topology.mongodb.path": old_servers,
                "client.driver": [DRIVER, None],
            }
        },
    )
    code, said = controller.run("run", controller.write(experiment), "--on", controller.bed.inventory)
    assert code == 0, said
    (folder,) = find_runs(controller.runs)
    old, new = (json.loads((folder / "results" / point / "r1.json").read_text()) for point in ("p01", "p02"))
    assert [(result["versions"], result["driver"], result["valid"]) for result in (old, new)] == [
        (["4.2.6"], "PyMongo 3.13.0", True),
        (["4.4.2"], f"PyMongo {pymongo.version}", True),
    ]
    answers = [[phase["answer_sha256"] for phase in result["phases"]] for result in (old, new)]
    assert answers[0] == answers[1]
    assert answers[0][1]
    assert {"rs0-1", "rs0-2", "rs0-3"} <= set(old["phases"][-1]["telemetry"]["processes"])
    assert controller.left() == []

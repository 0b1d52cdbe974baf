"""A run on emulated volumes, and what is left of one that was killed."""

import json
import signal

import pytest

from microshard.hostlib import emulated_volumes as emulated
from microshard.hostlib import emulated_volumes as loops

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(emulated.why_not(["ext4"]) is not None, reason=str(emulated.why_not(["ext4"]))),
]

VOLUME = {"type": "emulated", "size_gib": 2, "iops": 2000, "filesystem": "ext4"}


def _experiment(cli, **changes):
    hosts = {"volumes": {"data": VOLUME, "journal": {**VOLUME, "size_gib": 1}}, "kernel": {"readahead_sectors": 32}}
    return cli.write(
        infrastructure={"shard_hosts": hosts},
        matrix={"infrastructure.shard_hosts.volumes.data.iops": [2000]},
        repetitions=1,
        **changes,
    )


@pytest.mark.long
def test_a_run_reads_from_its_emulated_volume_and_leaves_nothing_of_it(cli):
    workload = [
        {"load": {"engine": "insert", "documents": 20000, "seed": 7}},
        {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "cache": "cold", "iterations": 1}},
    ]
    code, output = cli.run("run", _experiment(cli, workload=workload))
    assert code == 0, output
    (folder,) = cli.folders
    volumes = json.loads((folder / "points/p01/volumes.json").read_text())
    data, journal = (volume["device"].removeprefix("/dev/") for volume in volumes)
    assert [v["limits"]["riops"] for v in volumes] == [2000, 2000]
    (measure,) = [p for p in cli.results()["p01/r1"]["phases"] if p["kind"] == "measure"]
    shard = measure["telemetry"]["devices"]["shard01"]
    assert (shard["data"]["device"], shard["journal"]["device"]) == (data, journal)
    assert shard["data"]["limits"]["r_ios"] == 2000
    assert measure["telemetry"]["disk"][data]["r_ios_mean"] > 0
    made = [record for record in folder.ledger.records() if record.kind == "volume"]
    assert [record.name for record in made] == ["data", "journal"]
    assert loops.loop_devices(folder.path) == []
    assert not (folder / "volumes").exists()
    assert not (folder / "deployments").exists()


def test_down_removes_the_volumes_of_a_run_that_was_killed(cli):
    measure = {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 10_000}}
    path = _experiment(cli, workload=[{"load": {"engine": "insert", "documents": 2000}}, measure])
    process = cli.start("run", path)
    cli.wait_for(lambda: loops.mounts_below(cli.folders[0].path) and cli.running())
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    code, output = cli.run("down")
    assert code == 0, output
    (folder,) = cli.folders
    assert loops.loop_devices(folder.path) == []
    assert not loops.mounts_below(folder.path)
    assert not (folder / "volumes").exists()
    assert cli.running() == []

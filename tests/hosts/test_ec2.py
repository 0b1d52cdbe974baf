"""An experiment on EC2 from its plan to the empty account: the API is simulated, the hosts it hands out are real.

However a run ends – done, over its budget, with hosts taken away, killed – nothing of it is left in the account.
"""

import json
import signal
from collections.abc import Iterator

import pytest

from microshard.backends import local_processes
from microshard.records.run_folder import RunFolder
from tests.cloud.strict import Fault
from tests.cluster import mongosh
from tests.hosts.bed.lab import OPEN_FILES
from tests.hosts.land import Land, land_of

FILE = f"""\
microshard: 1
name: joined
infrastructure:
  ec2: {{region: us-east-1, controller_cidrs: [10.89.0.1/32], owner: tester}}
  shard_hosts:
    instance_type: c5.xlarge
    image: debian-12
    market: spot
    volumes:
      data: {{type: gp3, size_gib: 8, iops: 3500, throughput_mibps: 150}}
      journal: {{type: io2, size_gib: 4, iops: 1000}}
      log: {{type: gp3, size_gib: 1, filesystem: ext4}}
    kernel: {{open_files: {OPEN_FILES}}}
  client_hosts: {{instance_type: c5.large, image: debian-12}}
topology:
  kind: standalone
  mongodb: {{source: path, path: /opt/microshard-lab, version: "6.0"}}
  storage: {{cache: {{policy: per_process_mb, value: 256}}}}
workload:
  - load: {{engine: insert, documents: 20000}}
  - measure: {{engine: aggregate, pipeline: mot_greenness, iterations: 2, warm_up_iterations: 0}}
repetitions: 2
budget: {{max_hours: 1, max_cost_usd: 5}}
"""
# Two points that cannot share hosts; the first measures until it is stopped.
TWO_FLEETS = """\
matrix:
  zip:
    infrastructure.shard_hosts.instance_type: [c5.xlarge, m5.xlarge]
    workload.1.measure.iterations: [10000, 2]
"""
LONG = "workload.1.measure.iterations=10000"
# Two points that share hosts, soon measured; hosts of another type stand in.
TWO_POINTS = (
    FILE.replace("documents: 20000", "documents: 2000").replace(
        "    image: debian-12\n    market: spot\n", "    image: debian-12\n    alternative_types: [m5.xlarge]\n"
    )
    + "matrix: {topology.storage.block_compressor: [zlib, none]}\n"
)


@pytest.fixture(scope="module")
def _land(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Land]:
    with land_of(2, tmp_path_factory.mktemp("ec2")) as land:
        yield land


@pytest.fixture
def land(_land: Land) -> Iterator[Land]:
    _land.fresh()
    (_land.folder / "joined.yml").write_text(FILE)
    yield _land
    assert _land.simulation.everything() == {}


@pytest.mark.long
@pytest.mark.timeout(700)
def test_a_point_that_writes_is_loaded_once_and_restored_on_the_hosts_of_its_run(land: Land) -> None:
    insert = "measure: {engine: insert, documents: 1000, namespace: lab.more}"
    writes = f"  - {insert}\n    name: write\nload: {{image: use}}\n"
    (land.folder / "joined.yml").write_text(FILE.replace("repetitions: 2", writes + "repetitions: 2"))
    code, said = land.run("run", "joined.yml", "--on", "ec2")
    assert code == 0, f"{said}\n{land.log()}"
    results = [json.loads(p.read_text()) for p in sorted((land.run_folder / "results" / "p01").glob("r*.json"))]
    assert [(r["valid"], r["data"]) for r in results] == [(True, "restored")] * 2
    assert not (land.run_folder.parent / "images").exists()


@pytest.mark.long
def test_from_the_plan_to_the_empty_account(land: Land) -> None:
    code, said = land.run("plan", "joined.yml", "--on", "ec2")
    assert code == 0, said
    assert "fleet1: 2 hosts in us-east-1 for point p01" in said
    assert land.simulation.everything() == {}
    land.simulation.inject(Fault("RunInstances", lost="after"))
    code, said = land.run("run", "joined.yml", "--on", "ec2")
    assert code == 0, f"{said}\n{land.log()}"
    folder = land.run_folder
    results = [json.loads(p.read_text()) for p in sorted((folder / "results" / "p01").glob("r*.json"))]
    assert [r["valid"] for r in results] == [True, True]
    plan = json.loads((folder / "plan.json").read_text())
    assert {h["address"] for h in plan["hosts"]} == {"10.89.0.11", "10.89.0.12"}
    assert (folder / "report" / "report.html").exists()
    assert list(folder.glob("logs/**/*mongod1*")), "logs came back before the hosts went"
    assert land.simulation.actions().count("RunInstances") == 3, "a launch whose answer was lost is requested again"
    # Each volume is the disk that carries its id, whatever the kernel calls it
    made = json.loads((folder / "hosts" / "fleet1.json").read_text())["hosts"][0]
    assert [made[key] for key in ("name", "instance_type", "market")] == ["shard_hosts-1", "c5.xlarge", "spot"]
    assert {v["purpose"]: (v["type"], v["size_gib"], v["iops"]) for v in made["volumes"]} == {
        "root": ("gp3", 16, 3000), "data": ("gp3", 8, 3500), "journal": ("io2", 4, 1000), "log": ("gp3", 1, 3000),
    }  # fmt: skip
    serials = {v["purpose"]: v["serial"] for v in made["volumes"]}
    kept = json.loads((folder / "hosts" / "shard_hosts-1" / "storage.json").read_text())
    assert {v["name"]: (v["devices"][0]["serial"], v["filesystem"], v["mount"]) for v in kept} == {
        "data": (serials["data"], "xfs", "/var/lib/microshard"),
        "journal": (serials["journal"], "xfs", "/srv/microshard/journal"),
        "log": (serials["log"], "ext4", "/srv/microshard/log"),
    }


@pytest.mark.long
@pytest.mark.parametrize(("shard_hosts", "expected"), [
    # Xen: no serial, the name it is attached as. Its root is Xen's as well, and none of these.
    ("instance_type: m4.large\n    image: debian-12\n    volumes:\n      data: {type: standard, size_gib: 8}\n"
     "      log: {type: gp3, size_gib: 1, filesystem: ext4}\n",
     {"data": [("/dev/xvdf", "")], "log": [("/dev/xvdh", "")]}),
    # NVMe disks of the instance store, in no mapping, and EBS beside them: by model, by serial, in any order.
    ("instance_type: m5d.4xlarge\n    image: debian-12\n    volumes:\n"
     "      data: {type: instance_store, size_gib: 279}\n"
     "      journal: {type: instance_store, size_gib: 9}\n      log: {type: gp3, size_gib: 1, filesystem: ext4}\n",
     {"data": [("/dev/nvme1n1", "AWS")], "journal": [("/dev/nvme2n1", "AWS")], "log": [("/dev/nvme3n1", "vol")]}),
    ("instance_type: m3.2xlarge\n    image: debian-12\n    volumes:\n"
     "      data: {type: instance_store, size_gib: 74}\n      log: {type: standard, size_gib: 1}\n",
     {"data": [("/dev/xvdf", "")], "log": [("/dev/xvdh", "")]}),
], ids=["Xen", "NVMe instance store", "instance store on Xen"])  # fmt: skip
def test_disks_are_found_as_the_type_shows_them(
    land: Land, shard_hosts: str, expected: dict[str, list[tuple[str, str]]]
) -> None:
    before, _, rest = FILE.partition("    instance_type: c5.xlarge\n")
    _, kernel, rest = rest.partition("    kernel:")
    (land.folder / "joined.yml").write_text(f"{before}    {shard_hosts}{kernel}{rest}")
    code, said = land.run("run", "joined.yml", "--on", "ec2", "--set", "repetitions=1")
    assert code == 0, f"{said}\n{land.log()}"
    kept = json.loads((land.run_folder / "hosts" / "shard_hosts-1" / "storage.json").read_text())
    found = {v["name"]: [(d["path"], d["serial"][:3]) for d in v["devices"]] for v in kept}
    assert found.keys() == expected.keys()
    for name, devices in expected.items():
        assert found[name] == devices, name


@pytest.mark.long
def test_a_point_that_is_up_is_worked_with_and_taken_down(land: Land, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = mongosh.installed()
    code, said = land.run("up", "joined.yml", "--on", "ec2")
    assert code == 0, f"{said}\n{land.log()}"
    first, *_, address = said.splitlines()
    assert "USD an hour for 2 hosts in us-east-1" in first
    assert address == "mongodb://10.89.0.11:27100/"
    name = land.run_folder.name
    assert land.run("gc", "--on", "ec2", "--owner", "tester") == (0, "Nothing is left of any run.\n")
    code, said = land.run("status")
    assert f"{name}: 1 process, up" in said
    assert f"each hour until `microshard down {name}`" in said
    assert address in said
    for host in land.lab.machines:
        assert "active" in host.enter("systemctl", "is-active", "microshard-expiry"), "it ends itself"
    assert land.run("ssh", "mongod1", "echo", "ssh works") == (0, "ssh works\n")
    assert "Waiting for connections" in land.run("logs", "mongod1", "-n", "500")[1]
    # This machine reaches the hosts by SSH alone
    monkeypatch.setenv("MICROSHARD_MONGOSH", str(shell))
    code, said = land.run("mongosh", "--quiet", "--eval", "db.adminCommand({getCmdLineOpts: 1}).parsed.net.port")
    assert (code, said) == (0, "27100\n")
    code, said = land.run("down")
    assert (code, said) == (0, f"{name}: down\n")
    assert "Nothing is running in " in land.run("status")[1]


@pytest.mark.long
def test_a_budget_that_is_reached_ends_the_run_after_the_repetition_on_the_hosts_that_were_got(land: Land) -> None:
    missing = "InsufficientInstanceCapacity"
    land.simulation.inject(Fault("RunInstances", missing, instance_type="c5.xlarge", times=None))
    land.simulation.inject(Fault("RunInstances", missing, instance_type="c5.large", market="spot", times=None))
    changes = [
        "budget.max_cost_usd=0.0001",
        "infrastructure.shard_hosts.alternative_types=[m5.xlarge]",
        "infrastructure.client_hosts.market=spot_or_on_demand",
    ]
    code, said = land.run("run", "joined.yml", "--on", "ec2", *(word for c in changes for word in ("--set", c)))
    assert code == 3, f"{said}\n{land.log()}"
    got = json.loads((land.run_folder / "hosts" / "fleet1.json").read_text())["hosts"]
    assert [(h["instance_type"], h["market"]) for h in got] == [("m5.xlarge", "spot"), ("c5.large", "on-demand")]
    for words in ("m5.xlarge instead of c5.xlarge", f"1 x c5.large spot in {got[0]['zone']}: {missing}"):
        assert words in said
        assert words in (land.run_folder / "report" / "report.html").read_text()
    assert "budget.max_cost_usd (0.0001 USD) would be exceeded" in said
    assert "the remaining measurements were skipped" in said
    assert [p.name for p in (land.run_folder / "results" / "p01").glob("r?.json")] == ["r1.json"]
    assert len(land.journal("budget reached")) == 1


@pytest.mark.long
@pytest.mark.timeout(700)
def test_hosts_that_are_taken_away_fail_their_points_by_name_and_the_run_goes_on(land: Land) -> None:
    (land.folder / "joined.yml").write_text(FILE + TWO_FLEETS)
    process = land.start("run", "joined.yml", "--on", "ec2")
    land.wait(process, land.measuring)
    interrupted = land.end(land.lab.machines[0], "Server.SpotInstanceTermination")
    land.wait(process, lambda: any(r["name"] == "r2" for r in land.journal("step started")))
    ended = land.end(land.lab.machines[1], "Client.UserInitiatedShutdown")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 3, f"{said}\n{land.log()}"
    failed = {r["point"]: r["message"] for r in land.journal("point failed")}
    for words in (f"shard_hosts-1: {interrupted}", "spot interruption", "Server.SpotInstanceTermination"):
        assert words in failed["p01"]
    for words in (f"client_hosts-1: {ended}", "Client.UserInitiatedShutdown"):
        assert words in failed["p02"]
    assert "2 points failed" in said
    assert not land.journal("teardown failed"), "hosts that are gone are not contacted"
    assert not list((land.run_folder / "results").glob("p01/r1.json"))
    assert json.loads((land.run_folder / "results" / "p02" / "r1.json").read_text())["valid"]
    assert (land.run_folder / "report" / "report.html").exists()


@pytest.mark.long
@pytest.mark.timeout(700)
def test_a_controller_killed_while_it_measures_leaves_what_gc_removes(land: Land) -> None:
    shard, client = land.lab.machines
    process = land.start("run", "joined.yml", "--on", "ec2", "--set", LONG)
    land.wait(process, land.measuring)
    run = land.run_folder

    # While it measures: other users are refused, and the files lie on their volumes
    code, said = land.run("down", run.name)
    assert (code != 0, f"{run.name} is being executed by process {process.pid}" in said) == (True, True), said
    assert land.run("gc", "--on", "ec2", "--owner", "tester") == (0, "Nothing is left of any run.\n")
    here = f"/var/lib/microshard/{run.name}/deployments/p01/mongod1"
    for path, mount in (("data", "/var/lib/microshard"), ("data/journal", "/srv/microshard/journal")):
        assert mount in shard.enter("sh", "-c", f"df --output=target $(realpath {here}/{path})")
    assert "/srv/microshard/log" in shard.enter("sh", "-c", f"df --output=target $(realpath {here}/mongod.log)")

    process.send_signal(signal.SIGKILL)
    process.wait()
    code, said = land.run("rm", run.name, "--yes")
    assert (code, "has created hosts on EC2 (us-east-1)" in said) == (5, True), said

    # Nobody comes back: at its expiry, here set forward, a host ends itself
    client.enter("sed", "-i", "s/^left=.*/left=0/", "/usr/local/sbin/microshard-expiry")
    client.enter("systemctl", "restart", "--no-block", "microshard-expiry")
    land.until(lambda: not client.processes())
    land.end(client, "Client.InstanceInitiatedShutdown")

    code, said = land.run("gc", "--on", "ec2", "--owner", "tester", "--dry-run")
    assert (code, f"{run.name} (ec2 us-east-1) is over: " in said) == (0, True), said
    left = {kind: ids for kind, ids in land.simulation.everything().items() if kind != "route-table"}
    assert len(left["instance"]) == 1
    assert all(name in said for ids in left.values() for name in ids), said
    code, said = land.run("gc", "--on", "ec2", "--owner", "tester")
    assert (code, f"{run.name} (ec2 us-east-1): removed " in said) == (0, True), said
    assert land.simulation.everything() == {}
    assert local_processes.running(RunFolder.open(run)) == [], "its playbook has ended too"
    assert land.run("rm", run.name, "--yes")[0] == 0


@pytest.mark.long
@pytest.mark.timeout(700)
def test_a_run_that_was_killed_is_taken_up_on_new_hosts_and_measures_what_is_left(land: Land) -> None:
    (land.folder / "joined.yml").write_text(TWO_POINTS)
    process = land.start("run", "joined.yml", "--on", "ec2")
    land.wait(process, lambda: len(land.journal("step started")) == 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    folder = land.run_folder
    before = {path: path.read_bytes() for path in folder.glob("results/p0?/r?.json") if b'"gates"' in path.read_bytes()}
    assert len(before) == 2
    old = set(land.simulation.everything()["instance"])
    (begun,) = land.journal("hosts made")

    (land.folder / "joined.yml").write_text(TWO_POINTS.replace("[zlib, none]", "[zlib, snappy]"))
    code, said = land.run("resume", folder.name)
    assert (code, "['zlib', 'none'] → ['zlib', 'snappy']" in said) == (2, True), said
    assert set(land.simulation.everything()["instance"]) == old, "what is refused has touched nothing"

    (land.folder / "joined.yml").write_text(TWO_POINTS)
    missing = "InsufficientInstanceCapacity"
    land.simulation.inject(Fault("RunInstances", missing, instance_type="c5.xlarge", times=None))
    code, said = land.run("resume", folder.name)
    assert code == 0, f"{said}\n{land.log()}"
    assert "2 of 4 measured, 2 to go" in said
    assert said.index("2 to go") < said.index("Cost of the run: about") < said.index("Budget: ")
    results = {p.relative_to(folder).as_posix(): json.loads(p.read_text()) for p in folder.glob("results/p0?/r?.json")}
    assert sorted(results) == [f"results/p0{point}/r{r}.json" for point in (1, 2) for r in (1, 2)]
    assert all(result["valid"] for result in results.values())
    assert sorted(result["order"] for result in results.values()) == [0, 1, 2, 3]
    assert all(path.read_bytes() == content for path, content in before.items()), "what was measured stays as it was"
    done = [(record["point"], record["name"]) for record in land.journal("step done")]
    assert len(done) == len(set(done)) == 4, "nothing was measured twice"

    # Other hosts, and the results say so
    assert len(land.journal("hosts made")) == 2
    earlier, now = (json.loads((folder / "hosts" / name).read_text()) for name in ("fleet1-1.json", "fleet1.json"))
    assert {host["instance_id"] for host in earlier["hosts"]} == old
    assert [host["instance_type"] for host in now["hosts"]] == ["m5.xlarge", "c5.large"]
    assert begun["remarks"] == []
    page = (folder / "report" / "report.html").read_text()
    for words in ("resumed on new hosts, shard_hosts: 1 x m5.xlarge", "fleet1-1.json: shard_hosts: 1 x c5.xlarge"):
        assert words in page
        assert words in said

"""Which cores and memory the processes of a host are given."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from microshard.hostlib import numa, observed, systemd
from tests.hosts.needs import need

TWO_NODES = numa.Cores({0: [0, 1, 2, 3], 1: [4, 5, 6, 7]})
NAMES = ["mongos1", "config1", "shard01", "shard02", "shard03"]
DATA = {"shard01", "shard02", "shard03"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is planned is asked about, which takes no numactl but the word that there is one."""
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/usr/bin/{name}")


def prefixes(policy: str, there: numa.Cores = TWO_NODES, **more: object) -> list[str]:
    bound = numa.bindings({"policy": policy, **more}, NAMES, DATA, there)
    return [" ".join(bound[name].prefix[1:]) for name in NAMES]


@pytest.mark.usefixtures("installed")
def test_interleave_takes_memory_from_all_nodes_for_every_process() -> None:
    assert prefixes("interleave") == ["--interleave=0-1"] * 5
    assert prefixes("interleave", nodes=[1]) == ["--interleave=1"] * 5


@pytest.mark.usefixtures("installed")
def test_node_round_robin_goes_round_with_the_shards() -> None:
    zero, one = "--cpunodebind=0 --membind=0", "--cpunodebind=1 --membind=1"
    assert prefixes("node_round_robin") == ["--interleave=0-1", "--interleave=0-1", zero, one, zero]


@pytest.mark.usefixtures("installed")
def test_every_shard_has_as_many_cores_and_the_others_have_the_reserved_ones() -> None:
    kept, shards = "--physcpubind=0-1 --localalloc", [f"--physcpubind={c} --localalloc" for c in ("2-3", "4-5", "6-7")]
    assert prefixes("cores_per_shard", reserved_cores=2) == [kept, kept, *shards]
    bound = numa.bindings({"policy": "cores_per_shard", "reserved_cores": 2}, ["shard01"], DATA, TWO_NODES)
    assert bound["shard01"].cores == list(range(8))  # nobody is there for whom cores could be kept


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("policy", "more", "there", "problem"),
    [
        ("interleave", {"nodes": [0, 2, 3]}, TWO_NODES, "this host has no NUMA node 2-3, only 0-1"),
        (
            "node_round_robin",
            {},
            numa.Cores({0: [0, 1]}),
            "needs two NUMA nodes, this host has 0 alone",
        ),
        (
            "cores_per_shard",
            {"reserved_cores": 6},
            TWO_NODES,
            "3 data-bearing processes on 2 cores (6 of 8 are",
        ),
    ],
)
def test_what_the_host_has_not_is_refused(
    policy: str, more: dict[str, object], there: numa.Cores, problem: str
) -> None:
    with pytest.raises(numa.NumaProblem) as caught:
        prefixes(policy, there, **more)
    assert problem in str(caught.value)


def test_what_is_seen_of_a_process_is_held_against_its_binding() -> None:
    need("" if shutil.which("numactl") else "not installed: numactl")
    core = min(os.sched_getaffinity(0))
    node = min(numa.host_cores().by_node)
    bound = numa.Binding("cores_per_shard", [], [core], "local")
    process = subprocess.Popen(["numactl", f"--physcpubind={core}", "--localalloc", "sleep", "60"])
    try:
        while Path(f"/proc/{process.pid}/comm").read_text(encoding="ascii").strip() != "sleep":
            pass
        facts = numa.seen(process.pid)
        assert numa.difference(bound, facts) == ""
        other = numa.Binding("interleave", [], None, f"interleave:{node}")
        assert numa.difference(other, facts) == f"has the memory policy local, planned is interleave:{node}"
        assert "may run on cores" in numa.difference(numa.Binding("", [], [core, 999]), facts)
        limits = observed.limits(process.pid)
        assert observed.limits_difference({"nofile": limits["nofile"][0]}, limits) == ""
        assert "has the limit nofile" in observed.limits_difference({"nofile": 7}, limits)
        contained = {"memlock": ["8192", "8192"]}
        assert observed.limits_difference({"memlock": "infinity"}, contained, {"memlock": ["0", "8192"]}) == ""
        assert "planned is unlimited" in observed.limits_difference({"memlock": "infinity"}, contained)
        assert "planned is 9000" in observed.limits_difference({"memlock": 9000}, contained, contained)
    finally:
        process.kill()
        process.wait()


def test_options_are_compared_in_the_forms_a_server_gives_them() -> None:
    wanted = {"net": {"port": 1}, "setParameter": {"a": True, "n": 3}, "storage": {"cache": 0.25}}
    found = {"net": {"port": 1.0, "more": 1}, "setParameter": {"a": "true", "n": "3"}, "storage": {"cache": 0.25}}
    assert observed.options_difference(wanted, found) == ""
    assert observed.options_difference({"net": {"port": 2}}, found) == "has net.port 1.0, its configuration file says 2"
    assert observed.options_difference({"net": {"tls": "x"}}, found) == "has no net.tls, its configuration file says x"


@pytest.mark.parametrize("folder", ["/srv/runs/my-run_1.2/p01/shard01", "/a/ü b/c", "/.hidden/x"])
def test_a_unit_is_named_as_systemd_escapes_a_path(folder: str) -> None:
    said = subprocess.run(
        ["systemd-escape", "--path", "--template=microshard@.service", folder],
        capture_output=True,
        text=True,
        check=True,
    )
    assert systemd.unit_name(folder) == said.stdout.strip()

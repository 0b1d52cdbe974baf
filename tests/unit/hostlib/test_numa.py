"""Which cores and memory the processes of a host are given."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from microshard.hostlib import numa
from microshard.hostlib.errors import HostError
from tests.hosts.needs import need

TWO_NODES = numa.Cores({0: [0, 1, 2, 3], 1: [4, 5, 6, 7]})
NAMES = ["mongos1", "config1", "shard01", "shard02", "shard03"]
DATA = {"shard01", "shard02", "shard03"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planned binding is examined, which needs no numactl."""
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
        ("interleave", {"nodes": [0, 2, 3]}, TWO_NODES, "no NUMA node 2-3"),
        ("node_round_robin", {}, numa.Cores({0: [0, 1]}), "needs two NUMA nodes"),
        ("cores_per_shard", {"reserved_cores": 6}, TWO_NODES, "3 data-bearing processes on 2 cores"),
    ],
)
def test_what_the_host_has_not_is_refused(
    policy: str, more: dict[str, object], there: numa.Cores, problem: str
) -> None:
    with pytest.raises(HostError) as caught:
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
        facts = numa.placement(process.pid)
        assert numa.difference(bound, facts) == ""
        other = numa.Binding("interleave", [], None, f"interleave:{node}")
        assert numa.difference(other, facts) == f"has the memory policy local, planned is interleave:{node}"
        assert "may run on cores" in numa.difference(numa.Binding("", [], [core, 999]), facts)
    finally:
        process.kill()
        process.wait()

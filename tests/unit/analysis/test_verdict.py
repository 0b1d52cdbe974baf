"""The rules on evidence made by hand: each bottleneck alone, just below its threshold, and several at once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from microshard.analysis.bottleneck_rules import THRESHOLDS, candidates
from microshard.analysis.evidence import Evidence, HostLoad, InterfaceLoad, MongodLoad, ProcessLoad, VolumeLoad, gather
from microshard.analysis.telemetry import StepTelemetry
from microshard.analysis.verdict import attach, judge, main_bottleneck, most_frequent
from microshard.model.ec2_facts import EbsOfInstance
from microshard.model.plan import Host, Point
from tests.unit.analysis import make


def host(busy: float = 0.3, **changes: Any) -> HostLoad:
    return HostLoad("local", 4.0, busy, 0.0, **({"roles": {"shards": busy * 4}} | changes))


def shard(name: str = "shard01", cpu: float = 0.5, **changes: Any) -> MongodLoad:
    return MongodLoad(ProcessLoad(name, cpu), "local", **changes)


def limited(name: str, cpu: float, limit: float) -> MongodLoad:
    return MongodLoad(ProcessLoad(name, cpu, limit=limit), "local")


def evidence(**changes: Any) -> Evidence:
    """Nothing is at its limit."""
    base = Evidence(seconds=10, records=9, hosts=(host(),), shards=(shard(), shard("shard02")), concurrency=16)
    return replace(base, **changes)


def volume(name: str = "vda", figures: dict[str, float] | None = None, **limits: float) -> VolumeLoad:
    return VolumeLoad(
        name, "local", {"r_ios": 95, "w_ios": 0, "r_bytes": 95 * 8192} | (figures or {}), limits, ("shard01",)
    )


def router(cpu: float, limit: float, name: str = "mongos1") -> ProcessLoad:
    return ProcessLoad(name, cpu, limit=limit)


def client(cpu: float, limit: float, **more: float) -> dict[str, Any]:
    return {"client": ProcessLoad("client", cpu, limit=limit, **more)}


def hosts(busy: float = 0.3, **changes: Any) -> dict[str, Any]:
    return {"hosts": (host(busy, **changes),)}


def shards(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {"shards": (shard(**first), shard("shard02", **second))}


def disk(stall: float = 0.0, figures: dict[str, float] | None = None, **limits: float) -> dict[str, Any]:
    return {"volumes": (volume("vda", figures, **limits),)} | (hosts(stall={"io": stall}) if stall else {})


def members(first: dict[str, Any]) -> dict[str, Any]:
    """Two members of one replica set."""
    return shards(first, {}) | {"shard_of": {"shard01": "rs0", "shard02": "rs0"}}


def ebs(iops: float, waiting: float = 0.0) -> dict[str, Any]:
    """A c5.large, which has 4,000 IOPS at any time and 20,000 for 30 minutes a day; its volume could do more."""
    instance = EbsOfInstance("c5.large", 4000, 78, 20_000, 570)
    return disk(figures={"r_ios": iops, "r_bytes": 1e6}, ios=64_000, bytes=1e9) | hosts(
        ebs=instance, stall={"io": waiting}
    )


# Case: the bottleneck, what has just reached the limit, and what has not.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "cores of the shards": ("CPU", hosts(0.91), hosts(0.89)),
    "cores of the client": (
        "client", hosts(0.95, roles={"shards": 1.0, "client": 2.8}), hosts(0.89, roles={"shards": 1.0, "client": 2.5})),
    "cores of the router": (
        "router", hosts(0.95, roles={"shards": 1.0, "router": 2.8}), hosts(0.89, roles={"shards": 1.0, "router": 2.5})),
    "one core of a client": ("client", client(0.95, 1), client(0.85, 1)),
    "quota of a client": ("client", client(0.19, 0.2, held=0.7), client(0.17, 0.2)),
    "quota of a mongod": (
        "CPU", {"shards": (MongodLoad(ProcessLoad("a", 0.19, limit=0.2, throttled=0.31), "local"), shard("b"))},
        {"shards": (MongodLoad(ProcessLoad("a", 0.17, limit=0.2), "local"), shard("b"))}),
    "one core of a router": (
        "router", {"routers": (router(0.93, 1), router(0.9, 4, "mongos1/router"))},
        {"routers": (router(0.88, 1), router(0.99, 4, "mongos1/router"))}),
    "cores of a mongod's own": (
        "CPU", {"shards": (limited("a", 0.95, 1), limited("b", 0.9, 1))},
        {"shards": (limited("a", 0.85, 1), limited("b", 0.9, 4))}),
    "one thread a shard": (
        "CPU", {"concurrency": 1} | shards({"cpu": 0.82}, {"cpu": 0.8}),
        {"concurrency": 1} | shards({"cpu": 0.78}, {"cpu": 0.7})),
    "known rate of requests": ("disk IOPS", disk(r_ios=100), disk(r_ios=120)),
    "known rate of bytes": (
        "disk throughput", disk(figures={"w_bytes": 91e6}, r_ios=500, w_bytes=100e6),
        disk(figures={"w_bytes": 85e6}, r_ios=500, w_bytes=100e6)),
    "known rate, in bursts": ("disk IOPS", disk(0.3, r_ios=120), disk(0.3, r_ios=140)),
    "busy volume, small requests": ("disk IOPS", disk(0.4, {"util": 0.95}), disk(0.2, {"util": 0.95})),
    "busy volume, large requests": (
        "disk throughput", disk(0.4, {"util": 0.95, "r_bytes": 95e6}), disk(0.4, {"util": 0.8, "r_bytes": 95e6})),
    "pages moved by operations": (
        "cache", shards({"operation_time": 2, "stall": 1.1}, {"operation_time": 2, "stall": 1.2}),
        shards({"operation_time": 2, "stall": 0.9}, {"operation_time": 2, "stall": 0.8})),
    "tickets": (
        "lock or ticket",
        shards({"queue": 6, "no_ticket": 0.9, "operation_time": 30}, {"queue": 5, "no_ticket": 1}),
        shards({"queue": 6, "no_ticket": 0.4, "operation_time": 30}, {"queue": 0.5, "no_ticket": 1})),
    "locks": (
        "lock or ticket", shards({"queue": 6, "operation_time": 9}, {"queue": 6, "operation_time": 9}),
        shards({"queue": 4, "operation_time": 9}, {"queue": 4, "operation_time": 9})),
    "swapping": ("memory", hosts(swap=2**20), hosts(swap=2**19)),
    "waiting for memory": ("memory", hosts(stall={"memory": 0.11}), hosts(stall={"memory": 0.09})),
    "pages read again": (
        "memory", {"shards": (MongodLoad(ProcessLoad("shard01", 0.5, faults=120), "local"),)},
        {"shards": (MongodLoad(ProcessLoad("shard01", 0.5, faults=90), "local"),)}),
    "the link": (
        "network", {"interfaces": (InterfaceLoad("eth0", 110e6, 125e6),)},
        {"interfaces": (InterfaceLoad("eth0", 90e6, 125e6), InterfaceLoad("eth1", 9e9, None))}),
    "lost segments": (
        "network", hosts(segments=5000, segments_again=60), hosts(segments=5000, segments_again=40)),
    "packets shaped by EC2": (
        "network", {"interfaces": (InterfaceLoad("ens5", 1e6, None, {"bw_out": 0.02, "pps": 0.0}),)},
        {"interfaces": (InterfaceLoad("ens5", 1e6, None, {"bw_out": 0.005, "conntrack": 0.004}),)}),
    "more IOPS than the volume has": (
        "disk IOPS", {"exceeded": {"nvme1n1": {"volume_iops": 0.3}}}, {"exceeded": {"nvme1n1": {"volume_iops": 0.2}}}),
    "more throughput than the instance has": (
        "disk throughput", {"exceeded": {"nvme1n1": {"instance_throughput": 0.3}}},
        {"exceeded": {"nvme1n1": {"instance_throughput": 0.2, "volume_iops": 0.2}}}),
    "provisioned IOPS, reads and writes together": (
        "disk IOPS", disk(figures={"w_ios": 2700}, ios=3000), disk(figures={"w_ios": 2500}, ios=3000)),
    "provisioned throughput": (
        "disk throughput", disk(figures={"w_bytes": 125e6}, ios=3000, bytes=131e6),
        disk(figures={"w_bytes": 110e6}, ios=3000, bytes=131e6)),
    "baseline of the instance's EBS": ("disk IOPS", ebs(3600, waiting=0.4), ebs(3600, waiting=0.2)),
    "burst of the instance's EBS": ("disk IOPS", ebs(18_000), ebs(15_000, waiting=0.4)),
    "stolen cores": ("steal", hosts(steal=0.11), hosts(steal=0.09)),
    "flow control": (
        "replication", shards({"operation_time": 4, "waits": {"flow_control": 2.1}}, {}),
        shards({"operation_time": 4, "waits": {"flow_control": 1.9}}, {})),
    "write concern": (
        "replication", members({"operation_time": 4, "waits": {"write_concern": 2.1}}),
        members({"operation_time": 4, "waits": {"write_concern": 1.9}})),
    "a member that lags": ("replication", members({"lag": 5.0}), members({"lag": 4.0})),
    "a member that is to lag": (
        "replication", members({"lag": 66.0}) | {"delays": {"shard01": 60.0}},
        members({"lag": 64.0}) | {"delays": {"shard01": 60.0}}),
    "checkpoints": ("checkpoint", shards({"checkpoint_loss": 0.11}, {}), shards({"checkpoint_loss": 0.09}, {})),
    "locks of collections": (
        "lock or ticket", shards({"operation_time": 4, "waits": {"lock": 2.1}}, {}),
        shards({"operation_time": 4, "waits": {"lock": 1.9}}, {"waits": {"lock": 0.05}})),
    "no connection to a shard": ("connection pool", {"pools": {"mongos1": 0.6}}, {"pools": {"mongos1": 0.4}}),
    "the way": ("network", {"response": 0.010, "round_trip": 0.006}, {"response": 0.010, "round_trip": 0.004}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "reached", "below"), CASES.values(), ids=CASES)
def test_each_limit_is_named_when_it_is_reached_and_not_before(
    name: str, reached: dict[str, Any], below: dict[str, Any]
) -> None:
    assert judge(evidence(**reached)).name == name
    verdict = judge(evidence(**below))
    assert verdict.name == "none"
    assert verdict.runner_up is not None
    assert (verdict.runner_up.name, verdict.runner_up.holds) == (name, False)


def test_a_handful_of_segments_proves_nothing() -> None:
    assert judge(evidence(hosts=(host(segments=5, segments_again=0.5),))).name == "none"


@pytest.mark.parametrize(
    ("no_ticket", "words"),
    [(None, "; this server does not report tickets"), (0.0, ", and it had no ticket left 0 % of the time")],
)
def test_tickets_that_a_server_does_not_report_are_not_read_as_none_missing(
    no_ticket: float | None, words: str
) -> None:
    waiting = {"queue": 6, "operation_time": 9, "no_ticket": no_ticket}
    (found, *_) = [each for each in candidates(evidence(**shards(waiting, waiting))) if each.name == "lock or ticket"]
    assert found.sentence.endswith(f"operations waited in its queue on average{words}")
    assert ("no_ticket_share" in found.figures) == (no_ticket is not None)


def test_an_idle_mongod_that_reads_pages_has_no_bottleneck() -> None:
    idle = shard(cpu=0.001, operation_time=0.01, stall=0.009)
    assert judge(evidence(shards=(idle,))).name == "none"


def test_other_programs_on_full_cores_are_named() -> None:
    verdict = judge(evidence(hosts=(host(0.99, roles={"shards": 1.0, "others": 2.9}),)))
    assert verdict.name == "CPU"
    assert "2.90 of them by background CPU load" in verdict.sentence


def test_the_second_largest_user_of_full_cores_comes_next() -> None:
    verdict = judge(evidence(hosts=(host(0.99, roles={"shards": 2.0, "client": 1.5, "router": 0.4}),)))
    assert verdict.runner_up is not None
    assert (verdict.name, verdict.runner_up.name) == ("CPU", "client")


@pytest.mark.parametrize(
    ("reached", "order"),
    [
        (("cores of the shards", "pages moved by operations"), ("cache", "CPU")),
        (("cores of the shards", "tickets"), ("CPU", "lock or ticket")),
        (("known rate of requests", "pages moved by operations"), ("disk IOPS", "cache")),
        (("swapping", "known rate of requests"), ("memory", "disk IOPS")),
        (("quota of a client", "one thread a shard"), ("client", "CPU")),
        (("one thread a shard", "the way"), ("CPU", "network")),
    ],
)
def test_what_costs_the_others_their_time_comes_first(reached: tuple[str, str], order: tuple[str, str]) -> None:
    first, second = (CASES[case][1] for case in reached)
    verdict = judge(evidence(**first | second))
    assert verdict.runner_up is not None
    assert (verdict.name, verdict.runner_up.name, verdict.runner_up.holds) == (*order, True)


def test_a_limit_that_one_shard_alone_reached_is_skew() -> None:
    hot = evidence(hosts=(host(0.95),), shards=(shard(cpu=3.0), shard("shard02", cpu=0.5)))
    verdict = judge(hot)
    assert verdict.name == "skew"
    assert verdict.figures["times_the_mean"] == pytest.approx(3.0 / 1.75, rel=1e-3)
    assert "shard01 had 1.7 times the CPU time" in verdict.sentence
    assert verdict.runner_up is not None
    assert verdict.runner_up.name == "CPU"
    even = evidence(hosts=(host(0.95),), shards=(shard(cpu=2.2), shard("shard02", cpu=1.6)))
    assert judge(even).name == "CPU"
    members = replace(hot, shard_of={"shard01": "rs0", "shard02": "rs0"})
    assert judge(members).name == "CPU", "a primary beside its secondary is no skew"


def test_unequal_shards_nobody_waits_for_are_no_bottleneck() -> None:
    assert judge(evidence(shards=(shard(cpu=0.6), shard("shard02", cpu=0.01)))).name == "none"
    busy = evidence(**shards({"cpu": 0.6}, {"cpu": 0.01}) | client(1.0, 1))
    assert judge(busy).name == "client"


def test_one_volume_of_several_at_its_limit_is_skew() -> None:
    idle = VolumeLoad("vdb", "local", {"r_ios": 3, "w_ios": 0}, {"r_ios": 100}, ("shard02",))
    assert judge(evidence(volumes=(volume(r_ios=100), idle))).name == "skew"
    busy = VolumeLoad("vdb", "local", {"r_ios": 91, "w_ios": 0}, {"r_ios": 100}, ("shard02",))
    assert judge(evidence(volumes=(volume(r_ios=100), busy))).name == "disk IOPS"


def test_too_short_a_phase_is_not_judged() -> None:
    verdict = judge(evidence(records=0, hosts=(host(0.99),)))
    assert verdict.name == "unknown"
    assert "measure longer" in verdict.sentence


def test_operations_that_are_always_on_a_cpu_ask_for_more_of_them() -> None:
    one = evidence(concurrency=1, hosts=(host(0.25, roles={"shards": 0.4, "client": 0.5}),), shards=(shard(cpu=0.4),))
    assert "more operations at a time" in judge(one).sentence
    assert "more operations" not in judge(replace(one, concurrency=4)).sentence


def test_findings_that_hold_come_before_those_that_do_not() -> None:
    found = candidates(evidence(hosts=(host(0.85, swap=2**20),)))
    assert [f.holds for f in found] == sorted((f.holds for f in found), reverse=True)
    assert found[0].name == "memory"


PROCESSES = (("shard01", "shard"), ("mongos1", "mongos"), ("config1", "config"))
PHASES = (("measure", {"connections": 8, "clients": 2, "batch_size": 10}),)


@pytest.fixture
def point(tmp_path: Path) -> Point:
    return make.point(tmp_path, processes=PROCESSES, phases=PHASES)


SUMMARY: dict[str, Any] = {
    "processes": {
        "shard01": {"cpu_mean": 0.5, "limit": 2, "faults_mean": 3},
        "mongos1": {"cpu_mean": 0.2, "limit": 1},
        "mongos1/router": {"cpu_mean": 0.4, "limit": 2},
        "config1": {"cpu_mean": 0.1},
        "client": {"cpu_mean": 0.3, "limit": 0.5, "held_mean": 0.2},
    },
    "hosts": {
        "local": {
            "records": 9,
            "cores": 2,
            "cpu": {"user": 0.7, "sys": 0.1, "iowait": 0.05},
            "vm": {"swap_in": 1.0, "swap_out": 2.0},
            "tcp": {"out": 10.0, "again": 1.0},
            "processes": ["shard01", "mongos1", "mongos1/router", "config1", "client"],
        }
    },
    "servers": {
        "shard01": {"queue_mean": 2.0, "round_trip_min": 0.002, "operation_time_mean": 1.0},
        "mongos1": {"round_trip_min": 0.001},
        "config1": {"round_trip_min": 0.1},
    },
    "disk": {"vda": {"r_ios_mean": 5.0}, "vdb": {"r_ios_mean": 7.0}},
    "devices": {
        "shard01": {"data": {"device": "vda", "limits": {"r_ios": 10}}},
        "config1": {"data": {"device": "vdb"}},
    },
    "net": {"lo": {"rx_bytes": 9e9, "tx_bytes": 0}, "eth0": {"rx_bytes": 10.0, "tx_bytes": 40.0, "speed": 100}},
}


def test_evidence_is_gathered_by_role(point: Point) -> None:
    phase = make.phase(started=100.0, ended=110.0, windows={"values": [4, 4]}, metric=make.METRIC | {"unit": "1/s"})
    found = gather(phase, make.summary(SUMMARY), point)
    (only,) = found.hosts
    assert only.roles == pytest.approx(
        {"shards": 0.5, "router": 0.6, "config": 0.1, "client": 0.3, "others": 0.1}, rel=1e-6
    )
    assert only.busy == pytest.approx(0.8)
    assert (only.swap, only.segments) == (3, 10)
    assert [s.use.name for s in found.shards] == ["shard01"]
    assert [r.name for r in found.routers] == ["mongos1", "mongos1/router"]
    assert found.client == ProcessLoad("client", 0.3, 0.5, 0.2)
    assert [(d.name, d.limits, d.shards) for d in found.volumes] == [("vda", {"r_ios": 10}, ("shard01",))]
    assert found.interfaces == (InterfaceLoad("eth0", 4.0, 100),)
    assert found.round_trip == pytest.approx(0.003), (
        "to the router and on to the shard; the config server is not on the way"
    )
    assert found.concurrency == 16
    assert found.response == pytest.approx(16 * 10 / 8), "Little's law: 8 operations in 10 s with 16 in flight"


@pytest.mark.parametrize(
    ("phase", "seconds"),
    [
        ({"metric": make.METRIC, "samples": [0.1, 0.2, 0.6]}, 0.2),
        ({"metric": make.METRIC | {"unit": "1/s"}, "counters": {"operations": 32}}, 5.0),
        ({"metric": make.METRIC | {"unit": "1/s"}, "counters": {"documents": 315}}, 5.0),
        ({"metric": make.METRIC | {"unit": "1/s"}, "counters": {}}, None),
    ],
)
def test_the_time_of_an_operation_is_measured_or_follows_from_the_rate(
    phase: dict[str, Any], seconds: float, point: Point
) -> None:
    found = gather(make.phase(started=100.0, ended=110.0, **phase), make.summary(SUMMARY), point)
    assert found.response == (None if seconds is None else pytest.approx(seconds))


def test_processes_of_one_control_group_share_its_limit(tmp_path: Path) -> None:
    place = {"data": {"device": "vda", "limits": {"w_ios": 100}}}
    point = make.point(tmp_path, processes=(*PROCESSES, ("shard02", "shard")))
    telemetry = make.summary(SUMMARY | {"devices": {"shard01": place, "shard02": place}})
    found = gather(make.phase(), telemetry, point)
    assert found.volumes[0].limits == {"w_ios": 100}


def test_verdicts_are_added_to_phases_that_were_measured(point: Point) -> None:
    records = make.host_records(
        *(
            {"t": 100.0 + n, "seconds": 1.0, "cores": 2, "cpu": {"user": 1.0}, "proc": {"shard01": {"cpu": 1.9}}}
            for n in range(10)
        )
    )
    result = make.result(
        make.phase(name="load", kind="load", started=100.2, ended=100.9),
        make.phase(started=101.0, ended=108.0),
        make.phase(name="other", started=101.0, ended=108.0, error={"message": "gone"}),
    )
    attach(result, StepTelemetry(hosts={"local": records}), point)
    verdicts = [phase.verdict for phase in result.phases]
    assert [verdict.name if verdict else None for verdict in verdicts] == ["unknown", "CPU", None]
    assert main_bottleneck(result) == "CPU"
    assert verdicts[1] is not None
    assert verdicts[1].figures["busy"] == 1


def test_the_verdict_of_several_measurements_is_the_most_frequent_then_the_earlier() -> None:
    assert most_frequent(["CPU", "cache", "cache"]) == "cache"
    assert most_frequent(["CPU", "cache"]) == "CPU"
    assert most_frequent([]) == ""


def test_the_write_concern_of_a_single_member_is_its_journals() -> None:
    waits = {"operation_time": 4, "waits": {"write_concern": 3.0}}
    assert judge(evidence(**shards(waits, {}))).name == "none"


def test_an_instance_without_cpu_credits_is_named_with_its_baseline() -> None:
    """Of a t3.micro without credits 10 % of each core is left, as AWS documents; its kernel counts the rest stolen."""
    found = judge(evidence(**hosts(0.1, steal=0.85, instance_type="t3.micro")))
    assert found.name == "steal"
    assert found.figures["baseline"] == pytest.approx(0.1)
    assert "t3.micro" in found.sentence
    assert "baseline" not in judge(evidence(**hosts(0.1, steal=0.85, instance_type="c5.large"))).figures


@pytest.mark.parametrize(
    ("volume", "allowed"),
    [
        ({"type": "gp3"}, {"ios": 3000, "bytes": 125 * 2**20}),
        ({"type": "gp3", "iops": 6000, "throughput_mibps": 500}, {"ios": 6000, "bytes": 500 * 2**20}),
        ({"type": "gp3", "policy": "raid0", "count": 4}, {"ios": 12_000, "bytes": 500 * 2**20}),
        ({"type": "gp3", "policy": "per_shard", "count": 4}, {"ios": 3000, "bytes": 125 * 2**20}),
        ({"type": "io2", "iops": 20_000}, {"ios": 20_000, "bytes": 4000 * 2**20}),
        ({"type": "instance_store"}, {}),
    ],
)  # fmt: skip
def test_the_limits_of_a_planned_volume_are_those_aws_documents(
    tmp_path: Path, volume: dict[str, Any], allowed: dict[str, float]
) -> None:
    """EBS counts reads and writes together; a control group's own limit stays beside it."""
    planned = {"size_gib": 1000, "iops": None, "throughput_mibps": None, "policy": "single", "count": 1} | volume
    point = make.point(tmp_path, processes=(("shard01", "shard"),))
    here = (Host(point.processes[0].host, groups=("shard_hosts",)),)
    point = replace(point, hosts=here, machines={"shard_hosts": {"volumes": {"data": planned}}})
    place = {"device": "nvme1n1", "limits": {"r_ios": 50.0}}
    summary = make.summary({"disk": {"nvme1n1": {"r_ios_mean": 1.0}}, "devices": {"shard01": {"data": place}}})
    phase = make.phase(started=0.0, ended=10.0)
    (found,) = gather(phase, summary, point).volumes
    assert found.limits == allowed | {"r_ios": 50.0}


def test_every_threshold_says_why_and_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs/report.md").read_text(encoding="utf-8")
    for name, limit in THRESHOLDS.items():
        assert len(limit.why) > 10
        (row,) = [line for line in text.splitlines() if f"(`{name}`" in line]
        shown = {"share": f"{limit.value * 100:g} %", "bytes/s": f"{limit.value / 2**20:g} MiB/s"}
        plain = {"bytes": f"{limit.value / 1024:g} KiB", "1/s": f"{limit.value:g}/s"}
        assert {**shown, **plain}.get(limit.unit, f"{limit.value:g}") in row, name

"""Gates: what makes a measurement count, and what another attempt can change."""

import dataclasses
import secrets
from pathlib import Path
from typing import Any

import pytest

from microshard.analysis.gates import EnvironmentBook, checks, documents_by_shard, variation
from microshard.model.infrastructure import Kernel
from microshard.model.plan import Host, Point
from microshard.model.result import GateCheck, PhaseResult, StepResult
from tests.unit.analysis import make

OFF: dict[str, Any] = {"max_migrations": 0, "initial_sync": "refuse", "decided": ["max_migrations", "initial_sync"]}


def phase(**changes: Any) -> PhaseResult:
    return make.phase(**{"metric": make.METRIC, "counters": {"errors": 0}} | changes)


def telemetry(**server: Any) -> dict[str, Any]:
    return {
        "hosts": {"h1": {"cores": 4, "processes": ["shard01"]}, "h2": {"cores": 2, "processes": ["client"]}},
        "processes": {"client": {"cpu_mean": 1.5}},
        "servers": {"shard01": {"operations": {}, **server}, "shard02": {"operations": {}}, "mongos1": {}},
    }


def broken(*phases: PhaseResult, deploys: bool = False, **limits: Any) -> list[GateCheck]:
    return [c for c in checks(make.result(*phases), OFF | limits, deploys=deploys) if not c.held]


def test_a_clean_measurement_breaks_no_gate() -> None:
    assert broken(phase(telemetry=telemetry(states=["primary"], migrations=0))) == []


def test_errors_are_always_checked_and_worth_another_attempt_except_in_a_load_that_stays() -> None:
    (measured,) = broken(phase(counters={"errors": 3}))
    assert (measured.gate, measured.value, measured.repeatable) == ("errors", 3, True)
    load = phase(name="load", kind="load", counters={"errors": 1})
    assert [c.repeatable for c in broken(load)] == [False]
    assert [c.repeatable for c in broken(load, deploys=True)] == [True]


def test_the_fullest_shard_is_held_against_the_mean() -> None:
    uneven = phase(storage={"by_shard": {"a": {"documents": 70}, "b": {"documents": 30}}})
    (check,) = broken(uneven, max_shard_skew=1.3)
    assert (check.gate, check.repeatable) == ("max_shard_skew", False)
    assert check.value == pytest.approx(1.4)
    assert broken(uneven, max_shard_skew=1.5) == []
    assert broken(uneven, max_shard_skew=1.3, deploys=True)[0].repeatable


def test_documents_counted_by_an_earlier_step_still_hold() -> None:
    load = make.result(phase(storage={"by_shard": {"a": {"documents": 6}, "b": {"documents": 2}}}))
    known = documents_by_shard(load)
    assert known == {"a": 6, "b": 2}
    found = checks(make.result(phase()), {"max_shard_skew": 1.2}, deploys=False, documents=known)
    assert [(c.gate, c.value) for c in found] == [("max_shard_skew", 1.5)]


def test_the_client_is_held_against_its_own_host() -> None:
    (check,) = broken(phase(telemetry=telemetry()), max_client_cpu=0.7)
    assert check.gate == "max_client_cpu"
    assert check.value == pytest.approx(0.75)
    assert broken(phase(telemetry=telemetry()), max_client_cpu=0.8) == []


def test_of_a_phase_too_short_for_telemetry_the_client_s_cpu_time_is_held_against_the_limit() -> None:
    short = {"started": 10.0, "ended": 10.01, "client_cpu_seconds": 0.008}
    hosts = {"hosts": {"h1": {"cores": 2, "processes": ["mongod1"]}}}
    (check,) = broken(phase(**short, telemetry=hosts), max_client_cpu=0.3)
    assert check.value == pytest.approx(0.4)
    assert broken(phase(**short, telemetry=hosts), max_client_cpu=0.5) == []


def test_of_several_clients_the_one_that_fills_its_host_most_is_held_against_the_limit() -> None:
    found = telemetry()
    found["hosts"] |= {"h2": {"cores": 2, "processes": ["client/h2"]}, "h3": {"cores": 8, "processes": ["client/h3"]}}
    found["processes"] = {"client/h2": {"cpu_mean": 1.9}, "client/h3": {"cpu_mean": 2.0}}
    (check,) = broken(phase(telemetry=found), max_client_cpu=0.9)
    assert check.value == pytest.approx(0.95)


def test_variation_is_over_windows_else_over_samples() -> None:
    assert variation(phase(windows={"values": [90, 100, 110]}, samples=[1, 9, 1])) == pytest.approx(0.1)
    assert variation(phase(samples=[9, 10, 11])) == pytest.approx(0.1)
    assert variation(phase(samples=[9, 10])) is None
    (check,) = broken(phase(windows={"values": [50, 100, 150]}), max_variation=0.3)
    assert (check.gate, check.repeatable) == ("max_variation", True)


@pytest.mark.parametrize(
    "gate", ["max_shard_skew", "max_client_cpu", "max_variation", "max_checkpoint_share", "max_migrations"]
)
def test_a_gate_requested_that_cannot_be_answered_does_not_hold(gate: str) -> None:
    limits: dict[str, Any] = {"max_migrations": None, "decided": [], gate: 1}
    (check,) = broken(phase(), **limits)
    assert (check.gate, check.value) == (gate, None)
    assert "unknown" in check.sentence


def test_a_gate_nobody_requested_is_silent_without_telemetry() -> None:
    assert broken(phase()) == []


def test_migrations_and_checkpoints_are_background_work() -> None:
    (check,) = broken(phase(telemetry=telemetry(migrations=1)))
    assert (check.gate, check.value) == ("max_migrations", 1)
    assert broken(phase(telemetry=telemetry(migrations=1)), max_migrations=None) == []
    seen = telemetry(checkpoint_running_share=0.4)
    assert [c.gate for c in broken(phase(telemetry=seen), max_checkpoint_share=0.3)] == ["max_checkpoint_share"]
    assert broken(phase(telemetry=seen)) == []


def test_a_member_that_does_not_serve_is_background_work_unless_allowed() -> None:
    seen = phase(telemetry=telemetry(states=["other", "primary"]))
    (check,) = broken(seen)
    assert check.gate == "initial_sync"
    assert "shard01" in check.sentence
    assert broken(seen, initial_sync="allow") == []


def test_a_restart_that_makes_the_cache_cold_is_no_background_work() -> None:
    seen = telemetry(states=["other", "primary"])
    assert broken(phase(telemetry=seen, notes={"cache": "cold: mongods restarted, page cache dropped"})) == []
    assert broken(phase(telemetry=seen, notes={"cache": "cold: page cache dropped"})) != []


def test_drift_is_against_the_median_of_the_first_point() -> None:
    def drift(value: float) -> list[bool]:
        return [
            c.held
            for c in checks(
                make.result(phase(metric=make.METRIC | {"value": value})),
                {"max_drift": 0.1},
                deploys=False,
                median={"measure": 10.0},
            )
        ]

    assert (drift(10.9), drift(11.2), drift(8.9)) == ([True], [False], [False])
    assert checks(make.result(phase()), {"max_drift": 0.1}, deploys=False) == []


def test_an_engine_that_gave_up_is_not_judged_by_gates() -> None:
    failed = phase(error={"message": "gone"}, counters={"errors": 1})
    assert broken(failed, max_variation=0.1) == []


def test_another_environment_is_reported_and_never_repeated() -> None:
    (check,) = checks(make.result(), {}, deploys=True, environment=["kernel: a at first, b here"])
    assert (check.gate, check.held, check.repeatable) == ("environment", False, False)


def result(host: str = "local", versions: tuple[str, ...] = ("6.0.5",), **settings: Any) -> StepResult:
    environment = {"kernel": "6.1", "readahead_kib": {"vda": "128"}} | settings
    return make.result(point="p01", step="r1", environment={host: environment}, versions=list(versions))


def _point(folder: Path, groups: tuple[str, ...] = ("shard_hosts",), axes: dict[str, Any] | None = None) -> Point:
    hosts = tuple(Host(name, "", groups) for name in ("local", "h1", "h2"))
    return make.point(folder / secrets.token_hex(4), axes=axes or {}, hosts=hosts)


def test_a_setting_that_changed_since_the_first_measurement_is_named(tmp_path: Path) -> None:
    book = EnvironmentBook()
    assert book.differs(result(), _point(tmp_path)) == []
    assert book.differs(result(), _point(tmp_path)) == []
    (sentence,) = book.differs(result(readahead_kib={"vda": "16"}), _point(tmp_path))
    assert sentence == "local: readahead_kib: 128 at first, 16 here (first: p01 r1)"
    *_, sentence = book.differs(result(versions=("6.0.27",)), _point(tmp_path))
    assert "MongoDB: 6.0.5 at first, 6.0.27 here" in sentence


@pytest.mark.parametrize(
    ("kernel", "settings", "sentence"),
    [
        ({"readahead_sectors": 32}, {"readahead_kib": {"nvme1n1": "16"}}, None),
        ({"readahead_sectors": 32}, {"readahead_kib": {"nvme1n1": "256"}}, "h1: readahead is nvme1n1 256 KiB, planned"),
        ({"swappiness": 1}, {"swappiness": "60"}, "h1: swappiness is 60, planned for this point: 1"),
        ({"transparent_huge_pages": "never"}, {"transparent_huge_pages": "always"}, "transparent_huge_pages is always"),
        ({}, {"swappiness": "60"}, None),
        ({}, {"versions": ("8.0.4",)}, "MongoDB 8.0.4 answered, planned for this point: 6.0"),
    ],
)
def test_a_point_is_compared_with_its_own_plan(
    tmp_path: Path, kernel: dict[str, Any], settings: dict[str, Any], sentence: str | None
) -> None:
    volumes = {"data": {"type": "gp3"}, "journal": None, "log": None}
    machines = {"shard_hosts": {"volumes": volumes, "kernel": Kernel.model_validate(kernel).model_dump()}}
    point = dataclasses.replace(_point(tmp_path), machines=machines, mongodb={"source": "packages", "version": "6.0"})
    found = EnvironmentBook().differs(result("h1", **settings), point)
    assert (found == []) if sentence is None else found[0].startswith(sentence) or sentence in found[0]


def test_hosts_of_one_group_are_compared_and_device_names_are_not(tmp_path: Path) -> None:
    book = EnvironmentBook()
    assert book.differs(result("h1", readahead_kib={"nvme1n1": "128"}), _point(tmp_path)) == []
    assert book.differs(result("h2", readahead_kib={"nvme2n1": "128"}), _point(tmp_path)) == []
    assert len(book.differs(result("h2", kernel="5.10"), _point(tmp_path))) == 1
    assert book.differs(result("h2", kernel="5.10"), _point(tmp_path, ("client_hosts",))) == []


@pytest.mark.parametrize("axis", ["topology.mongodb.version", "topology.mongodb.path", "topology.mongodb"])
def test_an_axis_of_versions_is_no_other_environment(tmp_path: Path, axis: str) -> None:
    def differs(answered: str, planned: str) -> list[str]:
        point = dataclasses.replace(_point(tmp_path, axes={axis: planned}), mongodb={"source": "path", "version": None})
        return book.differs(result(versions=(answered,)), point)

    book = EnvironmentBook()
    assert [differs(version, version) for version in ("4.4.2", "6.0.27", "4.4.2")] == [[], [], []]
    assert differs("4.4.3", "4.4.2") == ["MongoDB: 4.4.2 at first, 4.4.3 here (first: p01)"]


def test_points_that_were_requested_to_differ_are_not_compared(tmp_path: Path) -> None:
    book = EnvironmentBook()
    axis = "infrastructure.shard_hosts.kernel.readahead_sectors"
    assert book.differs(result(), _point(tmp_path, axes={axis: 256})) == []
    assert book.differs(result(readahead_kib={"vda": "16"}), _point(tmp_path, axes={axis: 32})) == []
    assert len(book.differs(result(readahead_kib={"vda": "16"}), _point(tmp_path, axes={axis: 256}))) == 1


def test_without_telemetry_nothing_is_said(tmp_path: Path) -> None:
    assert EnvironmentBook().differs(make.result(point="p01"), _point(tmp_path)) == []

"""Answers are compared between points; results of client hosts become one."""

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from microshard.model.plan import Host, Inputs, Plan, Point
from microshard.model.result import PhaseFailure, PhaseResult, StepResult, StorageSize
from microshard.plan.build import build_plan
from microshard.records.run_folder import write_json
from microshard.run.result_recorder import AnswerBook, MissingResultError, merge_client_results
from tests.unit.plan.conftest import experiment, points
from tests.unit.workloads.ycsb.test_results import ladder, part, value_of

KEYS = {"engine": "ycsb", "records": 1000, "clients": 2}
HOSTS = (Host("db", "10.0.0.1", ("shard_hosts",), 4, 8192.0), *(
    Host(f"c{n}", f"10.0.0.{n + 1}", ("client_hosts",), 4, 8192.0) for n in (1, 2)))  # fmt: skip


def two_clients() -> Plan:
    base = experiment(
        infrastructure={"client_hosts": {"count": 2}},
        topology={"kind": "standalone"},
        workload=[{"load": KEYS}, {"measure": KEYS}],
    )
    return build_plan(base, points(base, [1]), Inputs(hosts=HOSTS, backend="hosts"))


@pytest.fixture(scope="module")
def point() -> Point:
    return two_clients().points[0]


def left(folder: Path, host: str, phase: str, result: PhaseResult) -> None:
    write_json(folder / "hosts" / host / f"{phase}.json", StepResult(phases=[replace(result, name=phase)]))


def test_parts_are_added_up_by_the_clock_of_the_first_host(tmp_path: Path, point: Point) -> None:
    for host in point.client_hosts:
        late = 100.0 if host == "c2" else 0.0
        loaded, measured = part([1] * 50, kind="load"), part([1] * 100, [1] * 100)
        for each in (loaded, measured):
            assert each.windows is not None
            each.counters["documents"] = 50
            each.started, each.ended = each.started + late, each.ended + late
            each.windows.start += late
        left(tmp_path, host, "load", loaded)
        left(tmp_path, host, "measure", measured)
    after = PhaseResult("load", storage=StorageSize(data_bytes=7))
    write_json(tmp_path / "together" / "load.json", StepResult(phases=[after]))
    result = merge_client_results(tmp_path, point, two_clients().steps[0], {"c2": -100.0})
    load, measure = result.phases
    assert result.valid
    assert (result.point, result.step) == ("p01", "r1")
    assert load.storage == StorageSize(data_bytes=7)
    assert value_of(load) == pytest.approx(100, rel=0.01)
    assert value_of(measure) == pytest.approx(200)
    assert measure.windows is not None
    assert measure.windows.values == pytest.approx([200, 200])


def test_a_host_without_a_result_and_a_wrong_count_fail_the_whole_by_name(tmp_path: Path, point: Point) -> None:
    for host in point.client_hosts:
        loaded = part([1] * 50, kind="load")
        loaded.counters["documents"] = 50
        left(tmp_path, host, "load", loaded)
    left(tmp_path, "c1", "measure", part([1]))
    wrong = PhaseResult("load", error=PhaseFailure("WrongCount", "100 records were loaded, 99 are there"))
    write_json(tmp_path / "together" / "load.json", StepResult(phases=[wrong]))
    result = merge_client_results(tmp_path, point, two_clients().steps[0], {})
    assert not result.valid
    assert result.problems == [
        "load: WrongCount: 100 records were loaded, 99 are there",
        "measure: PartMissing: there is no result of measure from c2",
    ]


def test_hosts_that_left_nothing_have_no_result(tmp_path: Path, point: Point) -> None:
    with pytest.raises(MissingResultError, match="no client host has left a result"):
        merge_client_results(tmp_path, point, two_clients().steps[0], {})
    left(tmp_path, "c1", "load", part([1]))
    (tmp_path / "hosts" / "c1" / "load.json").write_text('{"phases": [')
    with pytest.raises(MissingResultError, match=r"load\.json: not the result of a phase"):
        merge_client_results(tmp_path, point, two_clients().steps[0], {})


def test_a_point_knows_its_client_hosts_in_their_order(point: Point) -> None:
    assert point.client_hosts == ("c1", "c2")
    assert dataclasses.asdict(point)["client_hosts"] == ("c1", "c2")


def test_parts_that_do_not_belong_together_are_refused_with_their_phase(tmp_path: Path, point: Point) -> None:
    for host, threads in (("c1", 2), ("c2", 3)):
        result = ladder([100, 200], [10, 20])
        result.rungs[1].threads = threads
        left(tmp_path, host, "measure", result)
    with pytest.raises(MissingResultError, match="measure: rung 2 has different threads"):
        merge_client_results(tmp_path, point, two_clients().steps[0], {})


def counted(shards: int, documents: int = 1000) -> Point:
    base = experiment(
        workload=[
            {"load": {"engine": "insert", "documents": documents}},
            {"measure": {"engine": "aggregate", "pipeline": [{"$count": "n"}]}},
        ]
    )
    points_of = {point.shards: point for point in build_plan(base, points(base, [1, 16]), Inputs(cores=2)).points}
    return points_of[shards]


def answered(answer: Any, digest: str | None) -> StepResult:
    return StepResult(step="r1", phases=[PhaseResult("measure", answer=answer, answer_sha256=digest)])


def test_sixteen_shards_must_answer_what_one_answered() -> None:
    book = AnswerBook()
    assert book.difference(counted(1), answered([{"n": 1000}], "a")) is None
    assert book.difference(counted(16), answered([{"n": 1000}], "a")) is None
    message = str(book.difference(counted(16), answered([{"n": 999}], "b")))
    assert 'row 1: {"n": 1000} against {"n": 999}' in message
    assert "p01 (1 shard) r1" in message
    assert "1 rows against 2" in str(book.difference(counted(1), answered([1, 2], "c")))


def test_other_documents_and_phases_without_an_answer_are_not_compared() -> None:
    book = AnswerBook()
    assert book.difference(counted(1), answered([{"n": 1000}], "a")) is None
    assert book.difference(counted(1, documents=2000), answered([{"n": 2000}], "b")) is None
    assert book.difference(counted(1), answered(None, None)) is None

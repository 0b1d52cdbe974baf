"""Operations' time in the servers: what lies between two readings of $collStats."""

import pytest

from microshard.workloads.servers import OperationTimes, latencies_between

BEFORE: OperationTimes = {"shard01": {"reads": {-1: 1000, 16: 1, 64: 4}, "writes": {-1: 0}}}


def after(**kinds: dict[int, int]) -> OperationTimes:
    return {"shard01": {"writes": {-1: 0}} | kinds}


def test_percentiles_are_upper_bounds_and_the_question_itself_does_not_count() -> None:
    reads = {-1: 1000 + 98 * 100 + 2 * 5000 + 16, 16: 2, 64: 102, 4096: 2}
    found = latencies_between(BEFORE, after(reads=reads))
    assert found.keys() == {"reads"}
    assert found["reads"].count == 100
    assert found["reads"].mean == pytest.approx((98 * 100 + 2 * 5000) / 100)
    assert found["reads"].percentiles == {"50": 128, "95": 128, "99": 6144}


@pytest.mark.parametrize(("lower", "upper"), [(0, 2), (1024, 2048), (2048, 3072), (3072, 4096), (2097152, 4194304)])
def test_the_buckets_are_those_of_mongod(lower: int, upper: float) -> None:
    found = latencies_between({"m": {"writes": {-1: 0}}}, {"m": {"writes": {-1: 9, lower: 1}}})
    assert found["writes"].percentiles["50"] == upper


@pytest.mark.parametrize(
    "later",
    [{}, {"shard02": {}}, after(reads={-1: 5, 16: 1}), after(reads={-1: 2000, 64: 9})],
    ids=["no answer", "another server", "restarted", "a bucket is gone"],
)
def test_nothing_is_said_where_counters_do_not_go_on(later: OperationTimes) -> None:
    assert latencies_between(BEFORE, later) == {}

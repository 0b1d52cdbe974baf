import pytest

from microshard.analysis.objective import figure_of, needs_of
from microshard.model.advice import SearchRequest
from microshard.model.result import Latency, Metric, PhaseResult, StepResult
from microshard.model.telemetry import HostUse, ProcessUse, TelemetrySummary

GIB = 1024**3


def request(objective=""):
    return SearchRequest([1, 2], 6, 6, 3, 0.95, 0.03, 7, "measure", objective=objective)


def result(**measured):
    load = PhaseResult("load", "load", started=100.0, ended=112.0, metric=Metric("load rate", "documents/s", 9.0))
    return StepResult(phases=[load, PhaseResult("measure", "measure", **measured)])


def figure(found, objective="", usd=None):
    metric = figure_of(found, request(objective), usd)
    assert metric is not None
    return metric


RATE = {"metric": Metric("throughput", "operations/s", 500.0, "higher"), "figures": [Metric("p99 latency", "ms", 7.0)]}


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("", ("throughput", 500.0, "higher")),
        ("p99 latency", ("p99 latency", 7.0, "lower")),
        ("load time", ("load time", 12.0, "lower")),
        # 0.90 USD an hour, 500 operations a second: a million takes 2000 s
        ("cost per operation", ("cost per operation", pytest.approx(0.5), "lower")),
    ],
)
def test_the_objective_decides_which_figure_is_searched(objective, expected):
    found = figure(result(**RATE), objective, 0.9)
    assert (found.name, found.value, found.better) == expected


def test_the_cost_of_a_query_follows_from_its_time():
    found = figure(result(metric=Metric("query time", "ms", 36.0)), "cost per operation", 1.0)
    assert found.value == pytest.approx(10.0)
    assert figure_of(result(metric=Metric("query time", "ms", 36.0)), request("cost per operation"), None) is None


def test_a_latency_is_that_of_the_slowest_operation_from_its_intended_time():
    latency = {
        "READ": Latency(9, percentiles={"99": 9000.0}),
        "Intended-READ": Latency(9, percentiles={"99": 12000.0}),
        "Intended-UPDATE": Latency(9, percentiles={"99": 15000.0}),
    }
    found = result(metric=Metric("throughput", "operations/s", 5.0), latency=latency)
    assert figure(found, "p99 latency").value == 15.0
    assert needs_of(found, request()).p99_ms == 15.0
    assert figure_of(result(), request("p99 latency"), None) is None


def test_ram_and_disk_are_those_of_the_fullest_host_without_the_client():
    telemetry = TelemetrySummary(
        processes={name: ProcessUse(rss_max=size * GIB) for name, size in (("s1", 1), ("s2", 2), ("client/b", 9))},
        db_path_bytes={"s1": 3.0 * GIB, "s2": 1.0 * GIB},
        hosts={"a": HostUse(processes=["s1"]), "b": HostUse(processes=["s2", "client/b"])},
    )
    found = needs_of(result(telemetry=telemetry), request())
    assert (found.ram_gib, found.disk_gib, found.p99_ms) == (2.0, 3.0, None)

"""What limited a figure, from the CPU of its parts."""

from typing import Any

import pytest

from microshard.workloads.ycsb.cpu import CounterSamples, client_side_limit


def cpu(
    client: float, routers: dict[str, float], servers: float, *, cores: int = 8, busy: float = 0.5
) -> dict[str, Any]:
    return {"client": client, "routers": routers, "servers": servers, "cores": cores, "busy": busy}


@pytest.mark.parametrize(
    ("figures", "limit"),
    [
        (cpu(1, {}, 3), None),
        (cpu(6.5, {}, 1), "client"),
        (cpu(1, {"mongos1": 0.95, "mongos1/router": 1.2}, 1), "router"),  # its front is one thread
        (cpu(1, {"mongos1": 2.5}, 1), None),  # a real mongos may use all cores
        (cpu(1, {"mongos1": 7.3}, 1), "router"),
        (cpu(3, {"mongos1": 2}, 2.9, busy=0.99), "client"),
        (cpu(2, {"mongos1": 0.5, "mongos1/router": 2.5}, 2.9, busy=0.99), "router"),
        (cpu(2, {"mongos1": 2}, 3.9, busy=0.99), None),  # the servers use most: that is what is measured
        (cpu(1, {}, 1, busy=0.99), "host"),
    ],
)
def test_the_limit_is_named(figures: dict[str, Any], limit: str | None) -> None:
    assert client_side_limit(figures) == limit


def test_a_rate_between_samples_lies_on_the_line() -> None:
    counter = CounterSamples()
    for now, value in ((10, 0), (12, 4), (14, 4)):
        counter.add(now, value)
    assert counter.rate(11, 12) == pytest.approx(2)
    assert counter.rate(12, 14) == 0
    assert counter.rate(11, 13) == pytest.approx(1)
    assert CounterSamples().rate(0, 1) == 0

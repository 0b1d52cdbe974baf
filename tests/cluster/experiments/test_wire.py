"""wire-compression at tiny scale: what one process has compressed another has opened."""

import pytest

from tests.cluster.experiments.conftest import Published

pytestmark = pytest.mark.cluster


@pytest.mark.long
@pytest.mark.experiment("wire-compression")
def test_bytes_before_and_after_add_up_and_a_narrow_link_is_narrow(published: Published) -> None:
    relay = {"kind": "relay", "delay_ms": 5, "rate_mbps": 4}
    settings = {
        "matrix": {
            "zip": {
                "topology.network.compressors": [["snappy"], ["zstd"]],
                "workload.0.measure.client_compressors": [[], ["zstd"]],
                "workload.0.measure.link": [{"kind": "none"}, relay],
                # The link of loopback leads to servers that want a login and speak TLS.
                "topology.security.authorization": [False, True],
                "topology.security.tls": [False, True],
            }
        },
        "topology.shards.members": 1,
        "workload.0.measure.seconds_long": 4,
        "order.policy": "sequential",
    }
    results, _ = published.run(settings)
    plain, narrow = (result["phases"][0] for result in results)
    rows = [row for row in plain["table"]["rows"] if row[1] == "snappy"]
    assert {row[0] for row in rows} >= {"mongos1/router", "shard01", "shard02"}
    for phase in (plain, narrow):
        assert sum(row[2] for row in phase["table"]["rows"]) == phase["counters"]["bytes before compression"]
        assert phase["counters"]["documents"] == 100 * phase["latency"]["INSERT"]["count"]
    # Compressed by one, opened by the other; between the readings of two processes a heartbeat may pass.
    assert sum(row[3] for row in rows) == pytest.approx(sum(row[4] for row in rows), rel=0.05)
    assert sum(row[2] for row in rows) == pytest.approx(sum(row[5] for row in rows), rel=0.05)
    router = next(row for row in rows if row[0] == "mongos1/router")
    inserted = 1000 * plain["counters"]["documents"]
    assert inserted < router[2] < 1.3 * inserted
    assert 3 < router[6] < 6  # four fifths of the padding repeat themselves
    # 4 Mbit/s are 500,000 bytes/s in each direction.
    entry = [row for row in narrow["table"]["rows"] if row[0] == "mongos1"]
    assert [row[1] for row in entry] == ["zstd"]
    carried = narrow["counters"]["bytes to the server"]
    assert 0 < carried <= 500_000 * (narrow["ended"] - narrow["started"]) * 1.2
    assert entry[0][4] <= carried
    assert entry[0][5] > 2 * entry[0][4]
    assert "no real network" in narrow["notes"]["link"]

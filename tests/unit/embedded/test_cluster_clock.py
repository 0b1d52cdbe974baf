"""The clocks of replies: a replica set member's replaced by those of a mongos."""

from typing import Any

import bson
import pytest
from bson import Int64, Timestamp
from hypothesis import given

from microshard.embedded import wire
from microshard.embedded.cluster_clock import ClusterClock
from tests.unit.embedded.test_wire import DOCUMENTS


def _times(cluster: int, operation: int) -> dict[str, Any]:
    signature = {"hash": bytes(20), "keyId": Int64(0)}
    return {
        "$clusterTime": {"clusterTime": Timestamp(cluster, 2), "signature": signature},
        "operationTime": Timestamp(operation, 2),
    }


def _member(document: dict[str, Any], cluster: int) -> dict[str, Any]:
    """A member's reply; the log of a router mongod stays behind the cluster's time."""
    return {**document, "ok": 1.0, "lastCommittedOpTime": Timestamp(3, 1), **_times(cluster, 1)}


@given(DOCUMENTS)
def test_a_members_reply_becomes_that_of_a_mongos(document: dict[str, Any]) -> None:
    body = bson.encode(_member(document, 9))
    expected = bson.encode({**document, "ok": 1.0, **_times(9, 9)})
    message = wire.build(body, request_id=4, response_to=5)
    assert ClusterClock().relay(message) == wire.build(expected, request_id=4, response_to=5)
    assert ClusterClock().stamp(body) == expected


@given(DOCUMENTS)
def test_another_message_is_relayed_as_it_is(document: dict[str, Any]) -> None:
    message = wire.build(bson.encode(document))
    assert ClusterClock().relay(message) == message


@pytest.mark.parametrize(("seen", "newest"), [([], None), ([4], 4), ([4, 9, 6], 9)])
def test_a_reply_of_its_own_has_the_newest_time_seen(seen: list[int], newest: int | None) -> None:
    clock = ClusterClock()
    for time in seen:
        clock.relay(wire.build(bson.encode(_member({}, time))))
    times = {} if newest is None else _times(newest, newest)
    assert bson.decode(clock.stamp(bson.encode({"ok": 1.0}))) == {"ok": 1.0, **times}

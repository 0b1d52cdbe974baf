"""An initial sync as its member reports it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from microshard.workloads.sync_progress import SyncAttempt, final_statistics


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def test_a_later_sync_is_distinguished_from_this_one() -> None:
    sync = SyncAttempt()
    first, later = ({"initialSyncStatus": {"initialSyncStart": at(second)}} for second in (1, 2))
    assert not sync.is_older_than(first)
    sync.update(first, 0.0)
    assert not sync.is_older_than(first)
    assert not sync.is_older_than({})
    assert sync.is_older_than(later)


def test_stages_sum_up_to_the_whole_time() -> None:
    entry = {"start": at(12), "end": at(17), "documentsCopied": 50, "approxBytesCopied": 500, "indexes": 2}
    report: dict[str, Any] = {"initialSyncStart": at(11), "databases": {"lab": {"lab.data": entry}}, "appliedOps": 7}
    sync = SyncAttempt()
    sync.update({"initialSyncStatus": report | {"databases": {"lab": {"lab.data": entry | {"end": at(30)}}}}}, 15.0)
    sync.update({"initialSyncStatus": report | {"initialSyncEnd": at(19)}}, 18.0)
    stages = {stage.name: stage.seconds for stage in sync.stages(10.0, 20.0)}
    assert stages == pytest.approx({
        "join the set": 1, "list collections": 1, "clone": 3, "finish indexes": 2, "apply oplog": 2,
        "become SECONDARY": 1,
    })  # fmt: skip


def test_the_last_statistics_of_a_log_are_found() -> None:
    lines = ['{"id":21192,"attr":{"statistics":{"appliedOps":%d}}}' % n for n in (1, 2)]  # noqa: UP031 - braces
    assert final_statistics([*lines, "{}"]) == {"appliedOps": 2}
    assert final_statistics(["{}", '{"id":21192,"attr":']) == {}


def test_the_share_is_of_bytes_or_of_documents_where_a_server_reports_no_bytes() -> None:
    entry = {"start": at(12), "documentsCopied": 50}
    report: dict[str, Any] = {"databases": {"lab": {"lab.data": entry}}}  # as MongoDB 4.4.2
    sync = SyncAttempt()
    sync.update({"initialSyncStatus": report}, 15.0)
    assert sync.share(200) == 0.25
    sync.update({"initialSyncStatus": report | {"approxTotalDataSize": 1000, "approxTotalBytesCopied": 600}}, 16.0)
    assert sync.share(200) == 0.6

"""The decoder of FTDC against what a real mongod says its samples were."""

import os
import signal
import tarfile
import time
from pathlib import Path

import pytest

from microshard.analysis import ftdc
from tests.cluster.workloads.mongods import start_mongod, stop_mongod

pytestmark = pytest.mark.cluster

EVERY_MS = 100


def test_every_number_of_a_sample_is_what_get_diagnostic_data_said(tmp_path: Path) -> None:
    """And what the whole says: a mongod that was stopped twice for a while, and its longest checkpoint."""
    options = [f"diagnosticDataCollectionPeriodMillis={EVERY_MS}", "diagnosticDataCollectionSamplesPerChunk=20"]
    mongod = start_mongod(tmp_path / "shard01", *(word for each in options for word in ("--setParameter", each)))
    said: dict[int, dict[str, int]] = {}
    with mongod.client() as client:
        client.admin.command("setParameter", 1, diagnosticDataCollectionEnabled=True)
        end = time.monotonic() + 5
        while time.monotonic() < end:
            client["test"]["things"].insert_one({"text": "x" * 100})
            reply = client.admin.command("getDiagnosticData", codec_options=ftdc.OPTIONS)["data"]
            if reply:
                said[int(reply["start"])] = dict(ftdc.numbers(reply))
            time.sleep(0.03)
        client.admin.command("fsync")
        stopped = [_stop(mongod.pid(), seconds) for seconds in (5, 4)]
    mongod.process.terminate()
    mongod.process.wait(30)
    archive = tmp_path / f"shard01{ftdc.SUFFIX}"
    with tarfile.open(archive, "w:gz") as file:
        file.add(tmp_path / "shard01/data/diagnostic.data", arcname="shard01/diagnostic.data")
    stop_mongod(mongod)

    files = ftdc.read_archive(archive)
    compared = 0
    for data in files:
        for chunk in ftdc.chunks(data):
            columns = ftdc.samples(chunk)
            for row, start in enumerate(columns["start"]):
                if start in said:
                    assert {name: column[row] for name, column in columns.items()} == said[start]
                    compared += 1
    assert compared >= 20
    assert compared >= 0.9 * len(said), "the samples it has not kept are those since the last chunk"

    found = ftdc.summarise(files)
    assert found is not None
    assert [gap.seconds for gap in found.standstills] == pytest.approx([5, 4], abs=1)
    assert [gap.began for gap in found.standstills] == pytest.approx(stopped, abs=1)
    assert found.checkpoint_longest > 0
    assert 0 < found.dirty_share_max < 1


def _stop(pid: int, seconds: float) -> float:
    """When the process was stopped; it goes on after so many seconds."""
    stopped = time.time()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)
    time.sleep(1)
    return stopped


def test_files_that_are_torn_or_no_ftdc_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    assert ftdc.summarise([]) is None
    assert ftdc.summarise([b"", b"\x00\x01", b"\xff" * 100]) is None
    (tmp_path / "torn.tar.gz").write_bytes(b"\x1f\x8b\x08torn")
    assert ftdc.read_archive(tmp_path / "torn.tar.gz") == []
    assert ftdc.read_archive(tmp_path / "none.tar.gz") == []
    with pytest.raises(ftdc.FtdcError):
        ftdc.samples(b"\x00\x00\x00\x00no zlib")

"""The list of runs beside a run that is being executed."""

import shutil
import threading
from pathlib import Path

import pytest

from microshard.model.run_records import BackendRecord, JournalEvent
from microshard.records.run_folder import RunFolder, write_json
from microshard.run import catalog
from microshard.run.catalog import summary


def test_a_run_whose_files_come_and_go_is_listed(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "sample")
    (run / "kept").write_bytes(b"x" * 100)
    least = summary(run, lambda _: False).bytes
    over = threading.Event()

    def deploy_and_tear_down() -> None:
        number = 0
        while not over.is_set():
            number = (number + 1) % 7
            data = run / "deployments" / f"p{number}" / "shard01" / "data"
            data.mkdir(parents=True)
            (data / "file").write_bytes(b"x" * 10)
            shutil.rmtree(run / "deployments" / f"p{number}")

    thread = threading.Thread(target=deploy_and_tear_down)
    thread.start()
    try:
        sizes = {summary(run, lambda _: False).bytes for _ in range(300)}
    finally:
        over.set()
        thread.join()
    assert sizes <= {least, least + 10}


@pytest.mark.parametrize(
    ("events", "processes", "state"),
    [
        ([], False, "aborted"),
        (["run started"], True, "orphaned"),
        (["up"], True, "up"),
        (["up"], False, "not running"),
        (["up"], None, "up"),
        (["kept", "run ended"], False, "not running"),
        (["up", "member added"], True, "up"),
        (["kept", "run ended"], True, "up"),
        (["up", "down"], False, "down"),
        (["run ended"], False, "failed in part"),
        (["run ended", "resumed"], True, "orphaned"),
        (["run ended", "resumed"], False, "aborted"),
    ],
)
def test_the_state_of_a_run(tmp_path: Path, events: list[str], processes: bool | None, state: str) -> None:
    run = RunFolder.create(tmp_path, "sample")
    for event in events:
        run.journal.append(JournalEvent(event, exit_code=3 if event == "run ended" else None))
    assert catalog.state(run, processes=processes) == state
    with run.lock():
        assert catalog.state(run, processes=processes) == "running"


def test_servers_on_other_hosts_are_not_called_dead_by_a_list_that_asks_no_host(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "sample")
    run.journal.append(JournalEvent("up", point="p01"))
    assert summary(run, lambda _: False).state == "not running"
    write_json(run / "backend.json", BackendRecord("hosts"))
    assert summary(run, lambda _: False).state == "up"


def test_a_step_that_failed_is_not_counted_as_measured_and_one_taken_again_only_once(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "sample")
    (run / "results" / "p01").mkdir(parents=True)
    for name in ("r1", "r1-2", "r2"):
        (run / "results" / "p01" / f"{name}.json").write_text("{}")
    for name in ("r1", "r1-2"):
        run.journal.append(JournalEvent("step done", step=0, point="p01", name=name))
    assert summary(run, lambda _: False).done == 1

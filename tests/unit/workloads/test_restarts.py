"""What an engine asks of the play, and what it makes of the answers."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from microshard.model.job import Job, JobPoint, JobStep, ProcessInfo
from microshard.workloads import restarts
from microshard.workloads.base import Context, PhaseError, ProgressFile


def process(name: str, host: str, role: str = "shard") -> ProcessInfo:
    return ProcessInfo(name, role, f"{host}:27018", "/data", "/pid", host)


PROCESSES = (process("shard01", "host1"), process("shard02", "host2"), process("mongos1", "host1", "mongos"))


def context(folder: Path | None) -> Context:
    point = JobPoint("p01", 2, "sharded", 2, PROCESSES, (), {})
    return Context(Job("mongodb://host1/", point, (), JobStep("r1", "measure", restarts=1)), ProgressFile(None), folder)


@contextmanager
def play(folder: Path, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Answers the requests of an engine by the files of docs/contracts.md; the requests."""
    requests: list[dict[str, Any]] = []
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            path = folder / "restarts" / f"request-{len(requests) + 1}.json"
            if path.exists():
                requests.append(json.loads(path.read_text()))
                path.with_name(f"answer-{len(requests)}.json.new").write_text(json.dumps(answer(requests[-1])))
                path.with_name(f"answer-{len(requests)}.json.new").replace(
                    path.with_name(f"answer-{len(requests)}.json")
                )
            time.sleep(0.002)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield requests
    finally:
        over.set()
        thread.join()


def test_asks_are_numbered_and_each_has_its_own_answer(tmp_path: Path) -> None:
    looks = []
    with play(
        tmp_path, lambda ask: {"page_cache": {"host1": f"{ask['restart']}", "host2": None}, "error": ""}
    ) as requests:
        first = restarts.request_restart(context(tmp_path), PROCESSES[:1], drop_page_cache=True)
        second = restarts.request_restart(
            context(tmp_path), PROCESSES[1:2], kill=True, meanwhile=lambda: looks.append(1)
        )
    assert [first, second] == [{"host1": "['shard01']"}, {"host1": "['shard02']"}]
    assert requests == [
        {"restart": ["shard01"], "kill": False, "drop_page_cache": True},
        {"restart": ["shard02"], "kill": True, "drop_page_cache": False},
    ]
    assert looks, "what goes on meanwhile was looked at"


def test_what_could_not_be_done_fails_the_phase_in_the_words_of_the_play(tmp_path: Path) -> None:
    with (
        play(tmp_path, lambda _: {"error": "shard02 (mongod, host2:27018) ended with exit code 1"}),
        pytest.raises(PhaseError, match=r"^shard02 \(mongod, host2:27018\) ended with exit code 1$") as caught,
    ):
        restarts.request_restart(context(tmp_path), PROCESSES[:2])
    assert caught.value.kind == "DoesNotStart"


def test_an_engine_that_nobody_answers_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "REQUEST_SECONDS", 0.05)
    with pytest.raises(PhaseError, match="shard01, shard02 were not restarted") as caught:
        restarts.request_restart(context(tmp_path), PROCESSES[:2])
    assert caught.value.kind == "NotAnswered"
    with pytest.raises(PhaseError, match="cannot request"):
        restarts.request_restart(context(None), PROCESSES[:2])


@pytest.mark.parametrize(
    ("page_cache", "words"),
    [
        ({"host1": "dropped", "host2": "dropped"}, "page cache dropped"),
        (dict.fromkeys(("host1", "host2"), "not dropped (not root)"), "page cache not dropped (not root)"),
        (
            {"host1": "dropped", "host2": "not dropped (not root)"},
            "page cache dropped on host1, page cache not dropped (not root) on host2",
        ),
        ({"host2": "dropped"}, "page cache not dropped (no answer) on host1, page cache dropped on host2"),
    ],
)
def test_a_cold_cache_is_said_to_be_so_only_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_cache: dict[str, str], words: str
) -> None:
    monkeypatch.setattr(restarts, "is_ready", lambda _: True)
    with play(tmp_path, lambda _: {"page_cache": page_cache, "error": ""}) as requests:
        assert restarts.empty_caches(context(tmp_path)) == f"mongods restarted, {words}"
    assert [ask["restart"] for ask in requests] == [["shard01", "shard02"]], "no mongos"


def test_a_mongod_that_takes_no_part_again_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "is_ready", lambda info: info.name == "shard01")
    monkeypatch.setattr(restarts, "START_SECONDS", 0.05)
    with play(tmp_path, lambda _: {}), pytest.raises(PhaseError, match="shard02 was not ready"):
        restarts.empty_caches(context(tmp_path))

"""Processes of a run on this machine that died are named with the end of their logs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from microshard.backends.local_processes import missing
from microshard.records.run_folder import RunFolder


def test_a_process_that_died_is_named_with_the_error_before_its_backtrace(tmp_path: Path) -> None:
    error = {"s": "E", "c": "STORAGE", "msg": "WiredTiger error", "attr": {"message": "No space left on device"}}
    lines = [json.dumps(error), *[json.dumps({"s": "I", "msg": "Frame"})] * 100]
    (tmp_path / "mongod.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    dead = [
        SimpleNamespace(name=name, endpoint="127.0.0.1:27018", config_path=f"{name}.conf", log_path=log)
        for name, log in (("shard01", "mongod.log"), ("shard02", "none.log"))
    ]
    point: Any = SimpleNamespace(processes=dead)
    first, second = missing(RunFolder(tmp_path), point)
    assert first.startswith("shard01 (127.0.0.1:27018) is not running")
    assert "No space left on device" in first
    assert second.startswith("shard02")
    assert "no log" in second

"""Waiting for servers."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from microshard.hostlib import mongo_server
from microshard.hostlib.errors import HostError


def planned(folder: Path, name: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    config = str(folder / f"{name}.conf")
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", config])
    (folder / name).write_text(f"{process.pid}\n", encoding="ascii")
    return process, {"name": name, "pid_path": str(folder / name), "config_path": config}


def test_waiting_ends_when_a_process_that_ran_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mongo_server, "CHECK_EVERY", 0.0)
    config, shard = planned(tmp_path, "config1"), planned(tmp_path, "shard01")
    elsewhere = {"name": "elsewhere", "pid_path": "/absent/pid", "config_path": "/absent/mongod.conf"}
    try:
        time.sleep(0.2)  # until both are Python with these arguments
        deadline = mongo_server.Deadline(60, processes=[config[1], shard[1], elsewhere])
        deadline.pause("no primary")
        config[0].kill()
        config[0].wait()
        with pytest.raises(HostError, match="no primary, and config1 does not run any more"):
            deadline.pause("no primary")
    finally:
        for process, _ in (config, shard):
            process.kill()
            process.wait()

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from microshard.backends import local_processes
from microshard.hostlib.proc import LiveProcess
from microshard.records.run_folder import RunFolder, find_runs

STANDALONE = {"kind": "standalone", "storage": {"cache": {"policy": "host_total_mb", "value": 256}}}
MICROSHARD = str(Path(sys.executable).with_name("microshard"))


def definition(**changes: Any) -> dict[str, Any]:
    """A sharded experiment small enough for a test."""
    base: dict[str, Any] = {
        "microshard": 1,
        "name": "tiny",
        "topology": {
            "kind": "sharded",
            "storage": {"block_compressor": "zlib", "cache": {"policy": "host_total_mb", "value": 256}},
            "collections": [
                {"namespace": "vosa.mot_results", "shard_key": {"_id": 1}, "presplit": {"policy": "key_ranges"}}
            ],
        },
        "workload": [
            {"load": {"engine": "insert", "documents": 20000, "seed": 7}},
            {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 2}},
        ],
        "matrix": {"topology.shards.count": [1, 2]},
        "repetitions": 2,
        "order": {"seed": 1},
    }
    return base | changes


class Cli:
    """The command line in a folder of its own."""

    seconds = 300.0  # that a command may take

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"

    def write(self, experiment: dict[str, Any] | None = None, **changes: Any) -> Path:
        """An experiment, by default the one of `definition` with these changes."""
        path = self.folder / "experiment.yml"
        path.write_text(json.dumps(experiment or definition(**changes)), encoding="utf-8")  # JSON is YAML
        return path

    def command(self, words: Sequence[str | Path]) -> list[str]:
        return [MICROSHARD, *map(str, words), "--runs-dir", str(self.runs)]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "COLUMNS": "200"}

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(arguments),
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
        )

    def run(self, *arguments: str | Path, timeout: float | None = None) -> tuple[int, str]:
        process = self.start(*arguments)
        try:
            output, _ = process.communicate(timeout=timeout or self.seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=60)
            pytest.fail(f"microshard {arguments} did not end:\n{output}")
        return process.returncode, output

    @property
    def folders(self) -> list[RunFolder]:
        return find_runs(self.runs)

    def running(self) -> list[LiveProcess]:
        return [process for folder in self.folders for process in local_processes.running(folder)]

    def results(self) -> dict[str, dict[str, Any]]:
        (folder,) = self.folders
        return {
            f"{path.parent.name}/{path.stem}": json.loads(path.read_text())
            for path in sorted(folder.path.glob("results/*/*.json"))
        }

    def wait_for(self, what: Callable[[], Any], seconds: float = 90) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError, IndexError):
                value = what()
                if value:
                    return value
            time.sleep(0.02)
        pytest.fail("what the test waits for did not come")

    def pid_of(self, point: str, process: str) -> int:
        return int((self.folders[0] / "deployments" / point / process / "pid").read_text())


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    tool = Cli(tmp_path)
    yield tool
    for folder in tool.folders:
        local_processes.clean(folder)

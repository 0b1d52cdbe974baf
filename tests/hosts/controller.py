"""The command line beside a bed of machines, and experiments small enough for it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.records.run_folder import RunFolder, find_runs
from tests.cluster.run.conftest import definition
from tests.hosts.bed import Bed, Machine

MICROSHARD = Path(sys.executable).with_name("microshard")


def small(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "infrastructure": {"shard_hosts": {"count": 3}},
        "matrix": {"topology.shards.count": [3]},
        "repetitions": 1,
    }
    base = definition(**{**given, **changes})
    if base["topology"]["kind"] == "sharded":
        base["topology"]["shards"] = {"members": 2}
        base["topology"]["storage"]["cache"]["value"] = 128
    return base


class Controller:
    """The command line on a bed's network."""

    def __init__(self, bed: Bed, folder: Path, inventory: Path | None = None) -> None:
        self.bed, self.folder, self.runs = bed, folder, folder / "runs"
        self.inventory = inventory or bed.inventory
        self.file = folder / "experiment.yml"

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.bed.inside([MICROSHARD, *words, "--runs-dir", self.runs]),
            cwd=self.folder,
            env={**os.environ, "COLUMNS": "200"},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, *words: str | Path, patience: float = 280) -> tuple[int, str]:
        process = self.start(*words)
        try:
            said, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=60)
            pytest.fail(f"microshard {words} did not end:\n{said}")
        return process.returncode, said

    def write(self, experiment: dict[str, Any]) -> Path:
        self.file.write_text(json.dumps(experiment))
        return self.file

    def left(self) -> list[str]:
        """What of runs is on the machines that can be reached."""
        found = []
        for machine in self.bed.machines:
            done = self.bed.ssh(machine, "ls -d /var/lib/microshard/*-* 2>/dev/null; pgrep -a mongo")
            found += [f"{machine.name}: {line}" for line in done.stdout.splitlines()]
        return found


def one_point_lost(controller: Controller, process: subprocess.Popen[str], words: str) -> RunFolder:
    """The run whose first point failed with host3, in these words, and whose second one did not; its folder."""
    said, _ = process.communicate(timeout=360)
    assert process.returncode == 5, said  # what is on the lost host could not be removed, and is reported
    assert "left behind: host3: " in said
    (folder,) = find_runs(controller.runs)
    journal = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    (failed,) = [entry for entry in journal if entry["event"] == "point failed"]
    assert failed["point"] == "p01"
    assert words in failed["message"]
    assert json.loads((folder / "results" / "p02" / "r1.json").read_text())["valid"], said
    return folder


@contextlib.contextmanager
def gone(lab: Bed, machine: Machine, how: str) -> Iterator[Callable[[], None]]:
    """A way to lose a machine, which is back afterwards."""
    try:
        yield machine.cut if how == "cut" else machine.kill
    finally:
        if how == "kill":
            lab.boot(machine)
        else:
            machine.join()

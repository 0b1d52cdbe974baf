"""The command line beside a bed of machines, and experiments small enough for it."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from microshard.records.run_folder import RunFolder, find_runs
from tests.cluster.run.conftest import Cli, definition
from tests.hosts.bed import Bed, Machine

ANSIBLE_PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")


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


class Controller(Cli):
    """The command line on a bed's network."""

    def __init__(self, bed: Bed, folder: Path, inventory: Path | None = None) -> None:
        super().__init__(folder)
        self.bed = bed
        self.inventory = inventory or bed.inventory

    def command(self, words: Sequence[str | Path]) -> list[str]:
        return self.bed.inside(super().command(words))

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

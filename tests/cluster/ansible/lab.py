"""Plays as the runner calls them: a subprocess, its events on an inherited file descriptor."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from microshard.embedded.binary import find_mongod
from tests.cluster.ansible import points

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
RUN_VARIABLES = ROOT / "playbooks" / "group_vars" / "all.yml"  # for plays that are not in playbooks/


@dataclass
class Played:
    """What a play did."""

    code: int
    events: list[dict[str, Any]]
    output: str

    @property
    def changed(self) -> int:
        """Tasks that changed something."""
        return sum(event.get("status") == "changed" for event in self.events)

    @property
    def failure(self) -> str:
        """Messages of the failed tasks."""
        return "\n".join(event["message"] for event in self.events if event.get("status") == "failed")


class Lab:
    """A run's folder with one point, and the plays on it."""

    def __init__(self, folder: Path, layout: points.Layout) -> None:
        self.folder = folder
        self.point = points.point(layout, folder)
        self.mongod = find_mongod(None)
        points.write(
            folder / "run.json", {"microshard": "0.1.0", "run_id": folder.name, "experiment": "", "created": 0}
        )
        (folder / "tmp").mkdir(exist_ok=True)
        self.variables = points.variables(self.point, folder, self.mongod, BIN / "mongos", Path(sys.executable))

    @property
    def _events_path(self) -> Path:
        return self.folder / "tmp" / "events.jsonl"

    @property
    def deployment(self) -> Path:
        """Where the point's processes live."""
        return self.folder / "deployments" / "p01"

    def play(self, name: str, *arguments: str) -> Played:
        """Run a playbook with the point's variables; `name` may also be a path."""
        started = self.begin(name, *arguments)
        output, _ = started.communicate()
        events = [json.loads(line) for line in self._events_path.read_text(encoding="utf-8").splitlines()]
        return Played(started.returncode, events, output)

    def begin(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a playbook, in a process group of its own as the runner does."""
        vars_path = points.write(self.folder / "points" / "p01" / "vars.json", self.variables)
        playbook = ROOT / "playbooks" / f"{name}.yml" if "/" not in name else Path(name)
        temporary = str(self.folder / "tmp")
        environment = {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": temporary,
            "ANSIBLE_LOCAL_TEMP": temporary,
            "ANSIBLE_REMOTE_TEMP": temporary,
            "ANSIBLE_NOCOLOR": "1",
        }
        with self._events_path.open("wb") as events:
            return subprocess.Popen(
                self.wrapped([BIN / "ansible-playbook", playbook, "-e", f"@{vars_path}", *arguments]),
                cwd=ROOT,
                env=os.environ | environment | {"MICROSHARD_EVENTS_FD": str(events.fileno())},
                pass_fds=(events.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def wrapped(self, command: list[Any]) -> list[Any]:
        """The command line as it is started; elsewhere, for example, on another network."""
        return command

    def succeed(self, name: str, *arguments: str) -> Played:
        """The same, and it must succeed."""
        played = self.play(name, *arguments)
        assert played.code == 0, played.output
        return played

    def client(self, process: str | None = None) -> MongoClient[dict[str, Any]]:
        """A client of the point, or of one of its processes."""
        if process is None:
            return MongoClient(self.point.connection_string, serverSelectionTimeoutMS=10_000)
        endpoint = next(p.endpoint for p in self.point.processes if p.name == process)
        return MongoClient(f"mongodb://{endpoint}/", directConnection=True, serverSelectionTimeoutMS=5_000)

    def alive(self) -> dict[int, str]:
        """State letters, by pid, of the processes whose command line names the deployment."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.fsencode(self.deployment) in (entry / "cmdline").read_bytes():
                    found[int(entry.name)] = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            except OSError:
                continue
        return found


MakeLab = Callable[[points.Layout], Lab]

"""A run as it is seen from outside: its processes by the kernel, its stage by what runs, what it has left."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microshard.hostlib import emulated_volumes as loops
from microshard.records.run_folder import RunFolder, find_runs

MICROSHARD = str(Path(sys.executable).with_name("microshard"))
MARK = "MICROSHARD_FAULTS"  # every process of a campaign inherits it: nothing can hide from the search for leftovers


def words(pid: int) -> list[str]:
    """The command line of a process; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def state(pid: int) -> str:
    """R, S, D, T (stopped), Z …; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    """Of every thread of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found


def below(pid: int) -> Iterator[int]:
    """All processes below one."""
    for child in children(pid):
        yield child
        yield from below(child)


def marked(token: str) -> list[int]:
    """Every living process that was started by the campaign, directly or not, but the campaign itself."""
    wanted = f"{MARK}={token}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                entry.name.isdigit()
                and int(entry.name) != os.getpid()
                and wanted in (entry / "environ").read_bytes().split(b"\0")
                and state(int(entry.name)) not in {"", "Z"}
            ):
                found.append(int(entry.name))
    return found


def listens(pid: int) -> bool:
    """Whether a line of ours has run in a process, which answers signals: Python sets nothing up for SIGTERM.

    Before, while Python starts and imports our first file, it answers SIGINT with a traceback, and now and then drops
    it: what is raised in its import locks' callbacks is ignored (3 of 1,200 sent in that time).
    """
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


@dataclass
class Watched:
    """A command that executes a run, as a process of ours."""

    arguments: tuple[str, ...]
    folder: Path  # where it is called
    token: str
    run: RunFolder | None = None  # known from the start when it is taken up again
    process: subprocess.Popen[str] = field(init=False)
    journal_at: int = 0  # bytes of the journal that are of earlier processes
    engines: set[int] = field(default_factory=set)  # ansible-playbooks whose engine was seen

    def __post_init__(self) -> None:
        self.runs = self.folder / "runs"
        self.known = {run.run_id for run in find_runs(self.runs)}
        if self.run is not None and self.run.journal.path.exists():
            self.journal_at = self.run.journal.path.stat().st_size
        self.log = (self.folder / "output.log").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [MICROSHARD, *self.arguments, "--runs-dir", str(self.runs)],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "200", MARK: self.token},
        )

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def said(self) -> str:
        """What it printed."""
        self.log.flush()
        return Path(self.log.name).read_text(encoding="utf-8", errors="replace")

    def found_run(self) -> RunFolder | None:
        """The run's folder, once it is there."""
        if self.run is None:
            new = [run for run in find_runs(self.runs) if run.run_id not in self.known]
            self.run = new[0] if new else None
        return self.run

    def events(self) -> list[str]:
        """What this process has written into the journal so far."""
        run = self.found_run()
        if run is None or not run.journal.path.exists():
            return []
        with run.journal.path.open("rb") as file:
            file.seek(self.journal_at)
            lines = file.read().decode(errors="replace").splitlines()
        found = []
        for line in lines:
            with contextlib.suppress(ValueError, AttributeError):
                found.append(str(json.loads(line).get("event")))
        return found

    def ansible(self) -> tuple[int, str] | None:
        """The fork of Ansible that executes a playbook, and the name of that."""
        for server in self.ansible_server():
            for pid in children(server):
                with contextlib.suppress(OSError):
                    name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
                    if name != Path(f"/proc/{server}/comm").read_text(encoding="utf-8").strip():
                        return pid, name
        return None

    def ansible_server(self) -> list[int]:
        """The process that has Ansible imported, if there is one."""
        return [pid for pid in children(self.process.pid) if "microshard.run.ansible_server" in words(pid)]

    def engine(self) -> int | None:
        """The process that loads or measures."""
        playbook = self.ansible()
        for pid in below(playbook[0]) if playbook else ():
            if "microshard.workloads" in words(pid):
                self.engines.add(playbook[0] if playbook else 0)
                return pid
        return None

    def stage(self) -> str:
        """What it does now."""
        events = self.events()
        if "run started" not in events:
            return "prepare"
        if "run ended" in events:
            return "report"
        playbook = self.ansible()
        if playbook is None:
            return "between"
        pid, name = playbook
        if name != "measure":
            return name
        if self.engine() is None:
            return "pause" if pid in self.engines else "unpause"
        return "load" if self._phase().startswith("load") else "measure"

    def _phase(self) -> str:
        assert self.run is not None
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = (self.run / "tmp" / "progress.jsonl").read_text(encoding="utf-8").splitlines()
            return str(json.loads(lines[-1]).get("phase", ""))
        return "load" if '"deploy": true' in self._job() else ""

    def _job(self) -> str:
        assert self.run is not None
        jobs = sorted(self.run.path.glob("points/*/vars.json"), key=lambda path: path.stat().st_mtime)
        return jobs[-1].read_text(encoding="utf-8") if jobs else ""

    def servers(self, prefix: str) -> list[int]:
        """Processes of the deployments whose names begin so, but not those that wait for their turn."""
        run = self.found_run()
        if run is None:
            return []
        found: list[int] = []
        files: list[Path] = []
        with contextlib.suppress(FileNotFoundError):  # what is torn down meanwhile has no servers
            files += run.path.glob(f"deployments/*/{prefix}*/pid")
        for file in files:
            with contextlib.suppress(OSError, ValueError):
                pid = int(file.read_text(encoding="ascii"))
                if any(str(run.path) in word for word in words(pid)) and state(pid) not in {"", "T", "Z"}:
                    found.append(pid)
        return found

    def close(self) -> None:
        """No more of its output is needed."""
        self.log.close()


def whole_results(run: RunFolder) -> dict[str, bytes]:
    """Point/name → the bytes of every result the journal calls done."""
    found = {}
    for record in run.journal.records():
        if record.event == "step done":
            name = f"{record.point}/{record.name}"
            found[name] = (run / "results" / f"{name}.json").read_bytes()
    return found


def answers(run: RunFolder) -> dict[str, list[Any]]:
    """Point/repetition → the answers of its phases, and what was counted after loading.

    An attempt that broke a gate and was followed by another does not count: a fault may well break one. A repetition
    with two that hold was measured twice, and then both are named.
    """
    attempts: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for name, data in whole_results(run).items():
        result = json.loads(data)
        attempts.setdefault(f"{result['point']}/r{result['repetition']}", []).append((name, result))
    found = {}
    for repetition, taken in attempts.items():
        taken.sort(key=lambda one: int(one[1]["attempt"]))
        counted = [one for one in taken[:-1] if one[1]["valid"]] + taken[-1:]
        for name, result in counted:
            found[repetition if len(counted) == 1 else name] = [
                phase.get("answer_sha256") or phase.get("counters", {}).get("documents")
                for phase in result["phases"]
                if phase["kind"] == "measure"
            ]
    return found


def left(run: RunFolder | None, token: str, patience: float = 5.0) -> list[str]:
    """What is there of a run that should not be, one sentence each. Processes are given a moment to end.

    Ports and network namespaces go with the processes that have them, so there is nothing else to look for.
    """
    deadline = time.monotonic() + patience
    while (pids := marked(token)) and time.monotonic() < deadline:
        time.sleep(0.05)
    found = [f"process {pid}: {' '.join(words(pid))[:200]}" for pid in pids]
    if run is None:
        return found
    found += [f"folder {name}" for name in ("deployments", "tmp", "secrets") if (run / name).exists()]
    found += [f"mount {at}" for at in loops.mounts_below(run.path.resolve())]
    found += [f"loop device {loop.device}" for loop in loops.loop_devices(run.path.resolve())]
    return found

"""The YCSB processes of this host: started, watched, stopped together."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from microshard.hostlib.lifetime import die_with_parent
from microshard.workloads.base import PhaseError
from microshard.workloads.ycsb.java import Tools
from microshard.workloads.ycsb.properties import Client, as_file

STOP_SECONDS = 15.0  # from SIGTERM to the report; then SIGKILL
STOPPED = 128 + signal.SIGTERM  # exit code of a JVM that was asked to end
_REFUSED = re.compile(r"^(?:ycsb-mongodb: |Exception in thread|Error: |.*[a-z]Exception: )", re.MULTILINE)
_FAILED = re.compile(r"^ycsb-mongodb: (\S+ failed with .*)$", re.MULTILINE)


@dataclass(slots=True)
class Running:
    """A client that was started. Its files begin with `prefix`."""

    client: Client
    prefix: Path
    process: subprocess.Popen[bytes]
    asked_to_end: bool = False

    @property
    def name(self) -> str:
        """For people and for files."""
        return f"client{self.client.number}"

    @property
    def words(self) -> str:
        """Its standard error so far."""
        return self.prefix.with_name(f"{self.prefix.name}.err").read_text(encoding="utf-8", errors="replace")

    def is_ready(self) -> bool:
        """Whether it is connected and waits for its start."""
        return "ycsb-mongodb: ready" in self.words

    def first_failure(self) -> str | None:
        """What the binding said about the first failed operation; None when none failed."""
        match = _FAILED.search(self.words)
        return match[1] if match else None

    def death(self) -> str | None:
        """How it ended too early, with what it said; None while it runs or when it ended well."""
        code = self.process.poll()
        if code is None or code == 0 or (self.asked_to_end and code in (STOPPED, -signal.SIGTERM)):
            return None
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        lines = [
            line for line in self.words.splitlines() if _REFUSED.match(line) and not line.endswith(": ready")
        ] or self.words.splitlines()[-3:]
        said = " | ".join(line.strip() for line in lines[:3]) or "it said nothing"
        return f"{self.name} (pid {self.process.pid}) {how}: {said[:1000]}"


class Clients:
    """All clients of this host in one phase."""

    def __init__(self, tools: Tools, java_options: Sequence[str], folder: Path) -> None:
        self._tools = tools
        self._java_options = java_options
        self._folder = folder
        self._secrets: list[Path] = []
        self.running: list[Running] = []

    def prefix(self, client: Client) -> Path:
        """What the names of a client's files begin with."""
        return self._folder / f"client{client.number}"

    def start(self, client: Client, properties: dict[str, str], *, load: bool) -> Running:
        """Start a client. Its properties go into a file that only we can read: a URL may hold a password."""
        prefix = self.prefix(client)
        for old in self._folder.glob(f"{prefix.name}[-.]*"):
            old.unlink()
        path = prefix.with_name(f"{prefix.name}.properties")
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(as_file(properties), encoding="ascii")
        self._secrets.append(path)
        command = [self._tools.java, *self._java_options, "-cp", self._tools.jar, "site.ycsb.Client"]
        command += ["-load" if load else "-t", "-s", "-P", str(path)]
        with (
            prefix.with_name(f"{prefix.name}.out").open("wb") as out,
            prefix.with_name(f"{prefix.name}.err").open("wb") as err,
        ):
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - nothing but an exec follows
            )
        self.running.append(Running(client, prefix, process))
        return self.running[-1]

    def check(self) -> None:
        """Raises PhaseError for the first client that died, else for the first that reports a failed operation."""
        for client in self.running:
            death = client.death()
            if death is not None:
                raise PhaseError("ClientDied", death)
        for client in self.running:
            failure = client.first_failure()
            if failure is not None:
                raise PhaseError("OperationFailed", f"{client.name}: {failure}")

    def finished(self) -> bool:
        """Whether all have ended."""
        return all(client.process.poll() is not None for client in self.running)

    def ask_to_end(self) -> None:
        """Let all end at the same time; each writes its report."""
        for client in self.running:
            if client.process.poll() is None and not client.asked_to_end:
                client.asked_to_end = True
                client.process.terminate()

    def stop(self) -> None:
        """Ask those to end that were not asked yet, and wait until all have. One that does not end is killed."""
        self.ask_to_end()
        deadline = time.monotonic() + STOP_SECONDS
        for client in self.running:
            try:
                client.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                client.process.kill()
                client.process.wait()

    def close(self) -> None:
        """Kill what still runs and remove the properties. Safe to call again."""
        for client in self.running:
            if client.process.poll() is None:
                client.process.kill()
            client.process.wait()
        for path in self._secrets:
            path.unlink(missing_ok=True)
        self._secrets.clear()

"""The project's playbooks, executed by Ansible in a process of its own, with its events coming back over a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microshard.backends.this_machine import project_root
from microshard.errors import MicroshardError
from microshard.playbooks import untrusted
from microshard.playbooks.fork_server import AnsibleProcess
from microshard.playbooks.ssh_errors import lacking, unreachable
from microshard.records.run_folder import RunFolder, write_json

Event = dict[str, Any]
Listener = Callable[[Event], None]


_INTERRUPTED = {99, 128 + signal.SIGINT}  # Ansible's own exit code (ExitCode.KEYBOARD_INTERRUPT), and ours for it


class PlaybookError(MicroshardError):
    """A playbook failed; the message is that of the task, not Ansible's."""

    def __init__(self, message: str, *, unreachable: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.unreachable = dict(unreachable or {})  # host → what ssh said


@dataclass(slots=True)
class Playbooks:
    """Runs the project's playbooks with a run's variables."""

    folder: RunFolder
    listener: Listener = lambda _event: None
    inventory: Path | None = None  # this machine's own
    remote_temp: str | None = None  # Ansible's folder on the hosts; the run's own where the host is this machine
    sockets: str | None = None  # folder of ssh's control sockets: their paths must be short
    limit: Sequence[str] = ()  # names of hosts the plays are kept to; empty: all of the inventory
    process: AnsibleProcess | None = field(default=None, init=False)
    _kept: bool = field(default=False, init=False)

    def run(self, name: str, variables: Path | None, *, limit: Sequence[str] = ()) -> None:
        """Run playbooks/NAME.yml to its end, `limit` on these hosts alone.

        Raises PlaybookError with the failed tasks' messages, its `unreachable` says which hosts could not be reached,
        and DiskError where variables or log cannot be written.
        """
        root = project_root()
        arguments = ["--inventory", str(self.inventory or root / "inventories" / "local")]
        arguments.append(str(root / "playbooks" / f"{name}.yml"))
        if variables is not None:
            arguments += ["--extra-vars", f"@{self._literal(variables)}"]
        if limit or self.limit:
            arguments += ["--limit", ",".join(limit or self.limit)]
        log_path = self.folder / "logs" / "ansible.log"
        failures: list[Event] = []
        if self.process is None:
            self.process = AnsibleProcess(root, self._environment(root), log_path, f"{self.folder / 'tmp'}/")
        read, write = os.pipe()
        try:
            self.process.begin(name, arguments, write)
        finally:
            os.close(write)
            reader = threading.Thread(target=self._read, args=(read, failures), daemon=True)
            reader.start()
        code = self.process.wait()
        if code != 0:
            # Its workers and what they wait for, an engine above all, may have outlived it. Servers have sessions of
            # their own and are not meant.
            self.process.signal(signal.SIGKILL)
        reader.join(timeout=5)
        if not self._kept:
            self.stop()
        if code != 0:
            raise PlaybookError(
                _explain(name, code, failures, log_path),
                unreachable={
                    str(e["host"]): str(e.get("message", "")) for e in failures if e["status"] == "unreachable"
                },
            )

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, Ansible stays between playbooks, for the next one to begin at once."""
        self._kept = True
        try:
            yield
        finally:
            self._kept = False
            self.stop()

    def stop(self) -> None:
        """End the playbook that runs, if one does, and Ansible; wait until both are gone."""
        if self.process is not None:
            self.process.close()
            self.process = None

    def _literal(self, variables: Path) -> Path:
        """A copy for ansible-playbook, with everything marked that it would evaluate."""
        values = untrusted.marked(json.loads(variables.read_text(encoding="utf-8")))
        path = self.folder / "tmp" / f"vars-{variables.parent.name}.json"
        write_json(path, values)
        return path

    def _environment(self, root: Path) -> dict[str, str]:
        temporary = str(self.folder / "tmp")
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("ANSIBLE_")},
            "ANSIBLE_CONFIG": str(root / "ansible.cfg"),
            # Ansible leaves its temporary files inside the run, not in the user's home.
            "ANSIBLE_HOME": temporary,
            "ANSIBLE_LOCAL_TEMP": temporary,
            "ANSIBLE_REMOTE_TEMP": self.remote_temp or temporary,
            **({"ANSIBLE_SSH_CONTROL_PATH_DIR": self.sockets} if self.sockets else {}),
            "ANSIBLE_NOCOLOR": "1",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": temporary,
        }

    def _read(self, descriptor: int, failures: list[Event]) -> None:
        with os.fdopen(descriptor, "r", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if event.get("status") in {"failed", "unreachable"} and not event.get("ignored"):
                    failures.append(event)
                self.listener(event)


def _explain(name: str, code: int, failures: list[Event], log_path: Path) -> str:
    if failures:
        return "\n".join(dict.fromkeys(_sentence(name, event) for event in failures))
    if code < 0 or code in _INTERRUPTED:  # the log ends with what Python was at, which explains nothing
        by = signal.Signals(-code).name if code < 0 else "SIGINT"
        return f"playbook {name} was ended by {by}; see {log_path}"
    with contextlib.suppress(OSError):
        tail = log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]
        return "\n".join([f"playbook {name} ended with exit code {code}; the end of {log_path}:", *tail])
    return f"playbook {name} ended with exit code {code}; see {log_path}"


def _sentence(name: str, event: Event) -> str:
    host, message = str(event.get("host", "local")), str(event.get("message", ""))
    if event["status"] == "unreachable":
        return unreachable(host, message)
    meaning = lacking(message)
    return f"{host}: {meaning}" if meaning != message else f"{event.get('task', name)} ({host}): {message}"

"""Run the project's playbooks with Ansible in another process, which sends its events through a pipe."""

import contextlib
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microshard.errors import EXIT_DEFINITION, MicroshardError
from microshard.records.run_folder import RunFolder, write_json
from microshard.run.ansible_server import AnsibleProcess
from microshard.this_machine import collection_root, project_root

Event = dict[str, Any]
EventHandler = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """Handle an event nobody is interested in."""


_INTERRUPTED = {
    99,
    128 + signal.SIGINT,
}  # exit codes after Ctrl-C: ansible-core's (ExitCode.KEYBOARD_INTERRUPT), and the server's
_MARK = "__ansible_unsafe"
_RESERVED = "__ansible_"  # Ansible's JSON reader makes something else of a mapping with such a key
_TEMPLATES = ("{{", "{%", "{#")

# Words of OpenSSH's messages (ssh.c, sshconnect.c, sshconnect2.c) → what they mean and what to do.
_SSH = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed|No \S+ host key is known",
        "its host key is not the one in known_hosts",
        "compare the key at its console, then put it there (ssh-keyscan {host}); host key checking stays on",
    ),
    (
        r"Permission denied|Too many authentication failures|no such identity|invalid format",
        "it does not take this user's key",
        "check ansible_user and ansible_ssh_private_key_file of the inventory, and the host's authorized_keys",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "its name cannot be resolved",
        "set ansible_host to an address",
    ),
    (r"Connection refused", "nothing listens at its SSH port", "start sshd there, or set ansible_port"),
    (
        r"timed out|No route to host|Network is unreachable|Host is down",
        "it cannot be reached over the network",
        "check that it runs, its address, and the firewall between",
    ),
    (
        r"Broken pipe|closed by remote host|Connection reset|kex_exchange|Connection (to \S+ )?closed",
        "the connection to it was lost",
        "check whether it is up; a host that is gone is not waited for",
    ),
)
# Messages of tasks → what the host lacks.
_TASK = (
    (
        r"(?:/\S*python\S*|python3?): (?:No such file|not found|command not found)|No python interpreters found"
        r"|module interpreter '\S+' was not found",
        "Python is missing on it: install python3 (3.9 or newer), or set ansible_python_interpreter",
    ),
    (
        r"Missing sudo password|sudo: a password is required|is not in the sudoers file|sudo: not found",
        "the user may not become root: allow sudo without a password (NOPASSWD), or log in as another ansible_user",
    ),
    (
        r"Module result deserialization failed: No start of json",
        "it stopped in the course of a task; check whether it is up, and its kernel's log",
    ),
)


class ReservedKeyError(MicroshardError):
    """A key that Ansible reads as an instruction."""

    exit_code = EXIT_DEFINITION


class PlaybookError(MicroshardError):
    """A playbook failed; the message is that of its tasks."""


@dataclass(slots=True)
class Playbooks:
    """Runs the project's playbooks with a run's variables."""

    folder: RunFolder
    handler: EventHandler = ignore
    inventory: Path | None = None  # by default that of this machine
    remote_temp: str | None = None  # Ansible's folder on the hosts; the run's own where the host is this machine
    sockets: str | None = None  # folder of ssh's control sockets: their paths must be short
    limit: Sequence[str] = ()  # names of the hosts the plays run on; empty: all of the inventory
    process: AnsibleProcess | None = field(default=None, init=False)
    _kept: bool = field(default=False, init=False)

    def run(self, name: str, variables: Path | None, *, limit: Sequence[str] = ()) -> None:
        """Run playbooks/NAME.yml to its end, on the hosts of `limit` only.

        Raises PlaybookError with the failed tasks' messages, DiskError where variables or log cannot be written.
        """
        root = project_root()
        arguments = ["--inventory", str(self.inventory or root / "inventories" / "local")]
        arguments.append(str((collection_root() / "playbooks" / f"{name}.yml").resolve()))
        if variables is not None:
            arguments += ["--extra-vars", f"@{self._marked(variables)}"]
        if limit or self.limit:
            arguments += ["--limit", ",".join(limit or self.limit)]
        log_path = self.folder / "logs" / "ansible.log"
        failures: list[Event] = []
        if self.process is None:
            self.process = AnsibleProcess(root, self.environment(root), log_path, f"{self.folder / 'tmp'}/")
        read, write = os.pipe()
        try:
            self.process.begin(name, arguments, write)
        finally:
            os.close(write)
            reader = threading.Thread(target=self._read, args=(read, failures), daemon=True)
            reader.start()
        code = self.process.wait()
        if code != 0:
            # Its workers and the engines they wait for may have outlived it; servers have other sessions.
            self.process.signal(signal.SIGKILL)
        reader.join(timeout=5)
        if not self._kept:
            self.stop()
        if code != 0:
            raise PlaybookError(explain(name, code, failures, log_path))

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep Ansible's process between playbooks while the context is open, for the next one to begin at once."""
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

    def _marked(self, variables: Path) -> Path:
        """A copy of the variables for ansible-playbook, with every template marked as unsafe."""
        values = mark_unsafe(json.loads(variables.read_text(encoding="utf-8")))
        path = self.folder / "tmp" / f"vars-{variables.parent.name}.json"
        write_json(path, values)
        return path

    def environment(self, root: Path) -> dict[str, str]:
        """Ansible's environment: the project's settings, whatever the user has set."""
        temporary = str(self.folder / "tmp")
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("ANSIBLE_")},
            "ANSIBLE_CONFIG": str(root / "ansible.cfg"),
            # Temporary files stay in the run's folder.
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
                self.handler(event)


def explain(name: str, code: int, failures: list[Event], log_path: Path) -> str:
    """Why a playbook failed: its tasks' messages, else the signal or the end of its log."""
    if failures:
        return "\n".join(dict.fromkeys(_sentence(name, event) for event in failures))
    if code < 0 or code in _INTERRUPTED:  # the log would only end with a traceback
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
    meaning = missing_on_host(message)
    return f"{host}: {meaning}" if meaning != message else f"{event.get('task', name)} ({host}): {message}"


def unreachable(host: str, message: str) -> str:
    """A sentence on a host Ansible calls unreachable."""
    for pattern, meaning, step in _SSH:
        if re.search(pattern, message, re.IGNORECASE):
            return f"{host}: {meaning}; {step.format(host=host)}"
    words = " ".join(message.split())[-300:]
    return f"{host} cannot be reached: {words}"


def missing_on_host(message: str) -> str:
    """A task's message, or what it means where a host lacks what every task needs."""
    for pattern, meaning in _TASK:
        if re.search(pattern, message, re.IGNORECASE):
            return meaning
    return message


def mark_unsafe(value: Any) -> Any:
    """`value` with every string marked that Ansible would evaluate as a template. Raises ReservedKeyError.

    Ansible takes every string of a file of variables for a template, those of an experiment too: a pipeline with
    `{{ lookup('pipe', …) }}` in it would run a command. A string marked like this is left as it is.
    https://docs.ansible.com/ansible/latest/playbook_guide/playbooks_advanced_syntax.html#unsafe-or-raw-strings
    """
    if isinstance(value, str):
        return {_MARK: value} if any(mark in value for mark in _TEMPLATES) else value
    if isinstance(value, dict):
        for key in value:
            if str(key).startswith(_RESERVED):
                raise ReservedKeyError(f"{key}: names that begin with {_RESERVED} are reserved by Ansible")
        return {key: mark_unsafe(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mark_unsafe(item) for item in value]
    return value

"""ansible-playbook, imported once: every playbook is executed by a fork of that process.

Starting Ansible takes more time than most plays of a run, and there are some before and after every measurement. A
server process (`main`, below) imports it, then waits on a socket; for each playbook it forks, and the fork does what
`ansible-playbook` does. The server ends when the socket does, so it never outlives who started it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from microshard.hostlib.lifetime import leave
from microshard.records.run_folder import DiskError

_LONGEST = 1 << 16  # bytes of a message
# The modules that are executed before and after each measurement.
_ACTS = ("background_processes", "collected_files", "mongo_processes", "mongo_topology", "workload_phases")
_PATIENCE = 5.0  # s a playbook has to go after SIGTERM, and again after SIGKILL


class AnsibleProcess:
    """The server as its client sees it; one playbook at a time."""

    def __init__(self, root: Path, environment: Mapping[str, str], log: Path, mark: str) -> None:
        """`root`: where playbooks and ansible.cfg are; `mark`: a word of its command line, by which it can be found."""
        self.root, self.environment, self.log, self.mark = root, environment, log, mark
        self.pid = 0  # of the playbook that is executed, and of its session
        self._busy = False
        self._code = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None

    def begin(self, name: str, arguments: Sequence[str], events: int) -> None:
        """Execute a playbook; `events` is the descriptor its events go to. Raises DiskError without a log."""
        if self._server is None or self._server.poll() is not None:
            self._start()
        assert self._link is not None  # noqa: S101 - for the type checker: made with the server
        self.pid, self._busy = 0, True
        request = json.dumps({"name": name, "arguments": list(arguments)}).encode()
        with contextlib.suppress(ConnectionError):  # a server that is gone says so when it is waited for
            socket.send_fds(self._link, [request], [events])

    def wait(self, timeout: float | None = None) -> int:
        """The exit code of the playbook, -N where signal N ended it. Raises TimeoutError."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._busy:
            self._receive(until)
        return self._code

    def end(self) -> None:
        """End the playbook that is executed, if one is, and whatever of its session outlived it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._busy:
                return
            with contextlib.suppress(TimeoutError):
                if not self.pid:  # its first word
                    self._receive(time.monotonic() + _PATIENCE)
                self.signal(number)
                self.wait(_PATIENCE)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the playbook, its workers and what they wait for; nothing where all are gone."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def close(self) -> None:
        """End the playbook and the server."""
        self.end()
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_WR)
                # It closes its end with itself; Popen.wait would look only every 50 ms.
                select.select([self._link], [], [], _PATIENCE)
            self._link.close()
        if self._server is not None:
            try:
                self._server.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        self._server = self._link = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, self.log.open("ab") as log:
                self._server = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(theirs.fileno()), self.mark],
                    cwd=self.root,
                    env=dict(self.environment),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is the runner's to handle, in its own order
                )
        except OSError as error:
            ours.close()
            raise DiskError(self.log, error) from error
        self._link = ours

    def _receive(self, until: float | None) -> None:
        """Take the next message of the server. Raises TimeoutError."""
        assert self._link is not None  # noqa: S101 - for the type checker: there is one while a playbook is executed
        left = None if until is None else max(until - time.monotonic(), 0)
        if not select.select([self._link], [], [], left)[0]:
            raise TimeoutError
        try:
            message = self._link.recv(_LONGEST)
        except ConnectionError:
            message = b""
        word, _, number = message.decode().partition(" ")
        if word == "pid":
            self.pid = int(number)
            return
        # Without a word the server is gone, and nobody will tell how the playbook ends.
        self._code = int(number) if word == "code" else -signal.SIGKILL
        self._busy = False


def main() -> int:
    """Be the server: arguments are the descriptor of the socket and the mark."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # it has nothing to tidy, and the log is read by people
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    from ansible.cli.playbook import main as playbook  # noqa: PLC0415 - what takes the time, and no client needs it

    ahead = False
    while True:
        request, descriptors, _, _ = socket.recv_fds(link, _LONGEST, 1)
        if not request:
            return 0
        asked = json.loads(request)
        pid = os.fork()
        if pid == 0:
            _be_playbook(playbook, link, asked["name"], asked["arguments"], descriptors[0])
        for descriptor in descriptors:
            os.close(descriptor)
        if not ahead:  # beside the first playbook, which need not wait for it
            _load_ahead()
            ahead = True
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):  # the client is gone, which the next look tells
            link.send(f"code {os.waitstatus_to_exitcode(status)}".encode())


def _load_ahead() -> None:
    """Load what nearly every play and every task of it would load again.

    Without it a play takes 0.3 s before its first task, and a task that templates anything 0.03 s more.
    """
    from ansible import constants  # noqa: PLC0415 - no client needs it
    from ansible.plugins import loader  # noqa: PLC0415 - as above

    # Each fork configures the collections once more, which they take for a mistake.
    warnings.filterwarnings("ignore", "AnsibleCollectionFinder has already been configured")
    loader.init_plugin_loader()
    # Where the plugins of ansible.builtin are today: the longest YAML of all.
    importlib.import_module("ansible_collections.ansible.builtin")
    for plugins, names in (
        (loader.inventory_loader, constants.INVENTORY_ENABLED),
        (loader.strategy_loader, ("linear",)),
        (loader.connection_loader, ("local", "ssh")),
        (loader.filter_loader, ("default",)),  # with one of them come all
        (loader.test_loader, ("defined",)),
        (loader.action_loader, ("include_role", "set_fact", "validate_argument_spec", *_ACTS)),
    ):
        for name in names:
            plugins.get(name, class_only=True)
    for name in _ACTS:
        loader.action_loader.get("microshard_act", class_only=True).act_of(name)


def _be_playbook(
    playbook: Callable[[], object], link: socket.socket, name: str, arguments: Sequence[str], events: int
) -> None:
    """Do what `ansible-playbook ARGUMENTS` does, in a session of its own, and end."""
    code = 1
    try:
        os.setsid()
        Path("/proc/self/comm").write_text(name, encoding="utf-8")  # as ps and top show it
        with contextlib.suppress(OSError):
            link.send(f"pid {os.getpid()}".encode())
        link.close()
        os.set_inheritable(events, False)
        os.environ["MICROSHARD_EVENTS_FD"] = str(events)
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        print(f"\n$ ansible-playbook {' '.join(arguments)}", flush=True)  # into the log, to be repeated by hand
        sys.argv = [program, *arguments]
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Ansible answers it in its own way
        playbook()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except KeyboardInterrupt:  # before Ansible could answer it, or after
        code = 128 + signal.SIGINT
    except BaseException:  # noqa: BLE001 - nothing of it may become the server's
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        # What is to be done at exit is the server's: Ansible's folder for temporary files is there for the next, too.
        os._exit(code)


if __name__ == "__main__":
    ended = main()
    atexit._run_exitfuncs()  # Ansible's own folder goes
    leave(ended)  # to take its modules apart one by one would take longer than many a play

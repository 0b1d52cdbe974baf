"""ansible-playbook, imported once: every playbook is executed by a fork of that process.

Starting Ansible takes longer than most plays of a run (docs/benchmarks.md, orchestration). A server process imports it
and waits on a socket; for each playbook it forks, and the fork does what `ansible-playbook` does. The server ends when
the socket closes, so it never outlives its client. Where a later ansible-core lacks one of the internal names below,
each fork executes `ansible-playbook` itself: slower, with the same result.

Internal names of ansible-core: ansible.cli.playbook.main, and for loading ahead ansible.constants.INVENTORY_ENABLED,
ansible_collections.ansible.builtin, ansible.plugins.loader: init_plugin_loader and the loaders of plugins.
"""

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

from microshard.hostlib.proc import leave
from microshard.records.run_folder import DiskError

_LONGEST = 1 << 16  # bytes of a message
# The modules that are executed before and after each measurement.
_MODULES = ("background_processes", "collected_files", "mongo_processes", "mongo_topology", "workload_phases")
_COLLECTION = "microshard.lab"
_FALLBACK = "every playbook starts ansible-playbook, for this ansible-core lacks an internal name"
_GRACE = 5.0  # s a playbook has to end after SIGTERM, and again after SIGKILL


class AnsibleProcess:
    """The client of a server; executes one playbook at a time."""

    def __init__(self, root: Path, environment: Mapping[str, str], log: Path, mark: str) -> None:
        """`root`: the folder of playbooks/ and ansible.cfg; `mark`: a word of the command line to find it by."""
        self.root, self.environment, self.log, self.mark = root, environment, log, mark
        self.pid = 0  # of the playbook that is executed, and of its session
        self.server: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._busy = False
        self._code = 0

    def begin(self, name: str, arguments: Sequence[str], events: int) -> None:
        """Execute a playbook; its events are written to the descriptor `events`. Raises DiskError without a log."""
        if self.server is None or self.server.poll() is not None:
            self._start()
        assert self._socket is not None  # noqa: S101 - for the type checker: made with the server
        self.pid, self._busy = 0, True
        request = json.dumps({"name": name, "arguments": list(arguments)}).encode()
        with contextlib.suppress(ConnectionError):  # waiting for a server that is gone says so
            socket.send_fds(self._socket, [request], [events])

    def wait_started(self, timeout: float | None = None) -> None:
        """Wait until `pid` is known, or the playbook has ended. Raises TimeoutError."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._busy and not self.pid:
            self._receive(until)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code of the playbook, -N where signal N ended it. Raises TimeoutError."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._busy:
            self._receive(until)
        return self._code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the playbook, its workers and what they wait for; nothing where all are gone."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def end(self) -> None:
        """End the playbook that is executed, if one is, and whatever of its session outlived it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._busy:
                with contextlib.suppress(TimeoutError):
                    self.wait_started(_GRACE)
                    self.signal(number)
                    self.wait(_GRACE)

    def close(self) -> None:
        """End the playbook and the server."""
        self.end()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
                # The server's end closes when it exits; Popen.wait would look only every 50 ms.
                select.select([self._socket], [], [], _GRACE)
            self._socket.close()
        if self.server is not None:
            try:
                self.server.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
        self.server = self._socket = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, self.log.open("ab") as log:
                self.server = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(theirs.fileno()), self.mark],
                    cwd=self.root,
                    env=dict(self.environment),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # the runner handles Ctrl-C, in its order
                )
        except OSError as error:
            ours.close()
            raise DiskError(self.log, error) from error
        self._socket = ours

    def _receive(self, until: float | None) -> None:
        """Take the next message of the server. Raises TimeoutError."""
        assert self._socket is not None  # noqa: S101 - for the type checker: there is one while a playbook is executed
        left = None if until is None else max(until - time.monotonic(), 0)
        if not select.select([self._socket], [], [], left)[0]:
            raise TimeoutError
        try:
            message = self._socket.recv(_LONGEST)
        except ConnectionError:
            message = b""
        word, _, number = message.decode().partition(" ")
        if word == "pid":
            self.pid = int(number)
            return
        if not message and self.server is not None:
            # The server is gone, or about to go: its socket closes before it can be waited for, and the next playbook
            # must find it ended.
            self.server.kill()
            self.server.wait()
        # Without a message nobody will say how the playbook ends.
        self._code = int(number) if word == "code" else -signal.SIGKILL
        self._busy = False


def main() -> int:
    """Run the server: arguments are the descriptor of the socket and the mark."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing to tidy, and a traceback would confuse readers of the log
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    playbook: Callable[[], object] | None = None
    try:
        from ansible.cli import playbook as command  # noqa: PLC0415 - what takes the time; no client needs it

        playbook = command.main
    except ImportError as error:
        print(f"{_FALLBACK}: {error}", flush=True)
    loaded_ahead = playbook is None
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, _LONGEST, 1)
        if not message:
            return 0
        request = json.loads(message)
        pid = os.fork()
        if pid == 0:
            _be_playbook(playbook, link, request["name"], request["arguments"], descriptors[0])
        for descriptor in descriptors:
            os.close(descriptor)
        if not loaded_ahead:  # while the first playbook runs, which need not wait for it
            loaded_ahead = True
            try:
                _load_ahead()
            except (ImportError, AttributeError) as error:
                playbook = None
                print(f"{_FALLBACK}: {error}", flush=True)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):  # the client is gone, as the next message will say
            link.send(f"code {os.waitstatus_to_exitcode(status)}".encode())


def _load_ahead() -> None:
    """Load what nearly every play would load again: 0.3 s before its first task, 0.03 s per task with a template."""
    from ansible import constants  # noqa: PLC0415 - no client needs it
    from ansible.plugins import loader  # noqa: PLC0415 - as above

    # Each fork configures the collections once more, which ansible-core takes for a mistake.
    warnings.filterwarnings("ignore", "AnsibleCollectionFinder has already been configured")
    loader.init_plugin_loader()
    # Where the plugins of ansible.builtin are today: the longest YAML of all.
    importlib.import_module("ansible_collections.ansible.builtin")
    for plugins, names in (
        (loader.inventory_loader, constants.INVENTORY_ENABLED),
        (loader.strategy_loader, ("linear",)),
        (loader.connection_loader, ("local", "ssh")),
        (loader.filter_loader, ("default",)),  # loads all filters
        (loader.test_loader, ("defined",)),
        (loader.action_loader, ("include_role", "set_fact", "validate_argument_spec")),
        (
            loader.action_loader,
            [f"{_COLLECTION}.{name}" for name in ("in_process", "collected_files", "mongo_processes")],
        ),
    ):
        for name in names:
            plugins.get(name, class_only=True)
    in_process = loader.action_loader.get(f"{_COLLECTION}.in_process", class_only=True)
    for name in _MODULES:
        in_process.load(name)


def _be_playbook(
    playbook: Callable[[], object] | None, link: socket.socket, name: str, arguments: Sequence[str], events: int
) -> None:
    """Do what `ansible-playbook ARGUMENTS` does, in a session of its own, and end."""
    code = 1
    try:
        os.setsid()
        Path("/proc/self/comm").write_text(name, encoding="utf-8")  # as ps and top show it
        with contextlib.suppress(OSError):
            link.send(f"pid {os.getpid()}".encode())
        link.close()
        os.environ["MICROSHARD_EVENTS_FD"] = str(events)
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        print(f"\n$ ansible-playbook {' '.join(arguments)}", flush=True)  # into the log, to be repeated by hand
        if playbook is None:
            os.set_inheritable(events, True)
            os.execv(program, [program, *arguments])  # noqa: S606 - a list, no shell
        os.set_inheritable(events, False)
        sys.argv = [program, *arguments]
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Ansible handles it
        playbook()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except KeyboardInterrupt:  # before Ansible could handle it, or after
        code = 128 + signal.SIGINT
    except BaseException:  # noqa: BLE001 - no error of a playbook may end in the server's loop
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        # Exit handlers are the server's: Ansible's folder for temporary files is needed by the next playbook.
        os._exit(code)


if __name__ == "__main__":
    ended = main()
    atexit._run_exitfuncs()  # Ansible removes its temporary folder
    leave(ended)  # an orderly exit, which frees modules one by one, would take longer than many plays

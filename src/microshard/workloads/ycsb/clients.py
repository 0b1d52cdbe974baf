"""The YCSB processes of this host: what starts them, and all of them started, watched and stopped together."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from microshard.hostlib.proc import die_with_parent
from microshard.this_machine import collection_root
from microshard.workloads.base import PhaseError
from microshard.workloads.ycsb.properties import ClientSpec, properties_file

LEAST_JAVA = 17  # the binding is compiled for it
BUILT_JAR = (collection_root() / "roles" / "ycsb_client" / "files" / "ycsb-mongodb.jar").resolve()
INSTALL_JAVA = (
    "install a JRE 17 or newer (Debian, Ubuntu: openjdk-17-jre-headless; Amazon Linux: "
    "java-17-amazon-corretto-headless; Fedora, RHEL: java-17-openjdk-headless)"
)
STOP_SECONDS = 15.0  # from SIGTERM to the report; then SIGKILL
TERMINATED = 128 + signal.SIGTERM  # exit code of a JVM after SIGTERM
_REFUSED = re.compile(r"^(?:ycsb-mongodb: |Exception in thread|Error: |.*[a-z]Exception: )", re.MULTILINE)
_FAILED = re.compile(r"^ycsb-mongodb: (\S+ failed with .*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class YcsbTools:
    """The JVM and the client's jar."""

    java: str
    jar: str


def find_tools(given: Mapping[str, str]) -> YcsbTools:
    """The JVM and the jar: those the job names, else JAVA_HOME and PATH, and what `make clients` built.

    Raises PhaseError (NoJava, JavaTooOld, NoClient) that says what to install or build.
    """
    java = given.get("java") or installed_java()
    if java is None:
        raise PhaseError("NoJava", f"YCSB needs Java and there is none on this host: {INSTALL_JAVA}")
    version = java_version(java)
    if version < LEAST_JAVA:
        raise PhaseError("JavaTooOld", f"{java} is Java {version}, YCSB's client needs {LEAST_JAVA}: {INSTALL_JAVA}")
    jar = Path(given.get("ycsb_jar") or BUILT_JAR)
    if not jar.is_file():
        raise PhaseError("NoClient", f"the YCSB client {jar} does not exist: build it with `make clients`")
    return YcsbTools(java, str(jar))


def installed_java() -> str | None:
    """The JVM of JAVA_HOME, else of PATH, whatever its version."""
    home = os.environ.get("JAVA_HOME")
    path = Path(home, "bin", "java") if home else None
    return str(path) if path is not None and path.is_file() else shutil.which("java")


def java_version(java: str) -> int:
    """Major version of a JVM; 8 for 1.8. Raises PhaseError when the JVM does not report one."""
    # The file `release` of the JVM's folder is a tenth of a second faster than the JVM.
    release = Path(shutil.which(java) or java).resolve().parent.parent / "release"
    try:
        match = re.search(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', release.read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, ValueError):
        match = None
    if match is None:
        try:
            done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PhaseError("NoJava", f"{java} does not run: {error}; {INSTALL_JAVA}") from None
        output = done.stderr + done.stdout
        match = re.search(r'version "(\d+)(?:\.(\d+))?', output)
        if match is None:
            raise PhaseError("NoJava", f"{java} -version shows no version: {output.strip()[:200]!r}; {INSTALL_JAVA}")
    major, minor = int(match[1]), int(match[2] or 0)
    return minor if major == 1 else major


@dataclass(slots=True)
class ClientProcess:
    """A client that was started. The names of its files begin with `prefix`."""

    spec: ClientSpec
    prefix: Path
    process: subprocess.Popen[bytes]
    terminated: bool = False

    @property
    def name(self) -> str:
        """Its name in messages and files."""
        return f"client{self.spec.number}"

    @property
    def errors(self) -> str:
        """Its standard error so far."""
        return self.prefix.with_name(f"{self.prefix.name}.err").read_text(encoding="utf-8", errors="replace")

    def report(self) -> dict[str, Any]:
        """The binding's report; empty when the client has written none."""
        try:
            found: dict[str, Any] = json.loads(self.prefix.with_name(f"{self.prefix.name}-report.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found

    def is_ready(self) -> bool:
        """Whether it is connected and waits for its start."""
        return "ycsb-mongodb: ready" in self.errors

    def failure(self) -> str | None:
        """How it ended too early, with its messages; None while it runs or when it succeeded."""
        code = self.process.poll()
        if code is None or code == 0 or (self.terminated and code in (TERMINATED, -signal.SIGTERM)):
            return None
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        lines = [
            line for line in self.errors.splitlines() if _REFUSED.match(line) and not line.endswith(": ready")
        ] or self.errors.splitlines()[-3:]
        messages = " | ".join(line.strip() for line in lines[:3]) or "it wrote no message"
        return f"{self.name} (pid {self.process.pid}) {how}: {messages[:1000]}"


class ClientProcesses:
    """All clients of this host in one phase."""

    def __init__(self, folder: Path) -> None:
        self.tools = YcsbTools("", "")
        self._folder = folder
        self._secrets: list[Path] = []
        self.running: list[ClientProcess] = []

    def prefix(self, client: ClientSpec) -> Path:
        """What the names of a client's files begin with."""
        return self._folder / f"client{client.number}"

    def start(
        self, client: ClientSpec, properties: Mapping[str, str], java_options: Sequence[str], *, load: bool
    ) -> ClientProcess:
        """Start a client. Its properties are in a file that only this user can read: a URL may hold a password."""
        prefix = self.prefix(client)
        for old in self._folder.glob(f"{prefix.name}[-.]*"):
            old.unlink()
        path = prefix.with_name(f"{prefix.name}.properties")
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(properties_file(properties), encoding="ascii")
        self._secrets.append(path)
        command = [self.tools.java, *java_options, "-cp", self.tools.jar, "site.ycsb.Client"]
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
                # In the locale C Java opens no file whose path has letters beyond ASCII, its own jar included.
                env={**os.environ, "LC_ALL": "C.UTF-8"},
                preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - only an exec follows
            )
        self.running.append(ClientProcess(client, prefix, process))
        return self.running[-1]

    def check(self) -> None:
        """Raises PhaseError for the first client that died, else for the first that reports a failed operation."""
        for client in self.running:
            failure = client.failure()
            if failure is not None:
                raise PhaseError("ClientDied", failure)
        for client in self.running:
            match = _FAILED.search(client.errors)
            if match:
                raise PhaseError("OperationFailed", f"{client.name}: {match[1]}")

    def finished(self) -> bool:
        """Whether all processes have ended."""
        return all(client.process.poll() is not None for client in self.running)

    def terminate(self) -> None:
        """Let all end at the same time; each writes its report first."""
        for client in self.running:
            if client.process.poll() is None and not client.terminated:
                client.terminated = True
                client.process.terminate()

    def stop(self) -> None:
        """Terminate all and wait until they have ended. One that does not end is killed."""
        self.terminate()
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

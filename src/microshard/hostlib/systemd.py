"""Processes as instances of one template unit of systemd.

An instance is named after the folder of its process (`systemd-escape --path`), which lies in the run's folder with its
random name: so the unit's name says which run it belongs to.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import HostError
from .files import put_file

UNIT_FOLDER = "/etc/systemd/system"
_PROPERTIES = "/run/systemd/system.control"
TEMPLATE = "microshard@.service"
_TIMEOUT = 30.0  # s systemctl is given; it only passes a message on
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.")


def unit_name(folder: str) -> str:
    """The instance of the process in this folder; systemd's path escaping, systemd.unit(5)."""
    text = "/".join(part for part in folder.split("/") if part)
    escaped = "".join("-" if char == "/" else _escaped(char) for char in text)
    if escaped.startswith("."):
        escaped = f"\\x2e{escaped[1:]}"
    name = TEMPLATE.replace("@", f"@{escaped}")
    if len(name) > 255:
        raise HostError(f"{folder} is too long for the name of a unit ({len(name)} characters of 255)")
    return name


def _escaped(char: str) -> str:
    return char if char in _PLAIN else "".join(f"\\x{byte:02x}" for byte in char.encode())


def is_running() -> bool:
    """Whether systemd runs this host, as sd_booted(3) finds out."""
    return os.path.isdir("/run/systemd/system")


def control(*words: str) -> str:
    """The output of systemctl; HostError with its message when it fails."""
    try:
        answer = subprocess.run(
            ["systemctl", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"systemctl {words[0]}: {error}") from None
    if answer.returncode != 0:
        raise HostError(f"systemctl {' '.join(words)}: {answer.stderr.strip() or answer.returncode}")
    return answer.stdout


def install(text: str, *, check: bool, folder: str = UNIT_FOLDER) -> dict[str, str] | None:
    """Write the template unit; the difference when it had another text."""
    path = os.path.join(folder, TEMPLATE)
    diff = put_file(path, text, check=True)
    if diff and not check:
        if not is_running():
            raise HostError("process_manager: systemd needs a host that was booted by systemd")
        put_file(path, text, check=False)
        control("daemon-reload")
    return diff


def remove_if_unused(*, check: bool, folder: str = UNIT_FOLDER) -> bool:
    """Remove the template unit unless it has instances; whether it was removed."""
    path = os.path.join(folder, TEMPLATE)
    if not os.path.exists(path):
        return False
    listed = control("list-units", "--all", "--plain", "--no-legend", TEMPLATE.replace("@", "@*"))
    if listed.strip():
        return False
    if not check:
        os.unlink(path)
        control("daemon-reload")
    return True


@dataclass(frozen=True)
class Unit:
    """An instance of the template unit."""

    name: str

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs. As of a child process."""
        shown = self.show("ActiveState", "ExecMainCode", "ExecMainStatus")
        if shown["ActiveState"] in {"active", "activating", "reloading", "deactivating"}:
            return None
        status = int(shown["ExecMainStatus"] or 0)
        # CLD_EXITED is 1; a process that a signal ended has that signal's number as its status.
        return status if shown["ExecMainCode"] == "1" else -status

    def main_pid(self, deadline: float) -> int:
        """The pid of its main process, once there is one; 0 when it ended before."""
        while True:
            pid = int(self.show("MainPID")["MainPID"] or 0)
            if pid or self.poll() is not None or time.monotonic() > deadline:
                return pid
            time.sleep(0.02)

    def show(self, *properties: str) -> dict[str, str]:
        """Its properties of these names."""
        shown = control("show", self.name, f"--property={','.join(properties)}")
        found = dict(line.partition("=")[::2] for line in shown.splitlines())
        return {name: found.get(name, "") for name in properties}


def out_of_memory(folder: str) -> str:
    """A sentence where the process in this folder was killed while its unit limited its memory; else ""."""
    with contextlib.suppress(HostError):
        unit = Unit(unit_name(folder))
        shown = unit.show("MemoryMax", "Result")
        if shown["MemoryMax"].isdigit() and unit.poll() == -signal.SIGKILL:
            by = "the kernel killed it" if shown["Result"] == "oom-kill" else "it was killed"
            return f"{by}; its memory is limited to {int(shown['MemoryMax']) >> 20:,} MiB (limits.memory_mb)"
    return ""


def start(folder: str, properties: Mapping[str, str] | None = None) -> Unit:
    """Start the instance of the process in this folder, with these properties until the host boots again."""
    unit = Unit(unit_name(folder))
    if properties:
        control("set-property", "--runtime", unit.name, *(f"{key}={value}" for key, value in properties.items()))
    control("start", unit.name)
    return unit


def forget(folders: Sequence[str]) -> None:
    """Have systemd forget ended instances: a killed one would stay listed as failed."""
    names = [unit_name(folder) for folder in folders]
    # systemd may not know yet that a process is gone; `stop` returns when it does.
    for verb in ("stop", "reset-failed") if names else ():
        with contextlib.suppress(HostError):  # systemd has forgotten some by itself: they did not fail
            control(verb, *names)
    for name in names:  # where `set-property --runtime` keeps what `start` was given
        shutil.rmtree(os.path.join(_PROPERTIES, f"{name}.d"), ignore_errors=True)

"""Processes as instances of one template unit of systemd.

An instance is named after the folder of its process (`systemd-escape --path`), which lies in the run's folder with its
random name: so the unit itself says whose it is, and none of another run is ever meant.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .refused import Refused
from .run_folder import write_atomically

UNIT_FOLDER = "/etc/systemd/system"
TEMPLATE = "microshard@.service"
_PATIENCE = 30.0  # s systemctl is given; it only passes a message on
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.")


class UnitProblem(Refused):
    """What systemd refused, in its own words."""


def unit_name(folder: str) -> str:
    """The instance of the process in this folder; systemd's path escaping, systemd.unit(5)."""
    text = "/".join(part for part in folder.split("/") if part)
    escaped = "".join("-" if char == "/" else _escaped(char) for char in text)
    if escaped.startswith("."):
        escaped = f"\\x2e{escaped[1:]}"
    name = TEMPLATE.replace("@", f"@{escaped}")
    if len(name) > 255:
        raise UnitProblem(f"{folder} is too long for the name of a unit ({len(name)} characters of 255)")
    return name


def _escaped(char: str) -> str:
    return char if char in _PLAIN else "".join(f"\\x{byte:02x}" for byte in char.encode())


def control(*words: str) -> str:
    """What systemctl says; UnitProblem in its own words when it refuses."""
    try:
        answer = subprocess.run(
            ["systemctl", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnitProblem(f"systemctl {words[0]}: {error}") from None
    if answer.returncode != 0:
        raise UnitProblem(f"systemctl {' '.join(words)}: {answer.stderr.strip() or answer.returncode}")
    return answer.stdout


def install(text: str, *, check: bool, folder: str = UNIT_FOLDER) -> dict[str, str] | None:
    """The template unit is there with this text; the difference when it was not."""
    path = os.path.join(folder, TEMPLATE)
    try:
        with open(path, encoding="utf-8") as file:
            before = file.read()
    except OSError:
        before = ""
    if before == text:
        return None
    if not check:
        if not os.path.isdir("/run/systemd/system"):
            raise UnitProblem("process_manager: systemd needs a host that was booted by systemd")
        write_atomically(path, text)
        control("daemon-reload")
    return {"before_header": path, "after_header": path, "before": before, "after": text}


def remove_if_unused(*, check: bool, folder: str = UNIT_FOLDER) -> bool:
    """The template unit is gone unless an instance of it is there; whether it was removed."""
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
    """An instance that was started."""

    name: str

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs. As of a child process."""
        shown = self._show("ActiveState", "ExecMainCode", "ExecMainStatus")
        if shown["ActiveState"] in {"active", "activating", "reloading", "deactivating"}:
            return None
        status = int(shown["ExecMainStatus"] or 0)
        # CLD_EXITED is 1; a process that a signal ended has that signal's number as its status.
        return status if shown["ExecMainCode"] == "1" else -status

    def main_pid(self, deadline: float) -> int:
        """The pid of its main process, once there is one; 0 when it ended before."""
        while True:
            pid = int(self._show("MainPID")["MainPID"] or 0)
            if pid or self.poll() is not None or time.monotonic() > deadline:
                return pid
            time.sleep(0.02)

    def _show(self, *properties: str) -> dict[str, str]:
        shown = control("show", self.name, f"--property={','.join(properties)}")
        found = dict(line.partition("=")[::2] for line in shown.splitlines())
        return {name: found.get(name, "") for name in properties}


def start(folder: str) -> Unit:
    """The instance of the process in this folder, started."""
    unit = Unit(unit_name(folder))
    control("start", unit.name)
    return unit


def forget(folders: Sequence[str]) -> None:
    """Ended instances leave no trace: a killed one would stay as failed."""
    names = [unit_name(folder) for folder in folders]
    # systemd may not know yet that a process is gone; `stop` returns when it does.
    for verb in ("stop", "reset-failed") if names else ():
        with contextlib.suppress(UnitProblem):  # systemd has forgotten some by itself: they did not fail
            control(verb, *names)

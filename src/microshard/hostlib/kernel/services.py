"""Time service, limits and the unit that sets at boot what sysctl cannot."""

from __future__ import annotations

import os

from ..refused import Refused
from ..storage.commands import run

UNIT = "/etc/systemd/system/microshard-kernel.service"
SYSCTL = "/etc/sysctl.d/90-microshard.conf"
LIMITS = "/etc/security/limits.d/90-microshard.conf"
# In the order in which one is chosen where several are installed.
_TIME_SERVICES = ("chrony", "chronyd", "systemd-timesyncd", "ntpsec", "ntp", "ntpd")


def unit(commands: list[str]) -> str:
    """A unit that runs these at boot, before anything a user would start."""
    if not commands:
        return ""
    lines = "\n".join(f"ExecStart=/bin/sh -c '{command}'" for command in commands)
    return (
        "# microshard: what sysctl cannot set\n[Unit]\nDescription=Kernel settings of microshard\n"
        "DefaultDependencies=no\nAfter=sysinit.target local-fs.target\nBefore=basic.target\n\n"
        f"[Service]\nType=oneshot\nRemainAfterExit=yes\n{lines}\n\n[Install]\nWantedBy=basic.target\n"
    )


def limits(user: str, open_files: int | None) -> str:
    """Limits of sessions of a user; services have LimitNOFILE in their own units."""
    if open_files is None:
        return ""
    lines = [f"{user} {kind} {item} {open_files}" for item in ("nofile", "nproc") for kind in ("soft", "hard")]
    return "\n".join(["# microshard: UNIX ulimit Settings of the MongoDB manual", *lines]) + "\n"


def has_systemd() -> bool:
    """Whether systemd runs this host."""
    return os.path.isdir("/run/systemd/system")


def enable_unit(text: str) -> None:
    """systemd knows the unit and runs it at boot, or has forgotten it."""
    name = os.path.basename(UNIT)
    if text:
        run("systemctl", "daemon-reload")
        run("systemctl", "enable", "--quiet", name)
    else:
        run("systemctl", "disable", "--quiet", name, accept=(0, 1, 5))
        run("systemctl", "daemon-reload")


def time_service() -> tuple[str, bool]:
    """The installed time service and whether it runs; ("", False) when none is installed."""
    chosen = ""
    for name in _TIME_SERVICES:
        state = run("systemctl", "show", "--property=LoadState", "--value", f"{name}.service").strip()
        if state != "loaded":
            continue
        if run("systemctl", "is-active", f"{name}.service", accept=(0, 1, 3, 4)).strip() == "active":
            return name, True
        chosen = chosen or name
    return chosen, False


def switch_time_service(*, on: bool) -> None:
    """A time service runs now and after a reboot, or does not. Refused when none is installed."""
    name, _ = time_service()
    if not name:
        raise Refused("time_sync: no time service is installed on this host; install chrony")
    run("systemctl", "enable" if on else "disable", "--quiet", "--now", f"{name}.service")
    if time_service()[1] is not on:
        raise Refused(f"time_sync: {name} was {'started' if on else 'stopped'}, and it is not so; see its journal")

"""Module host_kernel: set the kernel settings of a host, keep them over a reboot, read them back; or put them back."""

from __future__ import annotations

import os
from typing import Any

from . import kernel_settings as settings
from .errors import HostError
from .files import load_state, put_file, run_command, save_state
from .kernel_settings import SETTINGS, recommended
from .numa import host_cores
from .systemd import is_running as has_systemd

ARGUMENTS = {
    "settings": {"type": "dict", "required": True},
    "version": {"type": "str", "required": True},
    "user": {"type": "str", "default": "root"},
    "state_folder": {"type": "path", "default": "/etc/microshard"},
    "state": {"choices": ["present", "absent"], "default": "present"},
}
_EXPERIMENT = "the experiment"
UNIT = "/etc/systemd/system/microshard-kernel.service"
SYSCTL = "/etc/sysctl.d/90-microshard.conf"
LIMITS = "/etc/security/limits.d/90-microshard.conf"
# In the order in which one is chosen where several are installed.
_TIME_SERVICES = ("chrony", "chronyd", "systemd-timesyncd", "ntpsec", "ntp", "ntpd")
_STATE = "kernel.json"
_NO_FILES = {"open_files", "time_sync"}


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Set and keep the settings, or put them back as they were before."""
    if parameters["state"] == "absent":
        return _absent(parameters, check=check)
    values = resolve(parameters["settings"], parameters["version"])
    problems = [f"{name}: {why}" for name in values if (why := _impossible(name, *values[name]))]
    if problems:
        raise HostError("; ".join(problems) + ". Nothing was changed")
    values = {name: pair for name, pair in values.items() if name in _NO_FILES or SETTINGS[name].paths()}
    return _present(values, parameters, check=check)


def resolve(planned: dict[str, Any], version: str) -> dict[str, tuple[Any, str]]:
    """Setting → (value, where it comes from): the experiment's own, then the production notes where it says so."""
    own = {
        name: value
        for name, value in planned.items()
        if value is not None and name not in {"production_notes", "readahead_sectors"}
    }
    if "transparent_huge_pages" in own:
        own.setdefault("transparent_huge_pages_defrag", own["transparent_huge_pages"])
    values = recommended(version) if planned.get("production_notes") else {}
    values = {name: pair for name, pair in values.items() if name not in own}
    values.update({name: (value, _EXPERIMENT) for name, value in own.items()})
    return {name: (_kernel_word(name, value), source) for name, (value, source) in sorted(values.items())}


def _kernel_word(name: str, value: Any) -> Any:
    """The value as the kernel writes it."""
    if name in _NO_FILES:
        return value
    return ("on" if value else "off") if name == "smt" else str(value)


def _impossible(name: str, value: Any, source: str) -> str:
    """Why a setting that the experiment asks for cannot be had here; "" when it can, or when it is only recommended."""
    if name in _NO_FILES or source != _EXPERIMENT:
        return ""
    setting = SETTINGS[name]
    if setting.value() is None:
        return f"cannot be set on this host: {setting.absent}"
    if name == "smt":
        return settings.smt_problem()
    offered = settings.governors()
    if name == "cpu_governor" and value not in offered:
        return f"this host's CPUs have no governor {value}; there is {', '.join(offered)}"
    return ""


def _present(values: dict[str, tuple[Any, str]], parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    did = []
    before = load_state(parameters["state_folder"], _STATE)
    for name, (value, _) in values.items():
        is_now = value if name == "open_files" else _value(name)
        if is_now == value:
            continue
        did.append(f"{name} {is_now} to {value}")
        if not check:
            before.setdefault(name, is_now)
            # Kept before it is changed: whoever is interrupted here can still find the way back.
            save_state(parameters["state_folder"], _STATE, before)
            _set(name, value)
    # What an earlier experiment set and this one does not ask for goes back.
    for name in sorted(set(before) - set(values)):
        did.append(f"{name} back to {before[name]}")
        if not check:
            _set(name, before.pop(name))
            save_state(parameters["state_folder"], _STATE, before)
    diffs = _files(values, parameters["user"], check=check)
    did += [f"{diff['before_header']} written" for diff in diffs]
    return {
        "changed": bool(did),
        "msg": ", ".join(did) or "as they should be",
        "did": did,
        "diff": diffs,
        "record": _facts(values, before),
    }


def _value(name: str) -> Any:
    if name == "time_sync":
        return time_service()[1] if has_systemd() else False
    return SETTINGS[name].value()


def _set(name: str, value: Any) -> None:
    if name == "time_sync":
        switch_time_service(on=value)
    else:
        SETTINGS[name].set(value)


def _files(values: dict[str, tuple[Any, str]], user: str, *, check: bool) -> list[dict[str, str]]:
    """The files that bring the settings back after a reboot; differences of those that were not right."""
    plain = {name: pair for name, pair in values.items() if name not in _NO_FILES}
    lines, commands = [], []
    for name, (value, source) in plain.items():
        setting = SETTINGS[name]
        if setting.sysctl:
            lines.append(f"# {source}\n{setting.sysctl} = {value}")
        else:
            commands += setting.shell(value)
    texts = {
        SYSCTL: "\n".join(["# microshard", *lines]) + "\n" if lines else "",
        UNIT: unit(commands),
        LIMITS: limits(user, values["open_files"][0] if "open_files" in values else None),
    }
    diffs = []
    for path, text in texts.items():
        changes_unit = path == UNIT and not check and has_systemd()
        if changes_unit and not text and os.path.exists(UNIT):
            run_command("systemctl", "disable", "--quiet", os.path.basename(UNIT), accept=(0, 1, 5))
        diff = put_file(path, text, check=check)
        if diff:
            diffs.append(diff)
            if changes_unit:
                run_command("systemctl", "daemon-reload")
            if changes_unit and text:
                run_command("systemctl", "enable", "--quiet", os.path.basename(UNIT))
    return diffs


def _facts(values: dict[str, tuple[Any, str]], before: dict[str, Any]) -> dict[str, Any]:
    """The settings as they are, read back, with the planned values and their sources."""
    return {
        "release": os.uname().release,
        "numa": len(host_cores().by_node) > 1,
        "is": {**{name: setting.value() for name, setting in SETTINGS.items()}, "time_sync": _value("time_sync")},
        "planned": {name: {"value": value, "source": source} for name, (value, source) in values.items()},
        "before": before,
    }


def _absent(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    before = load_state(parameters["state_folder"], _STATE)
    did = [f"{name} back to {value}" for name, value in before.items()]
    diffs = _files({}, parameters["user"], check=check)
    if not check:
        for name, value in before.items():
            _set(name, value)
        save_state(parameters["state_folder"], _STATE, {})
    did += [f"{diff['before_header']} removed" for diff in diffs]
    return {"changed": bool(did), "msg": ", ".join(did) or "nothing was changed here", "did": did, "diff": diffs}


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


def time_service() -> tuple[str, bool]:
    """The installed time service and whether it runs; ("", False) when none is installed."""
    chosen = ""
    for name in _TIME_SERVICES:
        state = run_command("systemctl", "show", "--property=LoadState", "--value", f"{name}.service").strip()
        if state != "loaded":
            continue
        if run_command("systemctl", "is-active", f"{name}.service", accept=(0, 1, 3, 4)).strip() == "active":
            return name, True
        chosen = chosen or name
    return chosen, False


def switch_time_service(*, on: bool) -> None:
    """A time service runs now and after a reboot, or does not. HostError when none is installed."""
    name, _ = time_service()
    if not name:
        raise HostError("time_sync: no time service is installed on this host; install chrony")
    run_command("systemctl", "enable" if on else "disable", "--quiet", "--now", f"{name}.service")
    if time_service()[1] is not on:
        raise HostError(f"time_sync: {name} was {'started' if on else 'stopped'}, and it is not so; see its journal")

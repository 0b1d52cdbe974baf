"""The kernel settings of a host: set at once, kept over a reboot, read back; or put back as they were."""

from __future__ import annotations

import json
import os
from typing import Any

from ..kernel import services, settings
from ..kernel.notes import recommended
from ..kernel.settings import SETTINGS
from ..refused import Refused
from ..storage import table

ARGUMENTS = {
    "settings": {"type": "dict", "required": True},
    "version": {"type": "str", "required": True},
    "user": {"type": "str", "default": "root"},
    "state_folder": {"type": "path", "default": "/etc/microshard"},
    "state": {"choices": ["present", "absent"], "default": "present"},
}
_ASKED = "asked for by the experiment"
_NO_FILES = {"open_files", "time_sync"}


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The settings are as asked for, or as they were before."""
    if wanted["state"] == "absent":
        return _absent(wanted, check=check)
    values = resolve(wanted["settings"], wanted["version"])
    problems = [f"{name}: {why}" for name in values if (why := _impossible(name, *values[name]))]
    if problems:
        raise Refused("; ".join(problems) + ". Nothing was changed")
    values = {name: pair for name, pair in values.items() if name in _NO_FILES or SETTINGS[name].paths()}
    return _present(values, wanted, check=check)


def resolve(asked: dict[str, Any], version: str) -> dict[str, tuple[Any, str]]:
    """Setting → (value, where it comes from): the experiment's own, then the production notes where it says so."""
    own = {
        name: value
        for name, value in asked.items()
        if value is not None and name not in {"production_notes", "readahead_sectors"}
    }
    if "transparent_huge_pages" in own:
        own.setdefault("transparent_huge_pages_defrag", own["transparent_huge_pages"])
    values = recommended(version) if asked.get("production_notes") else {}
    values = {name: pair for name, pair in values.items() if name not in own}
    values.update({name: (value, _ASKED) for name, value in own.items()})
    return {name: (_kernel_word(name, value), source) for name, (value, source) in sorted(values.items())}


def _kernel_word(name: str, value: Any) -> Any:
    """The value as the kernel writes it."""
    if name in _NO_FILES:
        return value
    return ("on" if value else "off") if name == "smt" else str(value)


def _impossible(name: str, value: Any, source: str) -> str:
    """Why a setting that the experiment asks for cannot be had here; "" when it can, or when it is only recommended."""
    if name in _NO_FILES or source != _ASKED:
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


def _present(values: dict[str, tuple[Any, str]], wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    did = []
    before = _remembered(wanted["state_folder"])
    for name, (value, _) in values.items():
        is_now = value if name == "open_files" else _value(name)
        if is_now == value:
            continue
        did.append(f"{name} {is_now} to {value}")
        if not check:
            before.setdefault(name, is_now)
            # Kept before it is changed: whoever is interrupted here can still find the way back.
            _remember(wanted["state_folder"], before)
            _set(name, value)
    # What an earlier experiment set and this one does not ask for goes back.
    for name in sorted(set(before) - set(values)):
        did.append(f"{name} back to {before[name]}")
        if not check:
            _set(name, before.pop(name))
            _remember(wanted["state_folder"], before)
    diffs = _files(values, wanted["user"], check=check)
    did += [f"{diff['before_header']} written" for diff in diffs]
    return {
        "changed": bool(did),
        "msg": ", ".join(did) or "as they should be",
        "did": did,
        "diff": diffs,
        "kernel": _facts(values, before),
    }


def _value(name: str) -> Any:
    if name == "time_sync":
        return services.time_service()[1] if services.has_systemd() else False
    return SETTINGS[name].value()


def _set(name: str, value: Any) -> None:
    if name == "time_sync":
        services.switch_time_service(on=value)
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
        services.SYSCTL: "\n".join(["# microshard", *lines]) + "\n" if lines else "",
        services.UNIT: services.unit(commands),
        services.LIMITS: services.limits(user, values["open_files"][0] if "open_files" in values else None),
    }
    diffs = []
    for path, text in texts.items():
        diff = table.changed(path, text)
        if diff:
            diffs.append(diff)
            if not check:
                if path == services.UNIT and not text and services.has_systemd():
                    services.enable_unit("")
                table.write(path, text)
                if path == services.UNIT and text and services.has_systemd():
                    services.enable_unit(text)
    return diffs


def _facts(values: dict[str, tuple[Any, str]], before: dict[str, Any]) -> dict[str, Any]:
    """What is, read back, with what was asked for and why."""
    return {
        "release": settings.release(),
        "numa": settings.is_numa(),
        "is": {**settings.describe(), "time_sync": _value("time_sync")},
        "asked": {name: {"value": value, "source": source} for name, (value, source) in values.items()},
        "before": before,
    }


def _absent(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    before = _remembered(wanted["state_folder"])
    did = [f"{name} back to {value}" for name, value in before.items()]
    diffs = _files({}, wanted["user"], check=check)
    if not check:
        for name, value in before.items():
            _set(name, value)
        _remember(wanted["state_folder"], {})
    did += [f"{diff['before_header']} removed" for diff in diffs]
    return {"changed": bool(did), "msg": ", ".join(did) or "nothing was changed here", "did": did, "diff": diffs}


def _state(folder: str) -> str:
    return os.path.join(folder, "kernel.json")


def _remembered(folder: str) -> dict[str, Any]:
    return dict(json.loads(table.whole(_state(folder)) or "{}"))


def _remember(folder: str, values: dict[str, Any]) -> None:
    table.write(_state(folder), json.dumps(values, indent=1) + "\n" if values else "")

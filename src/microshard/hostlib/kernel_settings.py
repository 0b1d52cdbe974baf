"""Module kernel_settings: settings of the kernel saved, verified, put back, where roles change them; the page cache."""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .errors import HostError
from .files import put_file, read_text, read_value, run_command
from .numa import host_cores

_SETTING = {
    "name": {"type": "str", "required": True},
    "path": {"type": "str", "default": ""},
    "services": {"type": "list", "elements": "str", "default": []},
    "sysctl": {"type": "str", "default": ""},
    "missing": {"type": "str", "default": ""},
    "offered": {"type": "str", "default": ""},
    "fixed": {"type": "list", "elements": "str", "default": []},
}
ARGUMENTS = {
    "settings": {"type": "list", "elements": "dict", "options": _SETTING, "required": True},
    "values": {"type": "dict", "default": {}},
    "recommended": {"type": "dict", "default": {}},
    "later": {"type": "list", "elements": "dict", "default": []},
    "state": {"choices": ["saved", "verified", "restored"], "required": True},
    "state_file": {"type": "path", "required": True},
    "files": {"type": "list", "elements": "path", "default": []},
    "record": {"type": "path"},  # of the action plugin
}
REQUESTED = "the experiment"


@dataclass(frozen=True)
class Setting:
    """A value behind one or several files of the kernel with the same content, or whether a service is active."""

    name: str
    path: str = ""  # a pattern: some settings have a file for each CPU
    services: tuple[str, ...] = ()  # alternatives, in the order in which one is chosen where several are installed
    sysctl: str = ""  # its name for sysctl
    missing: str = ""  # what it means that the file does not exist
    offered: str = ""  # pattern of files with the words that are possible
    fixed: tuple[str, ...] = ()  # values that cannot be changed

    def value(self) -> str | None:
        """Its value now, None where the host has none. In a list of words the chosen one is in brackets."""
        if self.services:
            return service(self.services)[1]
        texts = {read_value(path) for path in glob.glob(self.path)}
        chosen = {match.group(1) if (match := re.search(r"\[([^]]+)\]", text)) else text for text in texts}
        return ", ".join(sorted(chosen)) if chosen else None

    def set(self, value: str) -> None:
        """Write it and read it back. HostError when it is not accepted."""
        try:
            if self.services:
                action = "enable" if value == "active" else "disable"
                run_command("systemctl", action, "--quiet", "--now", f"{service(self.services)[0]}.service")
            for path in glob.glob(self.path):
                with open(path, "w", encoding="ascii") as file:
                    file.write(f"{value}\n")
        except OSError as error:
            raise HostError(f"{self.name}: {error.filename} does not take {value}: {error.strerror}") from None
        self.verify(value)

    def verify(self, value: str) -> None:
        """HostError when the value read back is another than the one that was set."""
        found = self.value()
        if found != value:
            raise HostError(f"{self.name} was set to {value} and is {found} ({self.path or ', '.join(self.services)})")

    def impossible(self, value: str) -> str:
        """Why it cannot have this value on this host; "" when it can."""
        found = self.value()
        if found is None or (value == "active" and not service(self.services)[0]):
            return f"cannot be set on this host: {self.missing}"
        if found in self.fixed:
            return f"is {found} here and cannot be changed"
        words = [set(read_value(path).split()) for path in glob.glob(self.offered)]
        if words and value not in set.intersection(*words):
            return f"this host has no {value}; there is {', '.join(sorted(set.intersection(*words)))}"
        return ""


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Save what the settings are before they are changed, verify them after it, or put them back."""
    settings = {entry["name"]: Setting(**entry) for entry in parameters["settings"]}
    before = json.loads(read_text(parameters["state_file"]) or "{}")
    files = {"files": [path for path in parameters["files"] if os.path.lexists(path)]}
    if parameters["state"] == "restored":
        return _restored(settings, before, list(before), parameters["state_file"], check=check) | files
    for values in parameters["later"]:  # refused now, not in the middle of a run
        _planned(settings, {"recommended": {}, "values": values})
    planned = _planned(settings, parameters)
    if parameters["state"] == "saved":
        return _saved(settings, planned, before, parameters["state_file"], check=check) | files
    if not check:
        for name, entry in planned.items():
            if name in settings:
                settings[name].verify(entry["value"])
    values = {name: setting.value() for name, setting in settings.items()}
    numa = len(host_cores().by_node) > 1
    facts = {"release": os.uname().release, "numa": numa, "is": values, "planned": planned, "before": before}
    return {"msg": "as they should be", "record": facts}


def _planned(settings: dict[str, Setting], parameters: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Setting → value, as the kernel writes it, and where it comes from. HostError for values that cannot be had.

    A value that is only recommended is left out where the host does not have the setting.
    """
    pairs = {name: (entry["value"], entry["source"]) for name, entry in parameters["recommended"].items()}
    pairs.update({name: (value, REQUESTED) for name, value in parameters["values"].items()})
    planned, problems = {}, []
    for name, (value, source) in sorted(pairs.items()):
        setting = settings.get(name)  # limits are no setting of the kernel: recorded, not read
        text = _kernel_word(value, is_service=bool(setting and setting.services))
        problem = setting.impossible(text) if setting else ""
        if problem and (source == REQUESTED or (setting and setting.services)):
            problems.append(f"{name}: {problem}")
        elif not problem:
            planned[name] = {"value": text, "source": source}
    if problems:
        raise HostError("; ".join(problems) + ". Nothing was changed")
    return planned


def _kernel_word(value: Any, *, is_service: bool) -> str:
    if isinstance(value, bool):
        words = ("active", "inactive") if is_service else ("on", "off")
        return words[0] if value else words[1]
    return str(value)


def _saved(
    settings: dict[str, Setting],
    planned: dict[str, dict[str, str]],
    before: dict[str, str],
    state_file: str,
    *,
    check: bool,
) -> dict[str, Any]:
    differ = {
        name: found
        for name, entry in planned.items()
        if name in settings and (found := settings[name].value() or "") != entry["value"]
    }
    stale = sorted(set(before) & set(settings) - set(planned))
    if not check and differ:
        _write(state_file, {**differ, **before})
    # What an earlier experiment has set and this one does not ask for.
    result = _restored(settings, {**differ, **before}, stale, state_file, check=check)
    names = [name for name, setting in settings.items() if setting.services]
    chosen = {name: service(settings[name].services)[0] for name in names}
    return {**result, "planned": planned, "differ": sorted(differ), "services": chosen}


def _restored(
    settings: dict[str, Setting], before: dict[str, str], names: list[str], state_file: str, *, check: bool
) -> dict[str, Any]:
    did = [f"{name} back to {before[name]}" for name in names]
    for number, name in enumerate([] if check else names, 1):
        if name in settings:
            settings[name].set(before[name])
        _write(state_file, {other: value for other, value in before.items() if other not in names[:number]})
    return {"changed": bool(did), "msg": ", ".join(did) or "nothing to put back", "did": did}


def _write(state_file: str, before: dict[str, str]) -> None:
    put_file(state_file, json.dumps(before, indent=1) + "\n" if before else "", check=False)


def service(names: Iterable[str]) -> tuple[str, str]:
    """The service of these that runs, else the first that is installed, else ""; and "active" or "inactive"."""
    chosen = ""
    for name in names if os.path.isdir("/run/systemd/system") else ():
        state = run_command("systemctl", "show", "--property=LoadState,ActiveState", f"{name}.service")
        if "LoadState=loaded" in state:
            if "ActiveState=active" in state:
                return name, "active"
            chosen = chosen or name
    return chosen, "inactive"


_DROP = "/proc/sys/vm/drop_caches"


def drop_page_cache(path: str = _DROP) -> str:
    """Write dirty pages and drop the page cache, by sudo where that is needed: "dropped", or "not dropped (reason)"."""
    os.sync()
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write("3\n")
    except PermissionError:
        return "dropped" if _drop_by_sudo(path) else "not dropped (not root)"
    except OSError as error:
        return f"not dropped ({error.strerror})"
    return "dropped"


def _drop_by_sudo(path: str) -> bool:
    words = ["sudo", "-n", "/bin/sh", "-c", 'echo 3 > "$0"', path]
    try:
        return subprocess.run(words, capture_output=True, check=False, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False

"""Whether a running server has the planned limits and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Lines of /proc/PID/limits by the name of the limit in systemd and setrlimit(2), lower case.
_LIMITS = {
    "nofile": "Max open files",
    "nproc": "Max processes",
    "memlock": "Max locked memory",
    "fsize": "Max file size",
    "as": "Max address space",
    "cpu": "Max cpu time",
}


def limits_of(pid: int) -> dict[str, list[str]]:
    """Soft and hard limit of each kind, as /proc/PID/limits has them."""
    with open(f"/proc/{pid}/limits", encoding="ascii") as file:
        lines = file.readlines()
    found = {}
    for name, label in _LIMITS.items():
        for line in lines:
            if line.startswith(label):
                found[name] = line[len(label) :].split()[:2]
    return found


def limits_difference(
    wanted: Mapping[str, Any], found: Mapping[str, list[str]], most: Mapping[str, list[str]] | None = None
) -> str:
    """Which limit differs from the planned one (a number or `infinity`); "" when none does.

    `infinity` is as much as the host gives: in a container, no more than pid 1 has (`most`).
    """
    for name, value in wanted.items():
        word = "unlimited" if str(value) == "infinity" else str(value)
        soft = found.get(name, ["unknown"])[0]
        ceiling = (most or {}).get(name, [word])[-1]
        if soft != word and not (word == "unlimited" and soft == ceiling):
            return f"has the limit {name} {soft}, planned is {word}"
    return ""


def options_difference(wanted: Mapping[str, Any], found: Mapping[str, Any], path: str = "") -> str:
    """The first option in which the server differs from its configuration file; "" when there is none.

    The server writes some values in another form (parameters as text, numbers as doubles), which is no difference.
    """
    for key, value in wanted.items():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            inner = found.get(key)
            if value and not isinstance(inner, Mapping):
                return f"has no {here}"
            difference = options_difference(value, inner or {}, here)
            if difference:
                return difference
        elif key not in found:
            return f"has no {here}, its configuration file says {value}"
        elif _plain(found[key]) != _plain(value):
            return f"has {here} {found[key]}, its configuration file says {value}"
    return ""


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return f"{float(value):.9g}"
    except (TypeError, ValueError):
        return str(value)

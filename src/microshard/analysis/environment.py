"""Whether two measurements were made under the same conditions: kernel, its settings, hardware and versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Points along these axes differ in their environment because they were asked to; only their equals are compared.
_OWN_AXES = ("infrastructure.", "topology.mongodb.")


def _plain(environment: Mapping[str, Any]) -> dict[str, str]:
    """Setting → value as text. Device names are left out: the same volume has another name on another host."""
    found = {}
    for name, value in environment.items():
        values = sorted(set(map(str, value.values()))) if isinstance(value, Mapping) else [str(value)]
        found[name] = " ".join(values)
    return found


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Settings in which two environments differ, each as `name: one here, other there`; empty when they are alike."""
    a, b = _plain(first), _plain(second)
    return [f"{name}: {a.get(name, 'unknown')} at first, {b.get(name, 'unknown')} here"
            for name in dict.fromkeys((*a, *b)) if a.get(name) != b.get(name)]  # fmt: skip


@dataclass(slots=True)
class EnvironmentBook:
    """Remembers the first environment of every kind of host and compares all later ones with it."""

    first: dict[tuple[Any, ...], tuple[str, dict[str, Any]]] = field(default_factory=dict)  # kind → where, environment

    def differs(self, result: Mapping[str, Any], point: Mapping[str, Any]) -> list[str]:
        """One sentence for each setting that is not what it was; nothing is known of a result without telemetry."""
        axes = tuple(sorted((k, str(v)) for k, v in point.get("axes", {}).items() if k.startswith(_OWN_AXES)))
        groups = {str(host["name"]): tuple(host.get("groups", ())) for host in point.get("hosts", [])}
        found = []
        for host, environment in (result.get("environment") or {}).items():
            here = f"{result.get('point')} {result.get('step')}"
            kind = (groups.get(host, (host,)), axes)
            where, known = self.first.setdefault(kind, (here, dict(environment)))
            found += [f"{host}: {text} (first: {where})" for text in differences(known, environment)]
        versions = {"MongoDB": " ".join(result.get("versions") or [])}
        if versions["MongoDB"]:
            where, known = self.first.setdefault(("versions", axes), (f"{result.get('point')}", versions))
            found += [f"{text} (first: {where})" for text in differences(known, versions)]
        return found

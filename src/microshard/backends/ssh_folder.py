"""What the plan of a run says of its hosts as a whole, for what is done to them when no point is in hand."""

from __future__ import annotations

import json
from typing import Any

from microshard.records.run_folder import RunFolder


def of_plan(folder: RunFolder) -> tuple[dict[str, str], dict[str, Any]]:
    """Additions to `microshard_run`, and `machines` of all points together: what was ever set has to be put back.

    Both empty where no plan was written.
    """
    try:
        points = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["points"]
    except (OSError, ValueError, KeyError):
        return {}, {}
    chosen = {point.get("process_manager", "auto") for point in points} - {"auto"}
    # What was started as root is looked at and removed as root.
    manager = {"process_manager": max(chosen)} if chosen else {}
    machines: dict[str, Any] = {}
    for point in points:
        for group, wanted in point.get("machines", {}).items():
            there = machines.setdefault(group, {"volumes": {}, "kernel": {}})
            for part in ("volumes", "kernel"):
                there[part] |= {key: value for key, value in wanted[part].items() if value is not None}
    return manager, machines

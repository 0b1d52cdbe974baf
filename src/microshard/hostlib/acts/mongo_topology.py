"""Running processes as the planned topology."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..access import of_run
from ..refused import Refused

try:
    from pymongo.errors import PyMongoError

    from ..topology import users
    from ..topology.build import build
    from ..topology.server import Deadline
except ImportError as error:
    _MISSING = str(error)
else:
    _MISSING = ""

ARGUMENTS = {
    "point": {"type": "dict", "required": True},
    "run_folder": {"type": "path", "default": ""},
    "timeout": {"type": "float", "default": 90},
}


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The processes form the topology."""
    if _MISSING:
        raise Refused(f"the controller's Python lacks pymongo: {_MISSING}")
    try:
        access = of_run(wanted["run_folder"], wanted["point"].get("security"))
        point, seconds = wanted["point"], wanted["timeout"]
        processes = point["processes"]
        changes = build(point, Deadline(seconds, access, processes), check=check)
        changes += users.create(point, wanted["run_folder"], Deadline(seconds, access, processes), check=check)
    except (PyMongoError, Refused) as problem:
        raise Refused(named(str(problem), wanted["point"]["processes"])) from None
    return {
        "changed": bool(changes),
        "msg": f"{len(changes)} changes" if changes else "as planned",
        "changes": changes,
        "diff": {"before": "", "after": "".join(f"{change}\n" for change in changes)} if changes else {},
    }


def named(text: str, processes: Sequence[dict[str, Any]]) -> str:
    """A server's words with the names of the processes and hosts whose addresses it tells."""
    for process in processes:
        name = process["name"] if process["host"] == "local" else f"{process['name']} on {process['host']}"
        address = re.escape(f"{process['address']}:{process['port']}")
        text = re.sub(rf"(?<![\d.]){address}(?!\d)", rf"\g<0> ({name})", text, count=1)
    return text

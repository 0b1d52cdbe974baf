"""What an engine cannot do from the client host, asked of the play that has started it.

Mongods on other hosts cannot be restarted from here, nor can page caches there be dropped. The engine writes
`asks/ask-N.json` beside its result, the role `workload` has it done on the hosts, and the answer stands in
`asks/answer-N.json`; docs/contracts.md has both.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from microshard.model.job import ProcessInfo
from microshard.workloads.base import Context, PhaseError

# SIGTERM to SIGKILL 30 s, start 60 s (roles/mongo_processes/defaults), and what Ansible needs for many hosts.
ANSWER_SECONDS = 300.0
POLL_SECONDS = 0.02


def restarted(
    context: Context,
    processes: Sequence[ProcessInfo],
    *,
    kill: bool = False,
    drop_page_cache: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Have mongods restarted, ended by SIGTERM or `kill`ed; with `drop_page_cache` that of their hosts in between.

    `meanwhile` is called again and again until it is done.

    Returns host → "dropped" or "not dropped (reason)". Each mongod answers by then; whether it is primary or secondary
    is for the caller to wait for. Raises PhaseError: CannotAsk without a folder, NotAnswered, or DoesNotStart with the
    play's own words.
    """
    if context.folder is None:
        raise PhaseError("CannotAsk", "an engine without a folder for its files cannot ask for anything on hosts")
    names = [process.name for process in processes]
    what = {"restart": names, "kill": kill, "drop_page_cache": drop_page_cache}
    answer = _ask(context.folder / "asks", what, meanwhile)
    if answer.get("error"):
        raise PhaseError("DoesNotStart", str(answer["error"]))
    return {str(host): str(said) for host, said in (answer.get("page_cache") or {}).items() if said}


def _ask(folder: Path, what: dict[str, Any], meanwhile: Callable[[], None]) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    number = 1 + len(list(folder.glob("ask-*.json")))
    draft = folder / f".ask-{number}.{os.getpid()}"
    draft.write_text(json.dumps(what) + "\n", encoding="utf-8")
    draft.replace(folder / f"ask-{number}.json")
    answered, deadline = folder / f"answer-{number}.json", time.monotonic() + ANSWER_SECONDS
    while not answered.exists():
        if time.monotonic() > deadline:
            names = ", ".join(what["restart"])
            raise PhaseError(
                "NotAnswered",
                f"nobody has restarted {names} in {ANSWER_SECONDS:.0f} s; it is the role workload that does",
            )
        meanwhile()
        time.sleep(POLL_SECONDS)
    found: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    return found

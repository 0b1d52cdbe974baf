"""A syncing member is ended by SIGKILL and started again, here or, when it is asked of the play, on its host."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from pymongo.errors import PyMongoError

from microshard.model.job import ProcessInfo
from microshard.workloads import cold
from microshard.workloads import restart_request as asking
from microshard.workloads.base import Client, Context, PhaseError

LOOK_SECONDS = 0.1


def kill_and_start(context: Context, info: ProcessInfo, member: Client, look: Callable[[], int | None]) -> float:
    """The moment it was started again, by our clock. Raises PhaseError with what kept it from that.

    On its host it is killed a second or two after it was asked for. Until then `look` sees how far it comes; None from
    it says that it is gone.
    """
    if not context.job.asks:
        running = cold.find(info)
        cold.stop([running], signal.SIGKILL)
        cold.launch(running)
        return time.time()
    is_there = True

    def meanwhile() -> None:
        nonlocal is_there
        is_there = is_there and look() is not None

    asking.restarted(context, [info], kill=True, meanwhile=meanwhile)
    return _started_at(info, member)


def _started_at(info: ProcessInfo, member: Client) -> float:
    """By what the member says of itself: the answer of the play comes a while later."""
    deadline = time.time() + cold.START_SECONDS
    while True:
        asked = time.time()
        try:
            up = member.admin.command("serverStatus")["uptimeMillis"]
        except PyMongoError as error:  # connections of before are found to be gone, one after the other
            if asked > deadline:
                raise PhaseError("DoesNotStart", f"{info.name} does not answer after its restart: {error}") from error
            time.sleep(LOOK_SECONDS)
        else:
            return (asked + time.time()) / 2 - float(up) / 1000

"""Log rotation by logrotate: a file a run, for hosts whose logrotate runs by a timer or cron."""

from __future__ import annotations

import os
import shutil

from .run_folder import on_volumes, write_atomically

FOLDER = "/etc/logrotate.d"
_SIZE, _KEPT = "1G", 4  # far above what a measurement writes: a rotation beside one would be seen in it


def path(run_folder: str, folder: str = FOLDER) -> str:
    """The run's file."""
    return os.path.join(folder, f"microshard-{os.path.basename(run_folder)}")


def text(run_folder: str, user: str) -> str:
    """Logs are renamed, then the server reopens its own by SIGUSR1 (`systemLog.logRotate: reopen`): nothing is lost.

    copytruncate would lose what is written between the copy and the cut. Whose log it is, is in its path:
    …/POINT/NAME/mongod.log, in the run's folder and on a volume for logs.
    """
    logs = [f"{run_folder}/deployments/*/*/mongo[ds].log"]
    logs += [f"{root}/*/*/mongo[ds].log" for root in on_volumes(run_folder)]
    return f"""# Logs of a run of microshard; removed with the run.
{" ".join(logs)} {{
    su {user} {user}
    size {_SIZE}
    rotate {_KEPT}
    nocreate
    nocopytruncate
    nocompress
    missingok
    nosharedscripts
    postrotate
        folder=$(dirname "$1"); name=${{folder##*/}}; point=${{folder%/*}}; point=${{point##*/}}
        kill -USR1 "$(cat "{run_folder}/deployments/$point/$name/pid")"
    endscript
}}
"""


def install(run_folder: str, user: str, *, check: bool, folder: str = FOLDER) -> bool:
    """The run's file is there, where the host has logrotate; whether it had to be written."""
    if not os.path.isdir(folder) or shutil.which("logrotate", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        return False
    wanted, target = text(run_folder, user), path(run_folder, folder)
    try:
        with open(target, encoding="utf-8") as file:
            if file.read() == wanted:
                return False
    except OSError:
        pass
    if not check:
        write_atomically(target, wanted)
    return True


def remove(run_folder: str, *, check: bool, folder: str = FOLDER) -> bool:
    """The run's file is gone; whether it was there."""
    target = path(run_folder, folder)
    if not os.path.exists(target):
        return False
    if not check:
        os.unlink(target)
    return True

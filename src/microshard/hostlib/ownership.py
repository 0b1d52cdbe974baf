"""What belongs to a run: nothing is written, signalled or removed outside of its folder."""

from __future__ import annotations

import glob
import json
import os

from .errors import HostError

VOLUMES = "/srv/microshard"  # where the role host_storage mounts all volumes but the data volume


def require_run_folder(folder: str) -> str:
    """The run's folder with links resolved; HostError unless its run.json carries the marker of microshard."""
    marker = os.path.join(folder, "run.json")
    try:
        with open(marker, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError) as error:
        raise HostError(
            f"{folder} is not a folder of a run: {marker} cannot be read ({error}). Nothing was touched"
        ) from None
    if not isinstance(content, dict) or not content.get("microshard") or not content.get("run_id"):
        raise HostError(
            f"{folder} is not a folder of a run: {marker} lacks 'microshard' or 'run_id'. Nothing was touched"
        )
    return os.path.realpath(folder)


def require_below(run_folder: str, path: str) -> str:
    """`path` with links resolved; HostError unless it lies strictly below the run's (resolved) folder."""
    real = os.path.realpath(path)
    if os.path.commonpath([run_folder, real]) != run_folder or real == run_folder:
        raise HostError(f"{path} is not below the run's folder {run_folder}. Nothing was touched")
    return real


def require_own(run_folder: str, path: str) -> str:
    """As require_below, or in the run's folder on a volume: VOLUMES/NAME/RUN/…, for a run's name has a random part."""
    real = os.path.realpath(path)
    parts = os.path.relpath(real, VOLUMES).split("/")
    if len(parts) > 2 and parts[0] != ".." and parts[1] == os.path.basename(run_folder):
        return real
    return require_below(run_folder, path)


def on_volumes(run_folder: str) -> list[str]:
    """The run's folders on the volumes of this host that are mounted."""
    found = glob.glob(os.path.join(glob.escape(VOLUMES), "*", glob.escape(os.path.basename(run_folder))))
    return sorted(path for path in found if os.path.ismount(os.path.dirname(path)))

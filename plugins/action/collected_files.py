"""Fetches files of a host into the run's folder of the controller; on this machine that is the same folder."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.microshard.lab.plugins.action.in_process import ActionModule as InProcess


class ActionModule(InProcess):  # type: ignore[misc]  # ansible has no types
    """One archive per host and step, instead of one task per file."""

    def execute(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Pack on the host, fetch, compare the checksum, unpack."""
        target = str(arguments["controller_folder"])
        if self._connection.transport == "local" and os.path.realpath(target) == os.path.realpath(
            str(arguments["run_folder"])
        ):
            return {"changed": False, "msg": "the files are on the controller already"}
        result = dict(super().execute(arguments, variables))
        if result.get("failed") or not result.get("archive"):
            return result
        with tempfile.TemporaryDirectory() as temporary:
            local = os.path.join(temporary, "collected.tgz")
            self._connection.fetch_file(result["archive"], local)
            with open(local, "rb") as file:
                if hashlib.sha256(file.read()).hexdigest() != result["sha256"]:
                    raise AnsibleActionFail(f"{result['archive']} arrived with another checksum")
            arrived = self._unpack(local, target, [str(name) for name in arguments["folders"]])
        return {**result, "changed": arrived > 0}

    def _unpack(self, archive: str, target: str, folders: list[str]) -> int:
        """Extract the files that are not here yet; a host can write nowhere but into the requested folders."""
        arrived = 0
        with tarfile.open(archive) as tar:
            for member in tar:
                name = os.path.normpath(member.name)
                if not member.isreg() or not any(f"{name}/".startswith(f"{folder}/") for folder in folders):
                    raise AnsibleActionFail(f"the host sent {member.name}, which was not requested")
                path = os.path.join(target, name)
                if os.path.isfile(path) and _alike(os.stat(path), member):
                    continue
                arrived += 1
                os.makedirs(os.path.dirname(path), exist_ok=True)
                source = tar.extractfile(member)
                with open(f"{path}.new", "wb") as file:
                    while source and (block := source.read(1 << 20)):
                        file.write(block)
                os.utime(f"{path}.new", (member.mtime, member.mtime))
                os.replace(f"{path}.new", path)
        return arrived


def _alike(file: os.stat_result, member: tarfile.TarInfo) -> bool:
    """Whether a file has the size and the time of one in the archive."""
    return file.st_size == member.size and abs(file.st_mtime - member.mtime) < 0.001

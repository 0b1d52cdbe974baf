"""Sends the wheels of the client's environment to a host that has none yet."""

from __future__ import annotations

import os
import tarfile
import tempfile
from typing import Any

from ansible.plugins.loader import action_loader


class ActionModule(action_loader.get("microshard_act", class_only=True)):  # type: ignore[misc]  # ansible has no types
    """Looks first: the second run sends nothing."""

    def perform(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Look, send the wheels in one archive where the environment is missing, and have it made."""
        result = dict(super().perform(arguments, variables))
        if result.get("failed") or result.get("there") or self._task.check_mode:
            return result
        wheels = str(arguments["wheels"])
        # Below the run's folder and unique to the host; the module removes it.
        remote = os.path.join(variables["microshard_run"]["folder"], "tmp", "wheels.tar")
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            with tarfile.open(file.name, "w") as tar:
                for name in sorted(os.listdir(wheels)):
                    tar.add(os.path.join(wheels, name), arcname=name)
            self._connection.put_file(file.name, remote)
        return dict(super().perform({**arguments, "archive": remote}, variables))

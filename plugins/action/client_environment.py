"""Sends the wheels of the client's environment to a host that lacks it."""

from __future__ import annotations

import os
import tarfile
import tempfile
from typing import Any

from ansible.plugins.loader import action_loader


class ActionModule(action_loader.get("in_process", class_only=True)):  # type: ignore[misc]  # ansible has no types
    """Asks the host first, so that a second run sends nothing."""

    def execute(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Send the wheels in one archive where the environment is missing, and have it created."""
        result = dict(super().execute(arguments, variables))
        if result.get("failed") or result.get("exists") or self._task.check_mode:
            return result
        wheels = str(arguments["wheels"])
        # Below the run's folder and unique to the host; the module removes it.
        remote = os.path.join(variables["microshard_run"]["folder"], "tmp", "wheels.tar")
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            with tarfile.open(file.name, "w") as tar:
                for name in sorted(os.listdir(wheels)):
                    tar.add(os.path.join(wheels, name), arcname=name)
            self._connection.put_file(file.name, remote)
        return dict(super().execute({**arguments, "archive": remote}, variables))

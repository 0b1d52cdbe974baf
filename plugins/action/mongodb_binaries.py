"""Sends the binaries of a run to a host that lacks them."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.loader import action_loader


class ActionModule(action_loader.get("in_process", class_only=True)):  # type: ignore[misc]  # ansible has no types
    """Asks the host first, so that binaries of the same checksum are not sent again."""

    def execute(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Send file or tarball where it is missing, have it installed and checked."""
        result = dict(super().execute(arguments, variables))
        if result.get("failed") or result.get("exists") or self._task.check_mode:
            return result
        source = str(arguments["install"]["source"])
        # Below the run's folder; the module moves or removes it.
        remote = os.path.join(variables["microshard_run"]["folder"], "tmp", os.path.basename(source) + ".sent")
        self._connection.put_file(source, remote)
        return dict(super().execute({**arguments, "archive": remote}, variables))

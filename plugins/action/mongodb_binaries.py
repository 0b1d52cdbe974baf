"""Sends the binaries of a run to a host that has not got them yet."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.loader import action_loader


class ActionModule(action_loader.get("microshard_act", class_only=True)):  # type: ignore[misc]  # ansible has no types
    """Looks first: what a host has by its checksum is not sent again, and the host needs no other network than ours."""

    def perform(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Look, send file or tarball where it is missing, have it put in place and tried."""
        result = dict(super().perform(arguments, variables))
        if result.get("failed") or result.get("there") or self._task.check_mode:
            return result
        source = str(arguments["install"]["source"])
        # Below the run's folder; the module moves or removes it.
        remote = os.path.join(variables["microshard_run"]["folder"], "tmp", os.path.basename(source) + ".sent")
        self._connection.put_file(source, remote)
        return dict(super().perform({**arguments, "arrived": remote}, variables))

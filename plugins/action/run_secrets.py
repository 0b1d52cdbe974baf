"""Sends the secrets of a run to a host, all in one task."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.loader import action_loader


class ActionModule(action_loader.get("microshard_act", class_only=True)):  # type: ignore[misc]  # ansible has no types
    """A task a file costs a second a host; the files are a few hundred bytes."""

    def perform(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Read them here, have them written there."""
        files = {}
        for name in arguments["names"]:
            path = os.path.join(str(arguments["source"]), str(name))
            try:
                with open(path, encoding="utf-8") as file:
                    files[str(name)] = file.read()
            except OSError as error:
                raise AnsibleActionFail(f"{path} cannot be read: {error.strerror}") from error
        return dict(super().perform({**arguments, "files": files}, variables))

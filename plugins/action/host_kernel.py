"""Has the act performed on the host and keeps, on the controller, what the host said."""

from __future__ import annotations

from typing import Any

from ansible.plugins.loader import action_loader


class ActionModule(action_loader.get("microshard_act", class_only=True)):  # type: ignore[misc]  # ansible has no types
    """Two tasks less a host, each of which would start Python twice on the controller."""

    def perform(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """The settings as `record` where one is asked for."""
        record = arguments.pop("record", None)
        result = dict(super().perform(arguments, variables))
        self.keep(record, result.get("kernel"))
        return result

"""Reports to the runner what Ansible does: one JSON object per line, on an inherited file descriptor."""

from __future__ import annotations

DOCUMENTATION = """
name: microshard_events
type: notification
short_description: One JSON line an event on an inherited file descriptor
description:
  - Writes to the file descriptor that E(MICROSHARD_EVENTS_FD) names. Every line has C(event) and C(time), in seconds
    since the epoch. C(event) is playbook, play, task (one begins), result (of a task on a host) or stats.
  - A result has C(status) (ok, changed, failed, unreachable or skipped), C(message) and C(duration) in seconds.
  - Without that variable it does nothing, so a play run by hand is not changed by it.
  - Of a task with C(no_log) only its name, host, status and duration are written.
requirements:
  - enabled in ansible.cfg by C(callbacks_enabled)
options: {}
"""

import json
import os
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

_VARIABLE = "MICROSHARD_EVENTS_FD"
# Keys of the results of this project's modules that the runner's journal keeps.
_RESULT_KEYS = ("seconds", "processes", "changes", "phases", "logs", "facts", "run", "image_bytes")


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible has no types
    """The callback, as Ansible loads it."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "microshard.lab.microshard_events"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._began: dict[tuple[str, str], float] = {}
        number = os.environ.get(_VARIABLE, "")
        self._descriptor = int(number) if number.isdigit() else -1
        try:
            os.fstat(self._descriptor)
        except OSError:
            self.disabled = True

    def _write(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, "time": round(time.time(), 3), **fields}, default=str, separators=(",", ":"))
        try:
            # One write a line: a reader never sees two lines mixed.
            os.write(self._descriptor, line.encode() + b"\n")
        except OSError:
            self.disabled = True  # the runner is gone; the play goes on

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """A playbook begins."""
        self._write("playbook", playbook=os.path.basename(str(playbook._file_name)))

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """A play begins."""
        self._write("play", play=play.get_name())

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002 - Ansible's signature
        """A task begins; the check of a role's arguments is not worth a line unless it fails."""
        if task.action.rpartition(".")[2] == "validate_argument_spec":
            return
        self._write("task", task=task.name or task.action, role=_role(task), action=task.action)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """A task begins on a host."""
        self._began[(host.name, task._uuid)] = time.monotonic()

    def v2_runner_on_ok(self, result: Any) -> None:
        """A task succeeded."""
        if result.task.action.rpartition(".")[2] != "validate_argument_spec":
            self._write_result(result, "changed" if result.is_changed() else "ok")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """A task failed."""
        self._write_result(result, "failed", ignored=ignore_errors)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """A host could not be reached."""
        self._write_result(result, "unreachable")

    def v2_runner_on_skipped(self, result: Any) -> None:
        """A task was skipped."""
        self._write_result(result, "skipped")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """The playbook ended."""
        self._write("stats", hosts={host: stats.summarize(host) for host in sorted(stats.processed)})

    def _write_result(self, result: Any, status: str, *, ignored: bool = False) -> None:
        task, host, content = result.task, result.host.name, result.result
        began = self._began.pop((host, task._uuid), None)
        fields: dict[str, Any] = {
            "host": host,
            "task": task.name or task.action,
            "role": _role(task),
            "status": status,
            "duration": None if began is None else round(time.monotonic() - began, 3),
        }
        if ignored:
            fields["ignored"] = True
        if task.no_log or content.get("_ansible_no_log") or "censored" in content:
            fields["message"] = "hidden: the task has no_log"
        else:
            fields["message"] = _message(content)
            fields.update({key: content[key] for key in _RESULT_KEYS if key in content})
        self._write("result", **fields)


def _role(task: Any) -> str | None:
    return task._role.get_name(include_role_fqcn=False) if task._role else None


def _message(content: Any) -> str:
    """The message, and the end of the output of a command that failed; of a loop, those of the items that failed."""
    items = content.get("results") or ()
    failed = [item for item in items if isinstance(item, dict) and item.get("failed")]
    if failed:
        return "\n".join(_message(item) for item in failed)
    parts = [str(content.get("msg") or "")]
    if content.get("rc"):
        parts += [str(content.get(key) or "").strip()[-2000:] for key in ("stderr", "stdout")]
    return "\n".join(part for part in parts if part)

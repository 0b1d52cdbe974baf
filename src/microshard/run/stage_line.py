"""What a short command is doing, on one line of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from microshard.model.plan import Point, Step


class StageLine:
    """One line that says what is being done, for the short commands."""

    def __init__(self, console: Console) -> None:
        self.status = console.status("starting")

    def __enter__(self) -> StageLine:
        self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.status.stop()

    def stage(self, step: Step | None, stage: str) -> None:  # noqa: ARG002 - the listener's signature
        """A stage begins."""
        self.status.update(stage)

    def event(self, event: dict[str, Any]) -> None:
        """An event of Ansible's."""
        if event.get("event") == "task" and event.get("task"):
            self.status.update(str(event["task"]))

    def step_done(self, step: Step, result: dict[str, Any]) -> None:
        """Short commands have no steps."""

    def point_failed(self, point: Point, message: str) -> None:
        """Short commands raise instead."""

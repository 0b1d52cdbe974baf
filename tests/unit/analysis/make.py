"""Typed values for the tests of analysis, from the few fields a test is about."""

from dataclasses import replace
from typing import Any

from microshard.model.plan import Point
from microshard.model.result import PhaseResult, StepResult
from microshard.model.telemetry import HostRecord, ServerRecord, TelemetrySummary
from microshard.records.codec import decode
from microshard.records.run_folder import RunFolder
from tests.report.make_run import Shape, make_run

METRIC = {"name": "query time", "unit": "s", "value": 10.0}


def phase(**changes: Any) -> PhaseResult:
    """A phase as a result file has it."""
    return decode(PhaseResult, {"name": "measure", "kind": "measure", **changes})


def result(*phases: PhaseResult, **changes: Any) -> StepResult:
    """A result with these phases."""
    return replace(decode(StepResult, changes), phases=list(phases))


def summary(content: dict[str, Any]) -> TelemetrySummary:
    """Telemetry of a phase."""
    return decode(TelemetrySummary, content)


def host_records(*records: dict[str, Any]) -> list[HostRecord]:
    """Lines of host-HOST.jsonl."""
    return [decode(HostRecord, record) for record in records]


def server_records(*records: dict[str, Any]) -> list[ServerRecord]:
    """Lines of server.jsonl."""
    return [decode(ServerRecord, record) for record in records]


def point(folder: Any, **changes: Any) -> Point:
    """The point of a plan with one shard; `processes` as (name, role), `phases` as (name, parameters)."""
    first = RunFolder(make_run(folder, Shape(shards=(1,), repetitions=1, drift=False))).plan().points[0]
    processes = [replace(first.processes[0], name=name, role=role) for name, role in changes.pop("processes", ())]
    phases = [replace(first.phases[1], name=name, parameters=given) for name, given in changes.pop("phases", ())]
    return replace(
        first, processes=tuple(processes) or first.processes, phases=tuple(phases) or first.phases, **changes
    )

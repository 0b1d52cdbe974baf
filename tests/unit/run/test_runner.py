"""When the runner prepares the hosts: once for what points share, and again where their settings change."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from microshard.backends.local import LocalBackend
from microshard.cli.clusters import StageLine
from microshard.model.plan import Plan
from microshard.records.run_folder import RunFolder
from microshard.run.ansible import Playbooks
from microshard.run.backend import Binaries
from microshard.run.prepare import prepared, write_run
from microshard.run.runner import Runner
from tests.unit.run.test_resume import TEXT

OLD, NEW = (
    Binaries(Path(f"/opt/{version}/mongod"), None, embedded=True, version=version) for version in ("6.0.5", "7.0.1")
)
PACKAGES = {"source": "packages", "version": "8.0"}
SLOW, FAST = (
    {"shard_hosts": {"volumes": {}, "kernel": {"readahead_sectors": sectors, "swappiness": swappiness}}}
    for sectors, swappiness in ((512, None), (32, 1))
)


class Recorded(LocalBackend):
    """Records which point the hosts are prepared for, and whether with its settings."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared: list[str] = []
        self.checked: list[dict[str, Any]] = []  # kernel settings of later points

    def prepare(self, _folder: RunFolder, _playbooks: Playbooks, variables: Path, _driver: str | None = None) -> None:
        point = json.loads(variables.read_text(encoding="utf-8"))["microshard_point"]
        self.checked += point["machines"].get("shard_hosts", {}).get("later", [])
        self.prepared.append(f"{point['id']}{' and settings' if point['machines'] else ''}")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # Machines, mongodb and binaries of the points; what is prepared before the first step and at each step.
        ((SLOW, {}, OLD), (SLOW, {}, OLD), ["p01 and settings", "", "", "", ""]),
        ((SLOW, {}, OLD), (SLOW, {}, NEW), ["p01 and settings, p02", "", "", "", ""]),
        ((SLOW, {}, OLD), (FAST, {}, OLD), ["p01 and settings", "", "p02 and settings", "", "p01 and settings"]),
        ((SLOW, {}, OLD), (SLOW, PACKAGES, NEW), ["p01 and settings", "", "p02 and settings", "", "p01 and settings"]),
        ((SLOW, {}, OLD), (FAST, {}, NEW), ["p01 and settings, p02", "", "p02 and settings", "", "p01 and settings"]),
    ],
)
def test_hosts_are_prepared_once_and_at_each_change(
    tmp_path: Path, first: tuple[Any, ...], second: tuple[Any, ...], expected: list[str]
) -> None:
    (tmp_path / "sample.yml").write_text(TEXT, encoding="utf-8")
    backend, folder = Recorded(), RunFolder.create(tmp_path / "runs", "sample")
    binaries = {"p01": first[2], "p02": second[2]}
    with prepared(tmp_path / "sample.yml", runs=tmp_path / "runs", backend=backend) as ready:
        write_run(folder, ready, binaries)
        plan: Plan = dataclasses.replace(
            ready.plan,
            points=tuple(
                dataclasses.replace(point, machines=machines, mongodb={**point.mongodb, **mongodb})
                for point, (machines, mongodb, _) in zip(ready.plan.points, (first, second), strict=True)
            ),
            steps=tuple(
                dataclasses.replace(step, point=point)
                for step, point in zip(ready.plan.steps, ("p01", "p02", "p02", "p01"), strict=True)
            ),
        )
    runner = Runner(folder, plan, binaries, StageLine(Console()), backend=backend)
    happened = []
    runner.prepare()
    assert backend.checked == ([{"swappiness": 1}] if second[0] is FAST else [])
    for step in [None, *plan.steps]:
        if step is not None:
            runner.set_hosts(plan.point(step.point), step)
        happened.append(", ".join(backend.prepared))
        backend.prepared.clear()
    assert happened == expected
    again = [event for event in folder.journal.records() if event.event == "hosts prepared"]
    assert len(again) == sum(map(bool, expected[1:]))

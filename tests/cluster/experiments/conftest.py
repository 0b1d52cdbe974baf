"""The command line and its published experiments, at tiny scale."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from microshard.experiment.load import load, parse_overrides
from tests.cluster.run.conftest import Cli, cli

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
__all__ = ["Published", "cli"]  # the fixture is used here too
RUN_SECONDS = 400  # of a run that takes half a minute on a quiet machine


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "experiment(name): runs the published experiment of this name, made tiny")


def words(settings: Mapping[str, Any]) -> list[str]:
    """`--set` for each; what is no text is written as JSON, which is YAML too."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
    return [word for key, text in texts.items() for word in ("--set", f"{key}={text}")]


@dataclass
class Published:
    """Runs the published experiment that the test's marker `experiment` names."""

    name: str
    cli: Cli
    measured: bool = False

    def run(
        self, settings: Mapping[str, Any], *, scale: str | None = "laptop", code: int = 0
    ) -> tuple[list[dict[str, Any]], str]:
        """Its results in the order of the points, and what was printed. Nothing may be left running."""
        chosen = ["--scale", scale] if scale else []
        file = EXPERIMENTS / f"{self.name}.yml"
        ended, output = self.cli.run("run", file, *chosen, *words(settings), timeout=RUN_SECONDS)
        assert ended == code, output
        assert self.cli.running() == []
        results = [result for result in self.cli.results().values() if result["purpose"] == "measure"]
        self._check_figures(file, scale, settings, results)
        self.measured = any(result["valid"] and result["phases"][-1]["metric"] for result in results)
        return results, output

    def _check_figures(
        self, file: Path, scale: str | None, settings: Mapping[str, Any], results: list[dict[str, Any]]
    ) -> None:
        """An engine reports only figures that its keys name, so that a question can be about each."""
        workload = load(file, scale=scale, overrides=parse_overrides(words(settings)[1::2])).experiment.workload
        steps = {step.name or step.kind: step for step in workload}
        for phase in (phase for result in results for phase in result["phases"] if phase["kind"] == "measure"):
            named = steps[phase["name"]].phase.figures()
            found = {each["name"] for each in (phase.get("metric"), *phase.get("figures", [])) if each}
            known = [name for name in found if {name, name.partition(", ")[0]} & {*(named or found)}]
            assert sorted(known) == sorted(found)


@pytest.fixture
def published(request: pytest.FixtureRequest, cli: Cli) -> Iterator[Published]:
    """The marker says which experiment; a test without a valid measurement of it fails."""
    marker = request.node.get_closest_marker("experiment")
    assert marker is not None, "the test needs the marker experiment(name)"
    found = Published(marker.args[0], cli)
    yield found
    assert found.measured, f"the test is marked as one of {found.name} and has measured nothing with it"

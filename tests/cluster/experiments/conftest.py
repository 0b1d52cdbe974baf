"""The command line and its published experiments, at tiny scale."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from microshard.run import leftovers
from tests.cluster.run.conftest import Cli

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    tool = Cli(tmp_path)
    yield tool
    for folder in tool.folders:
        leftovers.clean(folder)

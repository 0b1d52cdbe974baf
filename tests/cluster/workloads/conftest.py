"""Mongods for tests, and jobs against them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.workloads.mongods import Mongod, RunJob, Started, start_job, start_mongod, stop_mongod


@pytest.fixture
def mongod(tmp_path: Path) -> Iterator[Mongod]:
    """A mongod of this test alone; it may be killed or restarted."""
    started = start_mongod(tmp_path / "mongod1")
    yield started
    stop_mongod(started)


@pytest.fixture(scope="module")
def shared_mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mongod]:
    """One for all tests of a module that use collections of their own and leave it alone otherwise."""
    started = start_mongod(tmp_path_factory.mktemp("shared") / "mongod1")
    yield started
    stop_mongod(started)


@pytest.fixture
def run_job(tmp_path: Path) -> Iterator[RunJob]:
    """Start the engines; what still runs at the end of the test is killed."""
    running: list[Started] = []

    def start(mongods: list[Mongod], *phases: dict[str, Any], uri: str | None = None) -> Started:
        running.append(start_job(tmp_path, mongods, *phases, uri=uri))
        return running[-1]

    yield start
    for started in running:
        started.process.kill()
        started.process.communicate()

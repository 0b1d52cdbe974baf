"""One simulated EC2 for all tests of this folder, empty before each; nothing here can reach the real one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .fleets import SMALL, Lab, dummy_environment, only_loopback
from .strict import Simulation


@pytest.fixture(scope="session")
def _served() -> Iterator[Simulation]:
    with Simulation().serving() as simulation:
        yield simulation


@pytest.fixture
def simulation(_served: Simulation, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """The simulated EC2, with an empty account and dummy credentials in the environment."""
    _served.reset()
    for name, value in dummy_environment(_served.url).items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    only_loopback(monkeypatch.setattr)
    return _served


@pytest.fixture
def lab(simulation: Simulation, tmp_path: Path) -> Lab:
    """A small fleet, not made yet, and what makes and removes it."""
    return Lab(simulation, tmp_path, SMALL)

"""The container bed as fixtures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.bed import Bed, bed, lacking, wheels
from tests.hosts.controller import Controller
from tests.hosts.needs import need


@pytest.fixture(scope="session")
def lab() -> Iterator[Bed]:
    """Three machines for all tests that leave them as they found them."""
    need(lacking())
    wheels.fetch()
    with bed(3) as made:
        yield made


@pytest.fixture
def controller(lab: Bed, tmp_path: Path) -> Iterator[Controller]:
    """The command line on the bed's network; what a test leaves up is taken down."""
    made = Controller(lab, tmp_path)
    yield made
    made.run("down")

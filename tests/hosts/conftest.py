"""The container bed as fixtures."""

from collections.abc import Iterator

import pytest

from tests.hosts.bed import Bed, bed, lacking, wheels
from tests.hosts.needs import need


@pytest.fixture(scope="session")
def lab() -> Iterator[Bed]:
    """Three machines for all tests that leave them as they found them."""
    need(lacking())
    wheels.fetch()
    with bed(3) as made:
        yield made

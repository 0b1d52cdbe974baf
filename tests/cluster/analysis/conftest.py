"""What the tests of verdicts on real mongods share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.analysis.lab import Lab, leave_line


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A place to measure in, first in the machine's line until the test is over."""
    yield Lab(tmp_path)
    leave_line()

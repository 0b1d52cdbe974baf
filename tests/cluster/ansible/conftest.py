"""A lab of its own for every test, torn down whatever happened."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.ansible.lab import Lab, MakeLab
from tests.cluster.ansible.points import Layout


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[MakeLab]:
    """Make a lab; what its processes leave behind is ended."""
    labs: list[Lab] = []

    def make(layout: Layout) -> Lab:
        folder = tmp_path / f"run{len(labs)}"
        folder.mkdir()
        labs.append(Lab(folder, layout))
        return labs[-1]

    yield make
    for made in labs:
        for pid in made.alive():
            os.kill(pid, signal.SIGKILL)

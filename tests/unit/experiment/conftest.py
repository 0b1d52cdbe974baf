from pathlib import Path

import pytest

from tests.unit.experiment.lab import SAMPLES, Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture(params=SAMPLES, ids=lambda p: p.stem)
def sample(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path

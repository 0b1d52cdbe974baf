"""The mongods of Python packages, for tests of several versions."""

from pathlib import Path

import pytest

from microshard.backends import mongod_wheels
from microshard.embedded.binary import find_mongod
from microshard.experiment.server_versions import DEFAULT_PACKAGED


def packaged(version: str) -> Path:
    """The mongod of a packaged version; skips the test where it has not been fetched."""
    if version == DEFAULT_PACKAGED:
        return find_mongod()
    found = mongod_wheels.packaged_mongod(version)
    if not found.fetched:
        pytest.skip("mongods of other versions are fetched by `make versions`")
    return found.mongod

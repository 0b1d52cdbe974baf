"""What client hosts of a bed are given, fetched where there is a network: inside a bed there is none."""

import platform
from pathlib import Path

from microshard.backends.client_install import client_wheels
from tests.hosts.bed.root import PYTHONS, SUITE


def fetch(suite: str = SUITE, driver: str | None = None) -> Path:
    """Build and download the wheels for machines with this system, once; the archive with them, and this driver."""
    return client_wheels(f"{PYTHONS[suite]}-{platform.machine()}", driver)


if __name__ == "__main__":
    fetch()

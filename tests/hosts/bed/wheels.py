"""What client hosts of a bed are given, fetched where there is a network: inside a bed there is none."""

from __future__ import annotations

import platform
from pathlib import Path

from microshard.backends.client_install import client_wheels

_DEBIAN_12 = [3, 11, 2]


def fetch() -> Path:
    """Build and download the wheels for the machines of a bed, once; the archive with them."""
    facts = {"client_python": {"path": "/usr/bin/python3", "version": _DEBIAN_12}, "machine": platform.machine()}
    return client_wheels({"bed": facts})


if __name__ == "__main__":
    fetch()

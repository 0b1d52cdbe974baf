"""mongosh from npm, for tests that work with it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_PACKAGE = "mongosh@2.12.0"


def installed() -> Path:
    """The program, installed once into a cache under the temporary directory; skips the test where that cannot be."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    cache = Path(tempfile.gettempdir(), f"microshard-test-{_PACKAGE.replace('@', '-')}-{os.getuid()}")
    cache.mkdir(mode=0o700, exist_ok=True)
    program = cache / "node_modules" / ".bin" / "mongosh"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of several files may ask at the same time
        if not program.exists():
            install: list[str | Path] = ["npm", "install", "--no-audit", "--no-fund", "--prefix", cache, _PACKAGE]
            done = subprocess.run(install, capture_output=True, text=True, timeout=150, check=False)
            if done.returncode or not program.exists():
                pytest.skip(f"npm cannot install {_PACKAGE}: {done.stderr.strip()[-200:]}")
    return program

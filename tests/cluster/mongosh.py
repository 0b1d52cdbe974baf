"""mongosh and other packages from npm, for tests that work with them."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

MONGOSH = "mongosh@2.12.0"


def installed() -> Path:
    """mongosh itself; skips the test where it cannot be had."""
    return npm_package(MONGOSH) / ".bin" / "mongosh"


def npm_package(package: str) -> Path:
    """The node_modules with a package, `name@version`, in a cache under the temporary directory; or skips the test."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    cache = Path(tempfile.gettempdir(), f"microshard-test-{package.replace('@', '-')}-{os.getuid()}")
    cache.mkdir(mode=0o700, exist_ok=True)
    modules = cache / "node_modules"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of several files may ask at the same time
        if not (modules / package.partition("@")[0]).exists():
            install: list[str | Path] = ["npm", "install", "--no-audit", "--no-fund", "--prefix", cache, package]
            done = subprocess.run(install, capture_output=True, text=True, timeout=150, check=False)
            if done.returncode:
                pytest.skip(f"npm cannot install {package}: {done.stderr.strip()[-200:]}")
    return modules

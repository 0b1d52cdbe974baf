"""An empty virtual environment, with the archives of this project installed in it, and nothing of the checkout."""

import subprocess
import sys
from pathlib import Path

import pytest
from setup import archives
from setup.environment import NETWORK_ERRORS, locked_version

ROOT = Path(__file__).parents[1]
# Collections on which the roles depend; without a Galaxy server they are taken from the package `ansible`.
NEEDED = ("ansible/posix", "community/crypto", "community/general")


class Environment:
    """An empty virtual environment and an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.folder = folder / "venv" / "bin", folder / "empty"
        self.folder.mkdir()
        self.variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)

    def pip_install(self, *what: str | Path) -> None:
        """Install packages; skips the test where there is no index to be reached."""
        command = [self.bin / "python", "-m", "pip", "install", "--quiet", "--no-compile", *what]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if any(sign in done.stderr for sign in NETWORK_ERRORS):
            pytest.skip(f"pip cannot reach an index: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr

    def run(self, *words: str | Path, folder: Path | None = None) -> tuple[int, str]:
        """Exit code and output of a program of the environment."""
        done = subprocess.run(
            [self.bin / words[0], *words[1:]],
            cwd=folder or self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=280,
        )
        return done.returncode, done.stdout


def environment_with_collection(folder: Path) -> Environment:
    """The collection microshard.lab beside ansible-core and the collections it needs, installed from its archive."""
    made = Environment(folder)
    made.pip_install(f"ansible-core=={locked_version(ROOT / 'requirements' / 'run.lock', 'ansible-core')}")
    collections = made.folder / "collections"
    (site_packages,) = Path(sys.prefix).glob("lib/python3*/site-packages/ansible_collections")
    for name in NEEDED:
        link = collections / "ansible_collections" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(site_packages / name)
    archive = archives.collection(folder)
    made.variables["ANSIBLE_COLLECTIONS_PATH"] = str(collections)
    code, output = made.run("ansible-galaxy", "collection", "install", archive, "--no-deps", "-p", collections)
    assert code == 0, output
    return made

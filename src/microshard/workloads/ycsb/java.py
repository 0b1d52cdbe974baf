"""The JVM and the client's jar on this host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from microshard.workloads.base import PhaseError

LEAST_JAVA = 17  # the binding is compiled for it
BUILT = Path(__file__).parents[4] / "clients" / "ycsb-mongodb" / "target" / "ycsb-mongodb.jar"
INSTALL = (
    "install a JRE 17 or newer (Debian, Ubuntu: openjdk-17-jre-headless; Amazon Linux: "
    "java-17-amazon-corretto-headless; Fedora, RHEL: java-17-openjdk-headless)"
)


@dataclass(frozen=True, slots=True)
class Tools:
    """What starts a client."""

    java: str
    jar: str


def find(given: Mapping[str, str]) -> Tools:
    """The JVM and the jar: those the job names, else JAVA_HOME and PATH, and what `make clients` built.

    Raises PhaseError (NoJava, JavaTooOld, NoClient) that says what to install or build.
    """
    java = given.get("java") or installed()
    if java is None:
        raise PhaseError("NoJava", f"YCSB needs Java and there is none on this host: {INSTALL}")
    version = java_version(java)
    if version < LEAST_JAVA:
        raise PhaseError("JavaTooOld", f"{java} is Java {version}, YCSB's client needs {LEAST_JAVA}: {INSTALL}")
    jar = Path(given.get("ycsb_jar") or BUILT)
    if not jar.is_file():
        raise PhaseError("NoClient", f"the YCSB client is not there ({jar}): build it with `make clients`")
    return Tools(java, str(jar))


def installed() -> str | None:
    """The JVM of JAVA_HOME, else of PATH, whatever its version."""
    return _from_home() or shutil.which("java")


def _from_home() -> str | None:
    home = os.environ.get("JAVA_HOME")
    path = Path(home, "bin", "java") if home else None
    return str(path) if path is not None and path.is_file() else None


def java_version(java: str) -> int:
    """Major version of a JVM; 8 for 1.8. Raises PhaseError when it does not say."""
    return _released(java) or _asked(java)


def _released(java: str) -> int | None:
    """The version in the file `release` of a JVM's folder: a tenth of a second sooner than the JVM says it itself."""
    path = Path(shutil.which(java) or java).resolve().parent.parent / "release"
    try:
        match = re.search(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', path.read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return _major(match) if match else None


def _asked(java: str) -> int:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PhaseError("NoJava", f"{java} does not run: {error}; {INSTALL}") from None
    words = said.stderr + said.stdout
    match = re.search(r'version "(\d+)(?:\.(\d+))?', words)
    if match is None:
        raise PhaseError("NoJava", f"{java} -version says no version: {words.strip()[:200]!r}; {INSTALL}")
    return _major(match)


def _major(match: re.Match[str]) -> int:
    major, minor = int(match[1]), int(match[2] or 0)
    return minor if major == 1 else major

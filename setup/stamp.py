"""What .venv was made from, so that a set-up with nothing to do knows it by reading a few files."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

# What each part is installed from; a part is installed again when one of its files changes.
PARTS: dict[str, tuple[str, ...]] = {
    "run": ("requirements/pip.lock", "requirements/run.lock"),
    "mongodb": ("requirements/mongodb.lock",),
    "dev": ("requirements/dev.lock",),
    "project": ("pyproject.toml", "requirements/run.in"),
}


def fingerprint(root: Path, part: str) -> str:
    """Return the SHA-256 over the files that `part` is installed from, and over the path of the checkout.

    A virtual environment does not survive being moved: its scripts name the interpreter by absolute path.
    """
    digest = hashlib.sha256(str(root).encode())
    for name in PARTS[part]:
        digest.update(hashlib.sha256((root / name).read_bytes()).digest())
    return digest.hexdigest()


class Stamp:
    """The file in .venv that says which parts are installed, and the mark that says a set-up is under way."""

    def __init__(self, environment: Path):
        self.environment = environment
        self._file = environment / "microshard-setup.json"
        self._mark = environment / "microshard-setup.unfinished"

    def missing(self, root: Path, wanted: Iterable[str]) -> list[str]:
        """Return the parts of `wanted` that are not installed, or from other files than today's."""
        installed = self._read()
        return [part for part in PARTS if part in wanted and installed.get(part) != fingerprint(root, part)]

    def begin(self) -> None:
        """Say that .venv is being changed: a set-up that finds this mark was preceded by one that was killed."""
        self.environment.mkdir(parents=True, exist_ok=True)
        self._mark.touch()

    def end(self) -> None:
        """Say that .venv is whole again."""
        self._mark.unlink(missing_ok=True)

    @property
    def unfinished(self) -> bool:
        """Whether an earlier set-up was killed while it changed .venv."""
        return self._mark.exists()

    def record(self, root: Path, parts: Iterable[str]) -> None:
        """Note `parts` as installed from the files of today."""
        self._write(self._read() | {part: fingerprint(root, part) for part in parts})

    def forget(self, part: str) -> None:
        """Note `part` as not installed, to be tried again by the next set-up."""
        self._write({name: value for name, value in self._read().items() if name != part})

    def _write(self, content: dict[str, str]) -> None:
        scratch = self._file.with_suffix(".new")
        scratch.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        scratch.replace(self._file)

    def _read(self) -> dict[str, str]:
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

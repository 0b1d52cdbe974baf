"""The lock files agree: what is tested is what runs."""

import re
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[3] / "requirements"


def pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", (REQUIREMENTS / name).read_text(encoding="utf-8"), re.M))


def test_no_package_is_locked_to_two_versions() -> None:
    seen: dict[str, str] = {}
    for lock in ("pip.lock", "run.lock", "mongodb.lock", "compression.lock", "dev.lock"):
        for package, version in pins(lock).items():
            assert seen.setdefault(package, version) == version, f"{package} in {lock}"


def test_every_locked_package_has_hashes_and_no_index_is_named() -> None:
    for lock in REQUIREMENTS.rglob("*.lock"):
        text = lock.read_text(encoding="utf-8")
        assert text.count("== ") == 0
        assert len(re.findall(r"^\S+==\S+(?: ; .*)? \\\n    --hash=sha256:", text, re.M)) == len(
            pins(str(lock.relative_to(REQUIREMENTS)))
        )
        assert "://" not in text

"""Secrets of a whole run are nowhere but in its folder for them, and gone at the end."""

import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.run.conftest import Cli

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    return [value] if isinstance(value, str) else []


def planted(folder: Path) -> set[bytes]:
    """Passwords, and a line from the middle of every key."""
    found = set()
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        text = file.read_text(encoding="ascii")
        if file.suffix == ".json":
            found |= {word.encode() for word in texts(json.loads(text)) if len(word) >= 16}
        elif "PRIVATE KEY" in text:
            found.add(text[text.index("PRIVATE KEY") :].splitlines()[2].encode())
        elif file.name == "keyfile":
            found.add(text.splitlines()[0].encode())
    return found


def test_no_secret_of_a_run_is_anywhere_else(cli: Cli) -> None:
    path = cli.write(
        topology={
            "kind": "replica_set",
            "replica_set": {"members": 1},
            "security": {"authorization": True, "tls": True},
            "storage": {"cache": {"policy": "host_total_mb", "value": 256}},
        },
        matrix={},
        repetitions=1,
        load={"image": "use"},
    )
    process = cli.start("run", path)
    cli.wait_for(lambda: "run started" in cli.folders[0].journal.path.read_text())
    secrets = planted(cli.folders[0] / "secrets")
    assert len(secrets) >= 3
    seen = 0
    while process.poll() is None:
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes()
            except OSError:
                continue
            seen += b"mongod" in words
            assert not [s for s in secrets if s in words], words
    output = process.communicate()[0]
    assert process.returncode == 0, output
    assert seen
    assert not [s for s in secrets if s in output.encode()]
    (run,) = cli.folders
    assert not (run / "secrets").exists()
    code, output = cli.run("export", "-o", cli.folder / "bundle.tgz")
    assert code == 0, output
    with tarfile.open(cli.folder / "bundle.tgz") as bundle:
        bundle.extractall(cli.folder / "bundle", filter="data")
    searched = 0
    for file in cli.folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            searched += 1
            # The oplog of a data image names the users that were dropped, without their passwords.
            known = {b"microshard-admin", b"microshard-workload"} if "images" in file.parts else set()
            assert not [s for s in secrets - known if s in content], file
    assert searched > 30
    # The data image, which was searched too, is restored under other passwords and another key.
    code, output = cli.run("run", path, "--set", "load.image=only")
    assert code == 0, output
    assert "data restored" in [event.event for event in cli.folders[-1].journal.records()]

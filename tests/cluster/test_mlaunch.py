"""The real mlaunch starts what `plan --as mlaunch` prints, and `import-mlaunch` makes an experiment of it again."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.cluster.embedded.test_clients import end_processes_in, free_ports
from tests.cluster.run.conftest import definition

pytestmark = pytest.mark.cluster
BIN = Path(sys.executable).parent


def run(folder: Path, *words: str | Path) -> str:
    done = subprocess.run(
        [BIN / words[0], *words[1:]], cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_a_point_started_by_mlaunch_and_imported_again_is_the_same_topology(tmp_path: Path) -> None:
    file = tmp_path / "there.yml"
    given = definition(matrix={"topology.shards.count": [2]})
    given["topology"]["storage"] = {"block_compressor": "zstd", "cache": {"policy": "per_process_mb", "value": 256}}
    given["topology"]["network"] = {"base_port": free_ports(4)}
    file.write_text(json.dumps(given))
    printed = run(tmp_path, "microshard", "plan", file, "--as", "mlaunch").splitlines()
    assert any(line.startswith("# without: sharded collections") for line in printed), printed
    (command,) = (shlex.split(line) for line in printed if line.startswith("mlaunch "))
    port = int(command[command.index("--port") + 1])
    data = tmp_path / command[command.index("--dir") + 1]
    try:
        # As the embedded mongos: one address, and no socket in /tmp.
        run(tmp_path, *command, "--bind_ip", "127.0.0.1", "--nounixsocket")
        client: MongoClient[Any]
        with MongoClient("127.0.0.1", port) as client:
            shards = client.admin.command("listShards")["shards"]
            assert len(shards) == 2
        with MongoClient(shards[0]["host"].rpartition("/")[2], directConnection=True) as client:
            parsed = client.admin.command("getCmdLineOpts")["parsed"]["storage"]["wiredTiger"]
        assert parsed["collectionConfig"]["blockCompressor"] == "zstd"
        assert parsed["engineConfig"]["cacheSizeGB"] == 0.25
    finally:
        end_processes_in(data)
    run(tmp_path, "microshard", "import-mlaunch", data, "again")
    text = (tmp_path / "again.yml").read_text()
    assert re.search(r"^ +block_compressor: zstd$", text, re.MULTILINE), text
    assert "again.yml: ok, 1 point" in run(tmp_path, "microshard", "validate", "again.yml")
    (again,) = (
        shlex.split(line)
        for line in run(tmp_path, "microshard", "plan", "again.yml", "--as", "mlaunch").splitlines()
        if line.startswith("mlaunch ")
    )
    assert [word for word in again if "-p01" not in word] == [word for word in command if "-p01" not in word]

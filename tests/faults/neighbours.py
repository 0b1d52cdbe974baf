"""Somebody else's things, planted beside a campaign's: none may be touched."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo

from microshard.embedded.binary import find_mongod
from microshard.embedded.sharded_cluster import free_port
from microshard.records.run_folder import RunFolder


class Neighbours:
    """Things of somebody else, beside and like ours: none may be touched."""

    def __init__(self, folder: Path) -> None:
        # Below the folder of the runs and called like a deployment, but of no run.
        self.data = folder / "runs" / "kills-of-others" / "deployments" / "p01" / "shard01" / "data"
        self.data.mkdir(parents=True)
        self.port = free_port()
        self.mongod = subprocess.Popen(
            [str(find_mongod(None)), "--dbpath", str(self.data), "--port", str(self.port), "--bind_ip", "127.0.0.1",
             "--nounixsocket", "--logpath", str(self.data.parent / "mongod.log"), "--wiredTigerCacheSizeGB", "0.25"],
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        with self._client(60_000) as client:
            client.neighbour.things.insert_one({"_id": 1})
        self.files: list[Path] = []

    def _client(self, patience: int) -> pymongo.MongoClient[dict[str, Any]]:
        return pymongo.MongoClient("127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=patience)

    def beside(self, run: RunFolder) -> None:
        """Folders whose names are nearly that of the run."""
        for name in (f"{run.run_id}-2", run.run_id[:-1], f"{run.run_id}.old"):
            file = run.path.parent / name / "deployments" / "p01" / "file"
            if file not in self.files:
                file.parent.mkdir(parents=True)
                file.write_text("not yours", encoding="utf-8")
                self.files.append(file)

    def harmed(self) -> Iterator[str]:
        """What of them is not as it was."""
        if self.mongod.poll() is not None:
            yield "a mongod of somebody else was ended"
            return
        with self._client(20_000) as client:
            if client.neighbour.things.count_documents({}) != 1:
                yield "a mongod of somebody else has lost its data"
        for file in self.files:
            if not file.is_file() or file.read_text(encoding="utf-8") != "not yours":
                yield f"{file} of somebody else is gone"

    def close(self) -> None:
        """End the mongod; the folders go with the campaign's."""
        self.mongod.kill()
        self.mongod.wait()

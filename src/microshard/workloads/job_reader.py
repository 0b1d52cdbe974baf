"""Reading a job (docs/contracts.md) into the types of model/job.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from microshard.model.job import (
    ClientShare,
    CollectionChunks,
    Job,
    JobError,
    JobPoint,
    Phase,
    ProcessInfo,
    ReplicaSetInfo,
)
from microshard.model.plan import PlannedChunk
from microshard.workloads.connections import SYSTEM, with_login


def read_job(data: Any) -> Job:
    """A job from its JSON form. Raises JobError naming what is missing or wrong."""
    try:
        point, step = data["point"], data.get("step") or {}
        security = point.get("security") or {}
        secrets = Path(data["secrets"]) if data.get("secrets") else None

        def uri(address: str, user: str = SYSTEM) -> str:
            authorization, tls = bool(security.get("authorization")), bool(security.get("tls"))
            return with_login(address, secrets, authorization=authorization, tls=tls, user=user)

        def process(found: Mapping[str, Any]) -> ProcessInfo:
            required = {name: found[name] for name in ("name", "role", "endpoint", "db_path", "pid_path", "host")}
            address = uri(f"mongodb://{found['endpoint']}/")
            return ProcessInfo(**required, replica_set=found.get("replica_set"), uri=address)

        def replica_set(found: Mapping[str, Any]) -> ReplicaSetInfo:
            first = tuple(m["endpoint"] for m in found["members"] if m.get("initial", True))
            later = tuple(m for m in found["members"] if not m.get("initial", True))
            address = uri(f"mongodb://{','.join(first)}/?replicaSet={found['name']}")
            return ReplicaSetInfo(found["name"], found["role"], first, found.get("initial", True), later, address)

        def collection(found: Mapping[str, Any]) -> CollectionChunks:
            chunks = tuple(PlannedChunk(c["shard"], c["lower"], c["upper"]) for c in found["chunks"])
            return CollectionChunks(found["namespace"], chunks)

        return Job(
            connection_string=uri(data["connection_string"], "workload"),
            point=JobPoint(
                id=point["id"],
                shards=point["shards"],
                topology=point["topology"],
                cores=point["cores"],
                processes=tuple(map(process, point["processes"])),
                collections=tuple(map(collection, point["collections"])),
                axes=dict(point.get("axes") or {}),
                replica_sets=tuple(map(replica_set, point.get("replica_sets") or ())),
            ),
            phases=tuple(Phase(p["name"], p["kind"], p["engine"], dict(p["parameters"])) for p in data["phases"]),
            step=step.get("name"),
            purpose=step.get("purpose"),
            part=ClientShare(**(data.get("part") or {})),
            start_at=data.get("start_at"),
            requests_restarts=bool(step.get("restarts")),
            after=bool(data.get("after")),
            tools=dict(data.get("tools") or {}),
        )
    except OSError as error:
        raise JobError(f"the secrets of the run cannot be read: {error}") from None
    except KeyError as missing:
        raise JobError(f"the job has no {missing.args[0]!r}") from None
    except (TypeError, AttributeError, ValueError) as wrong:
        raise JobError(f"the job does not have the form of docs/contracts.md: {wrong}") from None

"""explain: of reads by the router mongod, of commands without a cluster form from the shards' explanations."""

import os
from collections.abc import Mapping
from typing import Any

from microshard.embedded.cluster import checked
from microshard.embedded.errors import COMMAND_NOT_SUPPORTED, SHARD_KEY_NOT_FOUND, CommandError
from microshard.embedded.nodes import Document
from microshard.embedded.registry import Reply, Request, command
from microshard.embedded.targeting import owner_of, shard_key_of

_THROUGH_ROUTER = {"find": "clusterFind", "aggregate": "clusterAggregate"}
# The router mongod explains these by asking a shard for the same cluster form, and that shard itself, without end.
_BY_SHARDS = frozenset({"count", "distinct", "findAndModify", "findandmodify", "update", "delete"})


@command("explain")
async def _explain(request: Request) -> Reply:
    inner = dict(request.mapping("explain"))
    name = next(iter(inner), "")
    options = request.fields("verbosity", "comment", "maxTimeMS")
    if name in _THROUGH_ROUTER:
        renamed = {_THROUGH_ROUTER[name]: inner.pop(name), **inner}
        if name == "aggregate":
            renamed.setdefault("cursor", {})
        explain = {"explain": renamed, **options, **request.fields("$readPreference")}
        return await request.cluster.through_router(request.database, explain)
    if name not in _BY_SHARDS:
        raise CommandError(COMMAND_NOT_SUPPORTED, f"explain of {name} is not supported.")
    return _composed(await _from_shards(request, name, inner, options), inner, await _strings(request))


async def _strings(request: Request) -> dict[str, str]:
    return {name: shard.connection_string for name, shard in (await request.cluster.shards()).items()}


def _query(name: str, inner: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
    """The query of an explained command and its collation."""
    if name in ("update", "delete"):
        statements = inner.get(name + "s")
        if not isinstance(statements, list) or len(statements) != 1:
            raise CommandError(72, "explained write batches must be of size 1")
        return statements[0].get("q", {}), statements[0].get("collation")
    return inner.get("query") or {}, inner.get("collation")


async def _from_shards(request: Request, name: str, inner: Document, options: Document) -> dict[str, Document]:
    cluster = request.cluster
    target = inner[name]
    if not isinstance(target, str):
        raise CommandError(73, "collection name has invalid type")
    query, collation = _query(name, inner)

    async def attempt() -> dict[str, Document]:
        collection = await cluster.collection(f"{request.database}.{target}")
        key = shard_key_of(collection.key, query, collation) if collection is not None else None
        if collection is None or key is None:
            if collection is not None and name.lower() == "findandmodify":
                raise CommandError(SHARD_KEY_NOT_FOUND, "Query for sharded findAndModify must contain the shard key")
            bodies = await cluster.on_owners(request.database, target, {"explain": inner, **options})
            return {shard: checked(body) for shard, body in bodies.items()}
        shard, versions = await owner_of(cluster, collection, key)
        # The version belongs to the explained command, whose collection the shard checks.
        explain = {"explain": {**inner, **versions}, **options}
        return {shard: checked(await (await cluster.shard(shard)).call_raw(request.database, explain))}

    return await cluster.retrying(attempt)


def _composed(replies: dict[str, Document], inner: Document, strings: dict[str, str]) -> Document:
    """One explanation in mongos's form out of the shards'."""
    stage = "SINGLE_SHARD" if len(replies) == 1 else "SHARD_MERGE"
    planners = [
        {"shardName": shard, "connectionString": strings[shard], "serverInfo": reply.get("serverInfo", {}),
         **reply.get("queryPlanner", {})}
        for shard, reply in replies.items()
    ]  # fmt: skip
    answer: Document = {
        "queryPlanner": {"mongosPlannerVersion": 1, "winningPlan": {"stage": stage, "shards": planners}}
    }
    executed = {shard: reply["executionStats"] for shard, reply in replies.items() if "executionStats" in reply}
    if executed:
        totals = {
            name: sum(stats.get(name, 0) for stats in executed.values())
            for name in ("nReturned", "totalKeysExamined", "totalDocsExamined")
        }
        longest = max(stats.get("executionTimeMillis", 0) for stats in executed.values())
        stages = [{"shardName": shard, **stats} for shard, stats in executed.items()]
        answer["executionStats"] = {
            **totals,
            "executionTimeMillis": longest,
            "executionStages": {"stage": stage, **totals, "executionTimeMillis": longest, "shards": stages},
        }
    return {**answer, "serverInfo": {"host": os.uname().nodename}, "command": inner}

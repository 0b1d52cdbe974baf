"""The engine `readers`: reads documents by `_id` with many clients while others write, and tells the latencies."""

from __future__ import annotations

import statistics
import time
from typing import Any

from microshard.model.job import Phase
from microshard.model.phases.readers import ReadersPhase
from microshard.workloads import histograms, members
from microshard.workloads.base import Client, Context, Engine, Metric, PhaseError, cpu_seconds, read_keys
from microshard.workloads.windows import Windows
from microshard.workloads.workers import Workers

SAMPLED_IDS = 20_000  # where `_id`s have gaps


class ReadersEngine(Engine):
    """Reads; the parameters are ReadersPhase's."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, ReadersPhase)
        self.workers = Workers("microshard.workloads.readers_worker")
        self.processes = context.job.point.processes
        self.lag = members.LagWatch(self.processes)
        self.windows = Windows(1.0)
        self._done: dict[str, dict[str, Any]] = {}

    def prepare(self) -> None:
        """Find out which `_id`s there are; have every reader and writer connected. Raises PhaseError."""
        keys = self.keys
        database, _, collection = keys.namespace.partition(".")
        with self.context.connect() as client:
            ids = known_ids(client, database, collection, keys.namespace)
        common = {
            "uri": self.context.job.connection_string,
            "database": database,
            "collection": collection,
            "ids": ids,
            "seed": keys.seed,
            "seconds": keys.duration_seconds,
            "warm_up_seconds": keys.warm_up_seconds,
            "read_preference": keys.read_preference,
            "batch": 1,
        }
        works = [common | {"role": "read", "count": keys.threads}]
        if keys.writers:
            works.append(
                common | {"role": "write", "count": keys.writers, "batch": keys.write_batch, "rate": keys.write_rate}
            )
        self.workers.start(works)
        for _ in self.workers.messages():
            pass  # each says it is ready

    def run(self) -> None:
        """Warm up and measure. `started` and `ended` enclose the measured time. Raises PhaseError."""
        result, keys = self.outcome, self.keys
        before = members.reads(self.processes)
        self.lag.start()
        cpu, began = cpu_seconds(), time.monotonic()
        result.started = time.time() + keys.warm_up_seconds
        result.ended = result.started + keys.duration_seconds
        self.workers.go()
        done = 0
        for message in self.workers.messages():
            if "finished" in message:
                self._done[message["role"]] = message
            elif message["role"] == "read":
                at = time.monotonic() - began - keys.warm_up_seconds
                self.windows.add(min(max(at, 0.0), keys.duration_seconds - 1e-6), message["operations"])
                done += message["operations"]
                note = f"{done / max(at, 0.1):,.0f} reads/s" if at > 0 else "warming up"
                self.context.progress.report(
                    self.phase.name,
                    min(int(max(at, 0.0)), int(keys.duration_seconds)),
                    int(keys.duration_seconds),
                    "s",
                    note,
                )
        self.lag.stop()
        result.client_cpu_seconds = cpu_seconds() - cpu + sum(m["cpu_seconds"] for m in self._done.values())
        self._tell(before, members.reads(self.processes))

    def _tell(self, before: dict[str, int], after: dict[str, int]) -> None:
        result, keys = self.outcome, self.keys
        latency = {role: histograms.merged([m["histogram"]]) for role, m in self._done.items()}
        reads, writes = latency["read"], latency.get("write")
        missing = sum(m["missing"] for m in self._done.values())
        result.counters = {
            "reads": reads.get_total_count(),
            "writes": writes.get_total_count() if writes else 0,
            "documents_written": self._done["write"]["documents"] if writes else 0,
            "missing": missing,
            "errors": missing,
        }
        if missing:
            raise PhaseError(
                "MissingDocuments", f"{missing} documents of {keys.namespace} were asked for and not found"
            )
        if not reads.get_total_count():
            raise PhaseError("NoReads", f"no read ended in {keys.duration_seconds:g} s")
        result.latency = {"READ": histograms.as_json(reads)}
        if writes:
            result.latency["UPDATE"] = histograms.as_json(writes)
        milliseconds = {p: reads.get_value_at_percentile(p) / 1000 for p in (50, 95, 99)}
        result.metric = Metric("p95 read latency", "ms", milliseconds[95], "lower")
        result.samples = [milliseconds[95]]
        result.figures = [
            Metric("p50 read latency", "ms", milliseconds[50], "lower"),
            Metric("p99 read latency", "ms", milliseconds[99], "lower"),
            Metric("reads", "1/s", result.counters["reads"] / keys.duration_seconds, "higher"),
        ]
        if keys.writers:
            written = result.counters["documents_written"] / keys.duration_seconds
            result.figures.append(Metric("documents written", "1/s", written, "higher"))
        result.windows = self.windows.as_json(result.started, keys.duration_seconds)
        self._tell_members({name: after[name] - before.get(name, 0) for name in sorted(after)})

    def _tell_members(self, answered: dict[str, int]) -> None:
        """Who answered, and how far secondaries were behind meanwhile."""
        result = self.outcome
        rows = self.lag.between(result.started, result.ended)
        names = sorted({name for _, row in rows for name in row})
        lines = {name: [row.get(name) for _, row in rows] for name in names}
        seen = sorted(lag for values in lines.values() for lag in values if lag is not None)
        if seen:
            p95 = statistics.quantiles(seen, n=20, method="inclusive")[-1] if len(seen) > 1 else seen[0]
            result.figures.append(Metric("p95 lag", "s", p95, "lower"))
            result.figures.append(Metric("largest lag", "s", seen[-1], "lower"))
            result.series = [
                {
                    "name": "lag behind the primary",
                    "unit": "s",
                    "stacked": False,
                    "t": [round(t - result.started, 3) for t, _ in rows],
                    "lines": lines,
                }
            ]
        else:
            result.notes["lag"] = "there is no secondary to be behind"
        result.table = {
            "columns": [{"name": "member", "unit": ""}, {"name": "queries answered", "unit": ""}],
            "rows": [[name, count] for name, count in answered.items()],
        }

    def close(self) -> None:
        """End the clients."""
        self.lag.stop()
        self.workers.end()


def known_ids(client: Client, database: str, collection: str, namespace: str) -> dict[str, Any]:
    """{"first", "count"} where `_id`s have no gaps, else {"list"}: a sample. Raises PhaseError."""
    found = client[database][collection]
    ends = [next(iter(found.find({}, {"_id": 1}).sort("_id", way).limit(1)), None) for way in (1, -1)]
    if ends[0] is None or ends[1] is None:
        raise PhaseError("NoDocuments", f"{namespace} is empty: there is nothing to read")
    first, last = ends[0]["_id"], ends[1]["_id"]
    if not isinstance(first, int) or not isinstance(last, int):
        raise PhaseError("NoNumbers", f"the `_id`s of {namespace} are no whole numbers")
    if last - first + 1 == found.count_documents({}):
        return {"first": first, "count": last - first + 1}
    sample = found.aggregate([{"$sample": {"size": SAMPLED_IDS}}, {"$project": {"_id": 1}}])
    return {"list": [document["_id"] for document in sample]}


ENGINE = ReadersEngine

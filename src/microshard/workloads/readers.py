"""The engine `readers`: reads documents by `_id` with many clients while others write, and reports the latencies."""

import statistics
import time
from typing import Any

from microshard.model.phases.readers import ReadersPhase
from microshard.model.plan import PlannedPhase
from microshard.model.result import Column, Series, Table
from microshard.workloads import pacing, recording
from microshard.workloads.base import Context, Engine, PhaseError, collection_of, cpu_seconds
from microshard.workloads.connections import Client
from microshard.workloads.servers import LagMonitor, queries_answered
from microshard.workloads.workers import Workers

SAMPLED_IDS = 20_000  # where `_id`s have gaps


class ReadersEngine(Engine[ReadersPhase]):
    """Reads, and writes meanwhile."""

    keys_model = ReadersPhase

    def __init__(self, phase: PlannedPhase, context: Context) -> None:
        super().__init__(phase, context)
        self.workers = Workers("microshard.workloads.readers_worker")
        self.lag = LagMonitor(context.job.point.processes)
        self.rates = recording.OperationRates(1.0)

    def prepare(self) -> None:
        """Determine the `_id`s of the collection; have every reader and writer connected. Raises PhaseError."""
        keys = self.keys
        with self.context.connect() as client:
            ids = known_ids(client, keys.namespace)
        self.schedules = {
            "READ": keys.schedule(keys.rate),
            "UPDATE": keys.schedule(keys.write_rate, each=keys.write_batch) if keys.writers else None,
        }
        common = {
            "uri": self.context.job.connection_string,
            "namespace": keys.namespace,
            "ids": ids,
            "seed": keys.seed,
            "seconds": keys.duration_seconds,
            "warm_up_seconds": keys.warm_up_seconds,
            "read_preference": keys.read_preference,
            "batch": 1,
        }
        works = [common | {"role": "read", "count": keys.threads, "schedule": self.schedules["READ"]}]
        if keys.writers:
            writing = {"role": "write", "count": keys.writers, "batch": keys.write_batch}
            works.append(common | writing | {"schedule": self.schedules["UPDATE"]})
        self.on_close(self.workers.end)
        self.workers.start(works)
        self.workers.wait_ready()

    def run(self) -> None:
        """Warm up and measure. `started` and `ended` enclose the measured time. Raises PhaseError."""
        result, keys, processes = self.outcome, self.keys, self.context.job.point.processes
        before = queries_answered(processes)
        self.on_close(self.lag.stop)
        self.lag.start()
        cpu, began = cpu_seconds(), time.monotonic()
        result.started = time.time() + keys.warm_up_seconds
        result.ended = result.started + keys.duration_seconds
        self.workers.go()
        done = 0
        finished: dict[str, dict[str, Any]] = {}  # by role
        for message in self.workers.messages():
            if "finished" in message:
                finished[message["role"]] = message
            elif message["role"] == "read":
                at = time.monotonic() - began - keys.warm_up_seconds
                self.rates.add(min(max(at, 0.0), keys.duration_seconds - 1e-6), message["operations"])
                done += message["operations"]
                note = f"{done / max(at, 0.1):,.0f} reads/s" if at > 0 else "warming up"
                self.report_progress(min(max(at, 0.0), keys.duration_seconds), keys.duration_seconds, "s", note)
        self.lag.stop()
        result.client_cpu_seconds = cpu_seconds() - cpu + sum(m["cpu_seconds"] for m in finished.values())
        after = queries_answered(processes)
        self._report_latencies(finished)
        self._report_lag()
        rows = [[name, after[name] - before.get(name, 0)] for name in sorted(after)]
        result.table = Table([Column("member"), Column("queries answered")], rows)

    def _report_latencies(self, finished: dict[str, dict[str, Any]]) -> None:
        """Metric, figures, counters and latencies of what the workers did, by role."""
        result, keys = self.outcome, self.keys
        names = {"read": "READ", "write": "UPDATE"}
        latency = {names[role]: pacing.PacedLatency.of_message(m["latency"]) for role, m in finished.items()}
        reads = latency["READ"].sent
        missing = sum(m["missing"] for m in finished.values())
        result.counters = {
            "reads": reads.get_total_count(),
            "writes": latency["UPDATE"].sent.get_total_count() if keys.writers else 0,
            "documents_written": finished["write"]["documents"] if keys.writers else 0,
            "missing": missing,
            "errors": missing,
        }
        if missing:
            raise PhaseError("MissingDocuments", f"{missing} documents of {keys.namespace} were not found")
        if not reads.get_total_count():
            raise PhaseError("NoReads", f"no read ended in {keys.duration_seconds:g} s")
        pacing.report(result, latency, self.schedules, keys.duration_seconds)
        counted = latency["READ"].intended if keys.rate else reads
        milliseconds = {p: counted.get_value_at_percentile(p) / 1000 for p in (50, 95, 99)}
        self.set_metric("p95 read latency", "ms", milliseconds[95], "lower")
        self.add_figure("p50 read latency", "ms", milliseconds[50], "lower")
        self.add_figure("p99 read latency", "ms", milliseconds[99], "lower")
        self.add_figure("reads", "1/s", result.counters["reads"] / keys.duration_seconds, "higher")
        if keys.writers:
            written = result.counters["documents_written"] / keys.duration_seconds
            self.add_figure("documents written", "1/s", written, "higher")
        result.windows = self.rates.windows(result.started, keys.duration_seconds)

    def _report_lag(self) -> None:
        """How far secondaries were behind meanwhile."""
        result = self.outcome
        rows = self.lag.between(result.started, result.ended)
        names = sorted({name for _, row in rows for name in row})
        lines = {name: [row.get(name) for _, row in rows] for name in names}
        values = sorted(lag for line in lines.values() for lag in line if lag is not None)
        if not values:
            result.notes["lag"] = "there is no secondary to be behind"
            return
        p95 = statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]
        self.add_figure("p95 lag", "s", p95, "lower")
        self.add_figure("largest lag", "s", values[-1], "lower")
        times = [round(t - result.started, 3) for t, _ in rows]
        result.series = [Series("lag behind the primary", "s", t=times, lines=lines)]


def known_ids(client: Client, namespace: str) -> dict[str, Any]:
    """{"first", "count"} where `_id`s have no gaps, else {"list"}: a sample. Raises PhaseError."""
    collection = collection_of(client, namespace)
    ends = [next(iter(collection.find({}, {"_id": 1}).sort("_id", way).limit(1)), None) for way in (1, -1)]
    if ends[0] is None or ends[1] is None:
        raise PhaseError("NoDocuments", f"{namespace} is empty: there is nothing to read")
    first, last = ends[0]["_id"], ends[1]["_id"]
    if not isinstance(first, int) or not isinstance(last, int):
        raise PhaseError("NoNumbers", f"the `_id`s of {namespace} are not whole numbers")
    if last - first + 1 == collection.count_documents({}):
        return {"first": first, "count": last - first + 1}
    sample = collection.aggregate([{"$sample": {"size": SAMPLED_IDS}}, {"$project": {"_id": 1}}])
    return {"list": [document["_id"] for document in sample]}


ENGINE = ReadersEngine

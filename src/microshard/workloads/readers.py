"""The engine `readers`: reads documents by `_id` with many clients while others write, and reports the latencies."""

import statistics
import time
from collections.abc import Mapping
from typing import Any

from microshard.model.phases.readers import ReadersPhase
from microshard.model.plan import PlannedPhase
from microshard.model.result import INTENDED, Column, Metric, PhaseResult, Series, Table
from microshard.workloads import pacing, recording
from microshard.workloads.base import Context, Engine, PhaseError, collection_of, cpu_seconds
from microshard.workloads.connections import Client
from microshard.workloads.servers import LagMonitor, queries_answered
from microshard.workloads.several_hosts import is_first, merge_parts, share
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

    @classmethod
    def merge(cls, parts: Mapping[str, PhaseResult], together: PhaseResult) -> PhaseResult:
        """The reads and writes of all client hosts; lag and members' queries are those the first one has seen."""
        merged, (first, *others) = merge_parts(parts, together), parts.values()
        if all(part.metric for part in (first, *others)):
            of_clients = {figure.name for part in others for figure in part.figures}
            lag = [figure for figure in first.figures if figure.name not in of_clients]
            _set_figures(merged, first.ended - first.started, writers="documents written" in of_clients)
            merged.figures += lag
        return merged

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
        # Readers and writers of all client hosts have numbers; this host has some of them.
        readers, writers = (list(share(total, self.context.job)) for total in (keys.threads, keys.writers))
        reading = {"role": "read", "numbers": readers, "of": keys.threads}
        works = [common | reading | {"schedule": self.schedules["READ"]}]
        if writers:
            writing = {"role": "write", "numbers": writers, "of": keys.writers, "batch": keys.write_batch}
            works.append(common | writing | {"schedule": self.schedules["UPDATE"]})
        self.on_close(self.workers.end)
        self.workers.start(works)
        self.workers.wait_ready()

    def run(self) -> None:
        """Warm up and measure. `started` and `ended` enclose the measured time. Raises PhaseError."""
        result, keys, processes = self.outcome, self.keys, self.context.job.point.processes
        before = queries_answered(processes)
        if is_first(self.context.job):
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
        result.client_cpu_seconds = cpu_seconds() - cpu + sum(m["cpu_seconds"] for m in finished.values())
        after = queries_answered(processes)
        self._report_latencies(finished)
        if not is_first(self.context.job):
            return
        self.lag.stop()
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
            "writes": latency["UPDATE"].sent.get_total_count() if "write" in finished else 0,
            "documents_written": finished["write"]["documents"] if "write" in finished else 0,
            "missing": missing,
            "errors": missing,
        }
        if missing:
            raise PhaseError("MissingDocuments", f"{missing} documents of {keys.namespace} were not found")
        if not reads.get_total_count():
            raise PhaseError("NoReads", f"no read ended in {keys.duration_seconds:g} s")
        pacing.report(result, latency, {n: s for n, s in self.schedules.items() if n in latency}, keys.duration_seconds)
        _set_figures(result, keys.duration_seconds, writers=keys.writers > 0)
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


def _set_figures(result: PhaseResult, seconds: float, *, writers: bool) -> None:
    """Metric and figures of latencies and counters; in an open loop from the intended time."""
    counted = result.latency.get(f"{INTENDED}READ") or result.latency["READ"]
    milliseconds = {p: value / 1000 for p, value in counted.percentiles.items()}
    result.metric = Metric("p95 read latency", "ms", milliseconds["95"], "lower")
    result.samples = [milliseconds["95"]]
    result.figures = [
        Metric("p50 read latency", "ms", milliseconds["50"], "lower"),
        Metric("p99 read latency", "ms", milliseconds["99"], "lower"),
        Metric("reads", "1/s", result.counters["reads"] / seconds, "higher"),
    ]
    if writers:
        written = result.counters["documents_written"] / seconds
        result.figures.append(Metric("documents written", "1/s", written, "higher"))


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

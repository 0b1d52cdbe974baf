"""What an experiment may ask of YCSB, in the words of the experiment file."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from microshard.model.base import Model, Namespace
from microshard.model.pacing import RateSearch, Searching
from microshard.model.phase import EstimateBasis, KeyFinding, PhaseContext, PhaseKind
from microshard.model.topology import Topology, data_members

Operation = Literal["read", "update", "insert", "scan", "read_modify_write"]
Property = str | int | float | bool
GROWING = frozenset({"zipfian", "latest", "exponential"})  # distributions whose key space grows with inserts

KEY_BYTES = 24  # `user` and a hash of up to 19 digits
FIELD_OVERHEAD_BYTES = 14  # BSON: type, name, length and subtype of a binary value
LOAD_DOCUMENTS_PER_SECOND = 6_000  # per core, client included, no batches, mongod 6.0.5
JVM_SECONDS = 6.0  # a client's start, end and what is between, without its operations

# What the engine decides, and the key that says it; as properties they would contradict it.
OURS = {
    "recordcount": "records",
    "operationcount": "operations",
    "maxexecutiontime": "duration_seconds",
    "readproportion": "proportions",
    "updateproportion": "proportions",
    "insertproportion": "proportions",
    "scanproportion": "proportions",
    "readmodifywriteproportion": "proportions",
    "requestdistribution": "distribution",
    "insertorder": "insert_order",
    "fieldcount": "fields",
    "fieldlength": "field_bytes",
    "maxscanlength": "max_scan",
    "readallfields": "read_all_fields",
    "writeallfields": "write_all_fields",
    "threadcount": "threads",
    "threads": "threads",
    "target": "rate",
    "table": "namespace",
    "batchsize": "batch_size",
    "mongodb.batchsize": "batch_size",
    "mongodb.database": "namespace",
    "mongodb.writeConcern": "write_concern",
    "mongodb.readPreference": "read_preference",
    "insertstart": "clients (each is given its range)",
    "insertcount": "clients (each is given its range)",
    "mongodb.url": "topology (the plan knows where the point listens)",
    "mongodb.tlsCAFile": "topology.security (the run has its own authority)",
    "mongodb.maxconnections": "threads (a connection each)",
}
# What it needs for itself; nobody else may say it.
RESERVED = (
    "workload", "db", "dotransactions", "status.interval", "measurementtype", "measurement.interval",
    "hdrhistogram.fileoutput", "hdrhistogram.output.path", "mongodb.report", "mongodb.startat", "mongodb.rungs",
    "mongodb.rungseconds", "latencytrackederrors", "reportlatencyforeacherror", "exporter", "exportfile",
)  # fmt: skip
# Further properties of YCSB core 0.17.0 and of the binding. A name that YCSB does not read changes nothing, silently.
OTHERS = (
    "minscanlength", "scanlengthdistribution", "fieldlengthdistribution", "minfieldlength", "fieldlengthhistogram",
    "zeropadding", "dataintegrity", "hotspotdatafraction", "hotspotopnfraction", "exponential.percentile",
    "exponential.frac", "core_workload_insertion_retry_limit", "core_workload_insertion_retry_interval",
    "fieldnameprefix", "mongodb.upsert", "mongodb.readConcern", "mongodb.compressors", "mongodb.valuetype",
)  # fmt: skip


class Ladder(Model):
    """The rungs of `threads: ladder`, and when it ends: after `patience` rungs in a row that neither bring `min_gain`
    more throughput than the best so far nor keep p95 and p99 within `latency_rise` of it. The knee is the best."""

    first: Annotated[int, Field(ge=1, le=4096)] = 1
    """Threads of the first rung, over all clients."""
    factor: Annotated[float, Field(gt=1, le=16)] = 2
    """Threads of a rung over those of the rung before."""
    last: Annotated[int, Field(ge=1, le=16384)] = 128
    """Most threads that are tried."""
    rung_seconds: Annotated[int, Field(ge=2, le=86_400, json_schema_extra={"unit": "s"})] = 30
    """Measured time of a rung."""
    settle_seconds: Annotated[int, Field(ge=1, le=3600, json_schema_extra={"unit": "s"})] = 1
    """Time after new threads have joined that is left out."""
    min_gain: Annotated[float, Field(ge=0, le=1)] = 0.05
    """A rung is better when its throughput exceeds the best so far by this share."""
    latency_rise: Annotated[float, Field(ge=0, le=10)] = 0.1
    """Latency has risen when p95 or p99 over all operations exceeds that of the best rung by this share."""
    patience: Annotated[int, Field(ge=1, le=100)] = 1
    """Rungs in a row without gain and with risen latency that end the ladder."""

    def _contradictions(self) -> Iterator[str]:
        if self.last < self.first:
            yield f"last: {self.last} is below the first rung's {self.first} threads"

    @property
    def step_seconds(self) -> int:
        """Time of a rung with its settling."""
        return self.rung_seconds + self.settle_seconds

    def rungs(self) -> list[int]:
        """Threads of every rung, rising; the last one is `last`."""
        found, threads = [], float(self.first)
        while threads < self.last:
            found.append(math.floor(threads))
            threads = max(threads * self.factor, math.floor(threads) + 1)
        return [*found, self.last]


class YcsbPhase(Searching):
    """Run YCSB: as load phase it fills the collection, as measurement it runs a mix of operations for a time."""

    changes_data: ClassVar[bool] = True
    spreads: ClassVar[bool] = True
    reports_latency: ClassVar[bool] = True

    assumptions: ClassVar[tuple[str, ...]] = (
        f"ycsb: {LOAD_DOCUMENTS_PER_SECOND:,} inserts/s a core, client included; {JVM_SECONDS:g} s for each JVM",
    )

    engine: Literal["ycsb"]
    """ycsb: YCSB core 0.17.0 with the binding of clients/ycsb-mongodb."""
    namespace: Namespace = "ycsb.usertable"
    """Collection of the records."""
    records: Annotated[int, Field(ge=1, le=2_000_000_000)]
    """Records of the load; the keys that a measurement reads and updates."""
    proportions: Annotated[dict[Operation, Annotated[float, Field(ge=0, le=1)]], Field(min_length=1)] = Field(
        default={"read": 0.95, "update": 0.05}
    )
    """Measurement: share of each operation; together 1."""
    distribution: Literal["uniform", "zipfian", "latest", "hotspot", "exponential", "sequential"] = "uniform"
    """Measurement: which records are chosen."""
    insert_order: Literal["hashed", "ordered"] = "hashed"
    """Whether keys come in hashed or in rising order."""
    fields: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Fields of a record."""
    field_bytes: Annotated[int, Field(ge=1, le=10_000_000, json_schema_extra={"unit": "bytes"})] = 100
    """Length of a field's value."""
    max_scan: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Most records of a scan."""
    read_all_fields: bool = True
    """Whether a read returns the whole record or one field."""
    write_all_fields: bool = False
    """Whether an update writes the whole record or one field."""
    batch_size: Annotated[int, Field(ge=1, le=100_000, json_schema_extra={"unit": "documents"})] = 1
    """Load: documents per insert command; latencies are those of commands."""
    write_concern: Literal["acknowledged", "unacknowledged", "journaled", "replica_acknowledged", "majority"] = (
        "acknowledged"
    )
    """Write concern; acknowledged is w: 1."""
    read_preference: Literal["primary", "primary_preferred", "secondary", "secondary_preferred", "nearest"] = "primary"
    """Which members serve reads and scans."""
    clients: Annotated[int, Field(ge=1, le=256)] | Literal["per_mongos"] = 1
    """YCSB processes, spread over the client hosts; started and stopped together, results merged."""
    mongos: Literal["all", "own"] = "all"
    """all: every client knows every mongos and the driver spreads its operations; own: one mongos for each client, in
    turn."""
    threads: Annotated[int, Field(ge=1, le=16384)] | Literal["ladder"] = 8
    """Threads over all clients; ladder: 1, 2, 4 … until more do not help, the figure is that of the best rung."""
    ladder: Ladder = Ladder()
    """threads ladder: its rungs and its end."""
    rate: Annotated[int, Field(ge=1, le=100_000_000, json_schema_extra={"unit": "operations/s"})] | None = None
    """Open loop, constant: operations a second of all clients together; latencies from the intended start are reported
    besides. null: closed loop, as fast as it goes."""
    duration_seconds: Annotated[int, Field(ge=2, le=864_000, json_schema_extra={"unit": "s"})] = 60
    """Measurement: its time, after the warm-up."""
    operations: Annotated[int, Field(ge=1, le=2_000_000_000)] | None = None
    """Measurement: ends after so many operations of all clients, warm-up included, instead of after a time."""
    warm_up_seconds: Annotated[int, Field(ge=0, le=86_400, json_schema_extra={"unit": "s"})] = 5
    """Measurement: time from the start that is left out."""
    start_seconds: Annotated[int, Field(ge=1, le=3600, json_schema_extra={"unit": "s"})] = 60
    """Longest time the clients may take to start and connect; they begin together as soon as all are ready."""
    java_options: Annotated[list[str], Field(max_length=50)] = Field(default=[])
    """Options of the JVM such as -Xmx2g."""
    properties: Annotated[dict[str, Property], Field(max_length=100)] = Field(default={})
    """Further properties of YCSB or the binding, as they are."""

    def rung(self, rate: float, search: RateSearch) -> dict[str, Any]:
        """The clients at this rate, started anew."""
        times = {"duration_seconds": search.rung_seconds, "warm_up_seconds": search.settle_seconds, "operations": None}
        return {"rate": round(rate), "search": None, **times}

    def _contradictions(self) -> Iterator[str]:
        """Sentences "key: reason" about keys that cannot go together."""
        yield from super()._contradictions()
        total = math.fsum(self.proportions.values())
        if not math.isclose(total, 1, abs_tol=1e-6):
            yield f"proportions: they add up to {total:g}, not to 1"
        yield from self._bad_properties()
        if self.threads == "ladder" and (self.rate is not None or self.search is not None):
            yield "threads: a ladder of threads is a closed loop, so it has neither rate nor search"
        if self.threads == "ladder" and self.operations is not None:
            yield "operations: a ladder measures for a time (ladder.rung_seconds)"
        threads = self.ladder.last if self.threads == "ladder" else self.threads
        if isinstance(self.clients, int) and threads < self.clients:
            yield f"threads: {threads} over {self.clients} clients leave some without any"
        yield from self._keys_run_out()

    def _bad_properties(self) -> Iterator[str]:
        for name in self.properties:
            if name in OURS:
                yield f"properties: {name} contradicts the key {OURS[name]}, which says it"
            elif name in RESERVED:
                yield f"properties: {name} is set by the engine itself"
            elif name not in OTHERS:
                near = difflib.get_close_matches(name, [*OTHERS, *OURS, *RESERVED], 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                yield f"properties: neither YCSB nor the binding reads {name}{hint}"

    def _keys_run_out(self) -> Iterator[str]:
        """Distributions that cannot be had of these records, or not of several clients."""
        inserts = self.proportions.get("insert", 0) > 0
        if self.proportions.get("scan", 0) > 0 and self.max_scan > self.records:
            yield f"records: too few for scans of up to {self.max_scan} (max_scan)"
        if self.distribution == "hotspot":
            share = self.properties.get("hotspotdatafraction", 0.2)
            if isinstance(share, int | float) and self.records * share < 1:
                yield f"records: too few for a hot spot of {share:g} of them (hotspotdatafraction)"
        if self.distribution in GROWING and self.records < 2:
            yield f"records: too few for the distribution {self.distribution}; it needs at least 2"
        if inserts and self.distribution in GROWING and self.clients != 1:
            one = "counts on keys of one client alone; use one client, or uniform"
            yield f"clients: with inserts, the distribution {self.distribution} {one}"
        if inserts and self.distribution == "zipfian" and self.operations is None:
            yield "operations: YCSB sizes the key space of zipfian with inserts by it, so it must be given"

    def writes(self) -> bool:
        """Whether the mix changes the data: everything but reads and scans does."""
        return any(share > 0 for name, share in self.proportions.items() if name not in {"read", "scan"})

    def parameters(self, context: PhaseContext) -> dict[str, Any]:
        """All keys; `clients` as a number."""
        given = super().parameters(context)
        if self.clients == "per_mongos":
            given["clients"] = context.mongos or 1
        return given

    def problems(self, context: PhaseContext) -> Iterator[tuple[str, str]]:
        """More clients by mongos than threads, or fewer clients than client hosts."""
        count = (context.mongos or 1) if self.clients == "per_mongos" else self.clients
        most = self.ladder.last if self.threads == "ladder" else self.threads
        if self.clients == "per_mongos" and count > most:
            yield "threads", f"{most} threads over {count} clients (one a mongos) leave some without any"
        yield from self.leaves_hosts_idle("clients", count, context)

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[KeyFinding]:
        """Keys that belong to the other kind of phase, and routers that are not there."""
        given = self.model_fields_set
        yield from self.search_findings(kind)
        if kind == "load":
            for key in ("proportions", "distribution", "duration_seconds", "operations", "warm_up_seconds", "ladder"):
                if key in given and getattr(self, key) is not None:
                    yield (key,), "has no effect: a load inserts every record once, measured from the first", "error"
            if self.threads == "ladder":
                yield ("threads",), "a load has no ladder; measure with proportions: {insert: 1}", "error"
            elif self.threads > self.records:
                yield ("threads",), f"{self.threads} threads for {self.records} records", "error"
        else:
            yield from self._given_in_vain()
        if kind != "load" and self.batch_size > 1:
            message = "YCSB would read records that are still in a client's batch; only a load has"
            yield ("batch_size",), message, "error"
        if topology.kind != "sharded" and ("mongos" in given or self.clients == "per_mongos"):
            key = "mongos" if "mongos" in given else "clients"
            yield (key,), f"has no effect: kind: {topology.kind} has no mongos", "warning"
        if self.write_concern == "replica_acknowledged" and data_members(topology) < 2:
            yield ("write_concern",), "waits for 2 members where there is one, so no write would end", "error"

    def _given_in_vain(self) -> Iterator[KeyFinding]:
        """Keys of a measurement that were given although another one decides."""
        given = self.model_fields_set
        if self.threads == "ladder":
            if "duration_seconds" in given:
                yield ("duration_seconds",), "has no effect: a ladder has ladder.rung_seconds", "error"
            if "warm_up_seconds" in given:
                yield ("warm_up_seconds",), "has no effect: a ladder has ladder.settle_seconds", "error"
        elif "ladder" in given:
            yield ("ladder",), "has no effect without threads: ladder", "error"
        if self.operations is not None and "duration_seconds" in given:
            yield ("duration_seconds",), "has no effect: operations ends the measurement; keep one of them", "error"

    def of_kind(self, kind: PhaseKind) -> YcsbPhase:
        """A load adds records, a measurement takes its time."""
        if kind != "load":
            return self
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return YcsbLoad.model_construct(_fields_set=set(self.model_fields_set), **given)

    def sweeps(self) -> tuple[str, ...]:
        """A ladder goes through threads."""
        return ("threads",) if self.threads == "ladder" else ()

    def figures(self) -> tuple[str, ...]:
        """The metric, and where a ladder's knee is."""
        return self.reported("throughput", *("threads at the knee" for _ in self.sweeps()))

    def seconds(self, expected: EstimateBasis) -> float:  # noqa: ARG002 - the keys say how long it takes
        """Time of a measurement, all rungs of a ladder or a search included."""
        if self.search is not None:
            return len(self.search.rates()) * (JVM_SECONDS + self.search.step_seconds)
        if self.threads == "ladder":
            return JVM_SECONDS + len(self.ladder.rungs()) * self.ladder.step_seconds
        return JVM_SECONDS + self.warm_up_seconds + self.duration_seconds


class YcsbLoad(YcsbPhase):
    """The same keys under `load`."""

    def of_kind(self, kind: PhaseKind) -> YcsbPhase:  # noqa: ARG002
        """Itself."""
        return self

    def raw_bytes(self) -> int:
        """BSON bytes of the records."""
        return self.records * (KEY_BYTES + self.fields * (FIELD_OVERHEAD_BYTES + self.field_bytes))

    def adds(self) -> int:
        """The records."""
        return self.records

    def seconds(self, expected: EstimateBasis) -> float:
        """By the rate of a 2020s core."""
        rate = LOAD_DOCUMENTS_PER_SECOND * max(expected.cores, 1) * min(self.batch_size, 4)
        return JVM_SECONDS + self.records * expected.copies / rate

    def data(self) -> Any:
        """What is there afterwards."""
        return {k: getattr(self, k) for k in ("namespace", "records", "fields", "field_bytes", "insert_order")}


class YcsbParameters(YcsbPhase):
    """The keys as a plan hands them over: with `clients` as a number."""

    clients: Annotated[int, Field(ge=1, le=256)] = 1
    """YCSB processes of all client hosts."""


KEYS = YcsbPhase

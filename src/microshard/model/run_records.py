"""The records of a run's folder besides plan and results: marker, lock, backend, journal, ledger, bundle."""

from dataclasses import dataclass, field
from typing import Any

from microshard.model import OPTIONAL
from microshard.model.advice import SearchRequest

FORMAT = 1  # of run.json, plan.json and the records beside them; a file of a newer format is refused


@dataclass(slots=True)
class ImportOrigin:
    """The bundle a run was imported from."""

    file: str = ""
    sha256: str = ""
    at: float = 0.0  # epoch seconds


@dataclass(slots=True)
class RunMarker:
    """run.json: marks a folder as a run of microshard."""

    microshard: str  # version of the tool
    run_id: str
    experiment: str = ""
    created: float | None = None  # epoch seconds
    pid: int | None = field(default=None, metadata=OPTIONAL)  # process that created the folder
    imported: ImportOrigin | None = field(default=None, metadata=OPTIONAL)
    format: int = FORMAT


@dataclass(slots=True)
class RequestRecord:
    """The command a run was started with."""

    file: str  # experiment file, absolute
    scale: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)  # dotted key → value
    search: SearchRequest | None = field(default=None, metadata=OPTIONAL)  # of `microshard advise`
    parallel: int = 1  # fleets that may exist at a time, on EC2


@dataclass(slots=True)
class LockedBinary:
    """The MongoDB of a point."""

    mongod: str = ""
    mongos: str = ""
    embedded: bool | None = None  # whether the router is microshard's embedded one
    version: str = ""
    mongod_sha256: str | None = None
    install: dict[str, Any] = field(default_factory=dict)  # how it is installed on hosts; empty: it is there


@dataclass(slots=True)
class RunLock:
    """lock.json: every default, version and hash the run resolved."""

    microshard: str = ""  # version of the tool
    definition: dict[str, Any] = field(default_factory=dict)  # the experiment with all its defaults
    definition_sha256: str = ""  # of the experiment file
    request: RequestRecord | None = field(default=None, metadata={"formerly": "asked"})
    backend: str = ""
    binaries: dict[str, LockedBinary] = field(default_factory=dict)  # by point
    host: dict[str, Any] = field(default_factory=dict)  # the controller: CPU, cores, RAM, kernel, system
    hosts: dict[str, Any] = field(default_factory=dict, metadata=OPTIONAL)  # of several hosts, by name
    packages: dict[str, str] = field(default_factory=dict)  # versions of the libraries results depend on
    images: dict[str, str] = field(default_factory=dict, metadata=OPTIONAL)  # AMI by group of hosts
    differs_from_lock: list[str] = field(default_factory=list, metadata=OPTIONAL)  # from the lock file it started with


@dataclass(slots=True)
class BackendRecord:
    """backend.json: where the run was executed."""

    backend: str = "local"  # local, hosts or ec2
    inventory: str | None = None  # from here on of hosts
    folder: str | None = None  # of the run, on every host
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)  # host → its facts, clock offset (s ahead)
    used: list[str] = field(default_factory=list)  # hosts the plan uses
    region: str | None = None  # of EC2
    hourly_usd: float | None = None  # what the hosts on EC2 cost; None: not known
    expires_at: int | None = None  # when they terminate automatically, epoch seconds


@dataclass(slots=True)
class JournalEvent:
    """A line of journal.jsonl: something the runner did. `t` is put in when the line is written."""

    # run started, resumed, stage, step started, step done, step skipped, answer differs, point failed, prepare failed,
    # budget reached, stopped, kept, teardown failed, run ended, up, going down, down, member added, hosts made,
    # fleet failed, hosts ended, data restored, empty cluster restored, data kept,
    # data not kept, data image refused, data image removed
    event: str
    t: float = 0.0  # epoch seconds
    step: int | None = None  # index in the plan
    point: str | None = None
    name: str | None = None  # of the attempt (r2-3), or of the process
    message: str | None = None
    reason: str | None = None
    valid: bool | None = None
    reasons: list[str] | None = None
    recovered: bool | None = None  # the result was there, its line was not
    steps: int | None = None
    remaining: int | None = None
    stage: str | None = None
    stages: dict[str, float] | None = None  # seconds by stage
    seconds: float | None = None
    loading: float | None = None
    measuring: float | None = None
    orchestration: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    points: list[str] | None = None
    left: list[str] | None = None  # what could not be removed
    connection_string: str | None = None
    replica_set: str | None = None
    fleet: str | None = None
    zone: str | None = None
    remarks: list[str] | None = None
    hours: float | None = None  # of hosts on EC2, from the first launch on
    usd: float | None = None  # what they cost at on-demand prices; None: not known
    estimated_hours: float | None = None
    estimated_usd: float | None = None
    error: str | None = None


@dataclass(slots=True)
class LedgerRecord:
    """A line of ledger.jsonl: something outside of the folder, recorded before it is made."""

    kind: str  # process, volume, deployment, run or ec2
    # about to start, about to be made, removed, clean, not clean; of ec2 creating, made, removing, gone, left
    state: str
    t: float = 0.0  # epoch seconds
    point: str | None = None
    name: str | None = None
    folder: str | None = None
    config_path: str | None = None
    pid_path: str | None = None
    port: int | None = None
    image: str | None = None
    mount: str | None = None
    what: str | None = None  # kind of EC2 resource
    ids: list[str] | None = None
    run: str | None = None
    region: str | None = None
    count: int | None = None
    token: str | None = None
    attempt: str | None = None
    left: list[str] | None = None  # what could not be removed


@dataclass(slots=True)
class SlowOperations:
    """Slow operations of one shape in a server's log."""

    operation: str
    namespace: str
    shape: str  # the command without its values
    plan: str  # plan summary
    count: int = 0
    milliseconds: int = 0
    longest: int = 0  # ms
    examined: int = 0  # documents


STANDS_STILL = 3.0  # s between two samples, one a second: the process, or its disk, did nothing meanwhile


@dataclass(slots=True)
class Standstill:
    """A process noted nothing of itself for STANDS_STILL seconds or longer: it stood still, or was paused."""

    began: float  # epoch seconds
    seconds: float


@dataclass(slots=True)
class Diagnostics:
    """What a process noted of itself every second (FTDC), over its whole life."""

    samples: int
    began: float  # epoch seconds
    ended: float
    checkpoint_longest: float  # s
    dirty_share_max: float  # of the cache
    evicted_by_operations: int  # pages
    flow_control_us: int  # operations waited for flow control
    standstills: list[Standstill] = field(default_factory=list)  # in the order of their times


@dataclass(slots=True)
class LogSummary:
    """What a server's log says; logs/POINT/summary.json has one for each process."""

    slow: int = 0  # slow operations of the workload
    connections: int = 0
    connections_max: int = 0  # at a time, as the server counted them
    elections: int = 0
    migrations: int = 0
    warnings: int = 0
    errors: int = 0
    unread: int = 0  # lines that are no JSON
    shapes: list[SlowOperations] = field(default_factory=list)  # the costliest first
    diagnostics: Diagnostics | None = None  # None: no FTDC was kept, or it cannot be read


@dataclass(slots=True)
class BundledFile:
    """A file of a bundle."""

    bytes: int
    sha256: str


@dataclass(slots=True)
class BundleManifest:
    """manifest.json, the first member of a bundle."""

    bundle: int  # version of the format
    microshard: str
    run_id: str
    experiment: str
    files: dict[str, BundledFile]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.bytes for file in self.files.values())

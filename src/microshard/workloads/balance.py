"""The engine `balance`: a load runs while the cluster balances itself; the distribution is recorded each second."""

import time
from collections import Counter
from typing import Any

from microshard.model.phases.balance import BalancePhase
from microshard.model.plan import PlannedPhase
from microshard.model.result import Series
from microshard.workloads.background_load import BackgroundLoad
from microshard.workloads.base import Context, Engine, PhaseError, collection_of
from microshard.workloads.chunk_moves import BalanceMonitor, ChunkMover, ShardShare
from microshard.workloads.connections import Client, connect

SAMPLE_SECONDS = 1.0
STOP_MS = 60_000
DEFAULT_CHUNK_MB = {True: 128, False: 64}  # of a server from 6.0 on, and before


class BalanceEngine(Engine[BalancePhase]):
    """Runs the load, sets the balancer to work and waits until the cluster is balanced."""

    keys_model = BalancePhase
    entry: Client
    monitor: BalanceMonitor
    mover: ChunkMover | None = None
    event_at = 0.0  # epoch seconds

    def __init__(self, phase: PlannedPhase, context: Context) -> None:
        super().__init__(phase, context)
        self.load = BackgroundLoad(self.keys.load) if self.keys.load else None
        self.samples: list[tuple[float, dict[str, ShardShare]]] = []
        self.at_load_end: dict[str, ShardShare] | None = None

    def prepare(self) -> None:
        """Connect to all shards, also to those that are added later; count; start the load's workers."""
        keys, point = self.keys, self.context.job.point
        self.entry = self.opened(self.context.connect())
        shards = [rs for rs in point.replica_sets if rs.role == "shard"]
        if not shards:
            raise PhaseError("NoShards", "the job names no replica sets of shards, so there is nothing to monitor")
        clients = {rs.name: self.opened(connect(rs.uri)) for rs in shards}
        self.monitor = BalanceMonitor(self.entry, keys.namespace, clients)
        if self.entry["config"]["collections"].find_one({"_id": keys.namespace}) is None:
            raise PhaseError("NotSharded", f"{keys.namespace} is not sharded, so the balancer does not move it")
        self.monitor.read_changelog(ignore=True)
        self.before = self._count()
        if self.load is not None:
            self.load.prepare(self, [keys.namespace], self.before)

    def _count(self) -> int:
        # Not by the shards' counters: those include what migrations have left behind.
        return collection_of(self.entry, self.keys.namespace).count_documents({})

    # --- the measurement

    def run(self) -> None:
        """Load, event, balancing, quiet time; then stop what moves and count. Raises PhaseError."""
        keys = self.keys
        settled = False
        try:
            with self.measured(lambda: self.load.cpu_seconds if self.load else 0.0):
                if self.load is not None:
                    self.load.begin("before" if keys.before_seconds else "during")
                self._sample_until(self.outcome.started + keys.before_seconds)
                self._sample()
                self._start_event()
                settled = self._wait_until_balanced()
                self._finish_load(settled=settled)
        finally:
            self._stop_moving()
            self._report_distribution()
            self._report_migrations()
            if self.load is not None:
                self._report_load(self.load)
        self._set_metric(settled=settled)
        self._verify()

    def _sample_until(self, moment: float) -> None:
        while (left := moment - time.time()) > 0:
            time.sleep(min(left, SAMPLE_SECONDS))
            self._sample()

    def _sample(self) -> dict[str, ShardShare]:
        """Record the distribution and the migrations so far. Raises what the load or the mover met."""
        if self.load is not None:
            self.load.check()
        if self.mover is not None and self.mover.error is not None:
            raise self.mover.error
        self.monitor.read_changelog()
        shares = self.monitor.shares()
        self.samples.append((time.time(), shares))
        most, total = (f(share.documents for share in shares.values()) for f in (max, sum))
        limit = int(self.keys.time_limit_seconds)
        done = min(int(time.time() - (self.event_at or time.time())), limit - 1)
        note = f"{len(self.monitor.migrations)} migrations, fullest shard {most / total if total else 0:.0%}"
        self.report_progress(done, limit, "s", note)
        return shares

    def _start_event(self) -> None:
        """Add the shards that wait, and start the balancer or the mover."""
        keys, admin, settings = self.keys, self.entry.admin, self.entry["config"]["settings"]
        if keys.before_seconds and self.load is not None:
            self.load.mark("during")
        self.event_at = time.time()
        if keys.event == "shards":
            for rs in self.context.job.point.replica_sets:
                if rs.role == "shard" and not rs.initial:
                    admin.command("addShard", rs.connection, name=rs.name)
        if keys.mover == "balancer":
            admin.command("balancerStart")
            return
        stored = settings.find_one({"_id": "chunksize"})
        version: Any = admin.command("buildInfo")["versionArray"]
        size = float(stored["value"]) if stored else DEFAULT_CHUNK_MB[version[0] >= 6]
        balancer = settings.find_one({"_id": "balancer"}) or {}
        mover = self.mover = ChunkMover(
            self.monitor,
            int(size * 1024 * 1024),
            keys.concurrent_migrations or 1,
            keys.mover_throttle,
            bool(balancer.get("_waitForDelete")),
        )
        self.on_close(lambda: mover.stop(1.0))
        mover.start()

    def _wait_until_balanced(self) -> bool:
        """Record until the cluster is balanced or the time is up; whether it is balanced."""
        keys = self.keys
        quiet_since = time.time()
        while time.time() < self.event_at + keys.time_limit_seconds:
            before = len(self.monitor.migrations)
            self._sample_until(time.time() + SAMPLE_SECONDS)
            endless = keys.load is None or keys.load.documents is None
            loading = not endless and self.load is not None and self.load.running
            if not loading and not endless and self.at_load_end is None:
                self.at_load_end = self._sample()
            if loading or len(self.monitor.migrations) > before or not self.monitor.balanced()[0]:
                quiet_since = time.time()
            if time.time() - quiet_since >= keys.quiet_seconds:
                return True
        return False

    def _finish_load(self, *, settled: bool) -> None:
        """The load's last period, and its end."""
        if self.load is None:
            return
        if self.load.running:
            if settled and self.keys.after_seconds:
                self.load.mark("after")
                self._sample_until(time.time() + self.keys.after_seconds)
            self.load.end()
        self.load.join()
        if self.at_load_end is None:
            self.at_load_end = self._sample()

    def _stop_moving(self) -> None:
        """Stop all migrations, so that counting finds every document once."""
        if self.mover is not None:
            self.mover.stop()
        self.entry.admin.command("balancerStop", maxTimeMS=STOP_MS)

    # --- the result

    def _set_metric(self, *, settled: bool) -> None:
        """Set the metric. Raises PhaseError for a cluster that is not balanced where it should be."""
        keys, result, moves = self.keys, self.outcome, self.monitor.migrations
        seconds = (moves[-1].seen - self.event_at) if moves else 0.0
        if settled:
            rule = f"the server calls it balanced and no migration was committed for {keys.quiet_seconds:g} s"
            result.notes["balanced"] = f"{rule}; the last of {len(moves)} migrations {seconds:.1f} s after the event"
            self.add_figure("time to balanced", "s", round(seconds, 3), "lower")
        else:
            state = f"not balanced {keys.time_limit_seconds:g} s after the event: {self._state()}"
            result.notes["balanced"] = state
            if keys.unsettled == "fail":
                raise PhaseError("NotBalanced", state)
        if keys.metric == "time_to_balanced":
            self.set_metric("time to balanced", "s", seconds, "lower")
        elif keys.metric == "imbalance":
            self.set_metric("fullest shard over the mean", "", imbalance(self.at_load_end or {}), "lower")
        else:
            during = [p for p in self.load.periods if p.name != "before"] if self.load else []
            span = sum(p.seconds(result.ended) for p in during)
            rate = sum(p.documents for p in during) / span if span else 0.0
            self.set_metric("load rate while balancing", "documents/s", rate, "higher")

    def _state(self) -> str:
        """The state of the cluster in one sentence."""
        _, why = self.monitor.balanced()
        shares = self.samples[-1][1] if self.samples else {}
        parts = [f"{name} {share.documents:,} documents in {share.chunks} chunks" for name, share in shares.items()]
        text = f"{', '.join(parts)}; {len(self.monitor.migrations)} migrations"
        if self.monitor.failures:
            text += f", {self.monitor.failures} given up ({self.monitor.last_failure or 'without a reason'})"
        window = (self.entry["config"]["settings"].find_one({"_id": "balancer"}) or {}).get("activeWindow")
        text += f"; the balancing window is {window['start']} to {window['stop']}" if window else ""
        return f"{text}; {why}" if why else text

    def _report_distribution(self) -> None:
        """Chunks, documents and bytes by shard over time."""
        times = [round(at - self.outcome.started, 3) for at, _ in self.samples]
        names = sorted({name for _, shares in self.samples for name in shares})
        for what in ("chunks", "documents", "bytes"):
            lines = {
                name: [getattr(shares[name], what) if name in shares else 0 for _, shares in self.samples]
                for name in names
            }
            self.outcome.series.append(Series(f"{what} by shard", what, stacked=True, t=times, lines=lines))

    def _report_migrations(self) -> None:
        result, moves = self.outcome, self.monitor.migrations
        moved = sum(m.bytes for m in moves)
        result.counters |= {
            "migrations": len(moves),
            "migrations given up": self.monitor.failures,
            "documents moved": sum(m.documents for m in moves),
            "bytes moved": moved,
        }
        result.details = {
            "event": self.keys.event,
            "event_at": round(self.event_at - result.started, 3),
            "moved": {f"{a} to {b}": n for (a, b), n in sorted(Counter((m.source, m.target) for m in moves).items())},
            "migrations": [[round(m.seen - result.started, 3), m.source, m.target, m.documents] for m in moves],
        }
        if moves and self.event_at:
            span = max(moves[-1].seen - self.event_at, 1e-3)
            self.add_figure("bytes moved", "MB/s", round(moved / span / 1e6, 3), "higher")

    def _report_load(self, load: BackgroundLoad) -> None:
        result = self.outcome
        load.fill(result)
        result.table = load.by_period()
        load.report_rates(self)
        _, seconds = load.whole_seconds()
        times = [round(s - result.started, 3) for s in seconds]
        slow = {
            name: [None if (us := load.p95(kind, s)) is None else round(us / 1000, 3) for s in seconds]
            for name, kind in (("insert p95", "INSERT"), ("read p95", "READ"))
            if any(load.p95(kind, s) is not None for s in seconds)
        }
        if slow:
            name = "latency from the intended time" if load.schedule else "latency"
            result.series.append(Series(name, "ms", t=times, lines=slow))

    def _verify(self) -> None:
        """Raise PhaseError unless every document is there once, by the shards' counts too."""
        expected = self.before + (self.load.inserted if self.load else 0)
        found = self._count()
        if found != expected:
            raise PhaseError("WrongCount", f"{expected} documents must be there after the balancing, {found} are")
        shares = self.monitor.shares()
        counted = sum(share.documents for share in shares.values())
        if self.monitor.counts_orphans and counted != expected:
            raise PhaseError("WrongCount", f"the shards' counts add up to {counted} of {expected} documents")
        if not self.monitor.counts_orphans:
            self.outcome.notes["orphans"] = "this server does not count them: documents by shard include copies"
        self.add_figure("fullest shard over the mean, at the end", "", round(imbalance(shares), 4), "lower")


def imbalance(shares: dict[str, ShardShare]) -> float:
    """Documents of the fullest shard over the mean of all."""
    counts = [share.documents for share in shares.values()]
    return max(counts) * len(counts) / sum(counts) if counts and sum(counts) else 1.0


ENGINE = BalanceEngine

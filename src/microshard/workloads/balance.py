"""The engine `balance`: a load runs while the cluster balances itself; where the data is is watched each second."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from microshard.model.job import Phase
from microshard.model.phases.balance import BalancePhase
from microshard.workloads.background_load import BackgroundLoad
from microshard.workloads.base import Client, Context, Engine, Metric, PhaseError, cpu_seconds, read_keys
from microshard.workloads.chunk_moves import BalanceMonitor, ChunkMover, ShardShare

LOOK_SECONDS = 1.0
DEFAULT_CHUNK_MB = {True: 128, False: 64}  # of a server from 6.0 on, and before


class BalanceEngine(Engine):
    """See BalancePhase."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, BalancePhase)
        self.load = BackgroundLoad(self.keys.load) if self.keys.load else None
        self.door: Client | None = None
        self.monitor: BalanceMonitor | None = None
        self.mover: ChunkMover | None = None
        self.looks: list[tuple[float, dict[str, ShardShare]]] = []
        self.event_at = 0.0
        self.at_load_end: dict[str, ShardShare] | None = None
        self.before = 0

    # --- before

    def prepare(self) -> None:
        """Connect to all shards, also those that wait; count; start the load's workers."""
        keys, point = self.keys, self.context.job.point
        self.door = self.context.connect()
        self.monitor = BalanceMonitor(self.door, keys.namespace)
        shards = [rs for rs in point.replica_sets if rs.role == "shard"]
        if not shards:
            raise PhaseError("NoShards", "the job names no replica sets of shards, so there is nothing to monitor")
        self.monitor.add(shards)
        if self.door["config"]["collections"].find_one({"_id": keys.namespace}) is None:
            raise PhaseError("NotSharded", f"{keys.namespace} is not sharded, so the balancer does not move it")
        self.monitor.read_changelog(ignore=True)
        self.before = self._count()
        if self.load is not None:
            target = keys.namespace.partition(".")
            self.load.prepare(
                self.context.job.connection_string,
                [(target[0], target[2])],
                known=self.before,
                key_ranges=point.key_ranges(keys.namespace),
            )

    def _count(self) -> int:
        assert self.door is not None  # noqa: S101 - for the type checker: prepare has connected
        database, _, collection = self.keys.namespace.partition(".")
        # By documents and not by the shards' counters: those count what migrations have left behind.
        return self.door[database][collection].count_documents({})

    # --- the measurement

    def run(self) -> None:
        """Load, event, balancing, quiet; then stop what moves and count."""
        keys, result = self.keys, self.outcome
        cpu = cpu_seconds()
        result.started = time.time()
        settled = False
        try:
            if self.load is not None:
                self.load.begin("before" if keys.before_seconds else "during")
            self._until(result.started + keys.before_seconds)
            self._look()
            self._event()
            settled = self._settle()
            self._afterwards(settled=settled)
        finally:
            result.ended = time.time()
            self._stop_moving()
            own = cpu_seconds() - cpu
            result.client_cpu_seconds = own + (self.load.cpu_seconds if self.load else 0.0)
            self._tell()
        self._judge(settled=settled)
        self._verify()

    def _until(self, moment: float) -> None:
        """Monitor until then."""
        while (left := moment - time.time()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
            self._look()

    def _look(self) -> dict[str, ShardShare]:
        assert self.monitor is not None  # noqa: S101 - for the type checker: prepare has connected
        if self.load is not None:
            self.load.check()
        if self.mover is not None and self.mover.error is not None:
            raise self.mover.error
        self.monitor.read_changelog()
        shares = self.monitor.shares()
        self.looks.append((time.time(), shares))
        most = max(share.documents for share in shares.values())
        total = sum(share.documents for share in shares.values())
        limit = int(self.keys.time_limit_seconds)
        done = min(int(time.time() - (self.event_at or time.time())), limit - 1)
        note = f"{len(self.monitor.migrations)} migrations, fullest shard {most / total if total else 0:.0%}"
        self.context.progress.report(self.phase.name, done, limit, "s", note)
        return shares

    def _event(self) -> None:
        assert self.door is not None and self.monitor is not None  # noqa: S101, PT018 - for the type checker
        keys = self.keys
        if keys.before_seconds and self.load is not None:
            self.load.mark("during")
        self.event_at = time.time()
        if keys.event == "shards":
            for rs in self.context.job.point.replica_sets:
                if rs.role == "shard" and not rs.initial:
                    self.door.admin.command("addShard", rs.connection, name=rs.name)
        if keys.mover == "balancer":
            self.door.admin.command("balancerStart")
            return
        stored = self.door["config"]["settings"].find_one({"_id": "chunksize"})
        version: Any = self.door.admin.command("buildInfo")["versionArray"]
        size = float(stored["value"]) if stored else DEFAULT_CHUNK_MB[version[0] >= 6]
        balancer = self.door["config"]["settings"].find_one({"_id": "balancer"}) or {}
        self.mover = ChunkMover(
            self.monitor,
            int(size * 1024 * 1024),
            keys.concurrent_migrations or 1,
            keys.mover_throttle,
            bool(balancer.get("_waitForDelete")),
        )
        self.mover.start()

    def _settle(self) -> bool:
        """Monitor until the rule holds or the time is up; returns whether it holds."""
        assert self.monitor is not None  # noqa: S101 - for the type checker
        keys = self.keys
        quiet_since = time.time()
        while time.time() < self.event_at + keys.time_limit_seconds:
            before = len(self.monitor.migrations)
            self._until(time.time() + LOOK_SECONDS)
            endless = keys.load is None or keys.load.documents is None
            loading = not endless and self.load is not None and self.load.running
            if not loading and not endless and self.at_load_end is None:
                self.at_load_end = self._look()
            if loading or len(self.monitor.migrations) > before or not self.monitor.balanced()[0]:
                quiet_since = time.time()
            if time.time() - quiet_since >= keys.quiet_seconds:
                return True
        return False

    def _afterwards(self, *, settled: bool) -> None:
        """The load's last period, and its end."""
        if self.load is None:
            return
        if self.load.running:
            if settled and self.keys.after_seconds:
                self.load.mark("after")
                self._until(time.time() + self.keys.after_seconds)
            self.load.end()
        self.load.join()
        if self.at_load_end is None:
            self.at_load_end = self._look()

    def _stop_moving(self) -> None:
        """Nothing moves any more, so that counting finds every document once."""
        if self.mover is not None:
            self.mover.stop()
        if self.door is not None:
            self.door.admin.command("balancerStop", maxTimeMS=60_000)

    # --- the result

    def _judge(self, *, settled: bool) -> None:
        """The metric. Raises PhaseError for a cluster that is not balanced where it should be."""
        assert self.monitor is not None  # noqa: S101 - for the type checker
        keys, result, moves = self.keys, self.outcome, self.monitor.migrations
        seconds = (moves[-1].seen - self.event_at) if moves else 0.0
        rule = f"the server calls it balanced and no migration was committed for {keys.quiet_seconds:g} s"
        if settled:
            result.notes["balanced"] = f"{rule}; the last of {len(moves)} migrations {seconds:.1f} s after the event"
            result.figures.append(Metric("time to balanced", "s", round(seconds, 3), "lower"))
        else:
            state = f"not balanced {keys.time_limit_seconds:g} s after the event: {self._state()}"
            result.notes["balanced"] = state
            if keys.unsettled == "fail":
                raise PhaseError("NotBalanced", state)
        if keys.metric == "time_to_balanced":
            result.metric = Metric("time to balanced", "s", seconds, "lower")
        elif keys.metric == "imbalance":
            result.metric = Metric("fullest shard over the mean", "", _imbalance(self.at_load_end or {}), "lower")
        else:
            during = [p for p in self.load.periods if p.name != "before"] if self.load else []
            span = sum(p.seconds(result.ended) for p in during)
            rate = sum(p.documents for p in during) / span if span else 0.0
            result.metric = Metric("load rate while balancing", "documents/s", rate, "higher")
        result.samples = [result.metric.value]

    def _state(self) -> str:
        """How things stand, in one sentence."""
        assert self.monitor is not None and self.door is not None  # noqa: S101, PT018 - for the type checker
        _, why = self.monitor.balanced()
        shares = self.looks[-1][1] if self.looks else {}
        parts = [f"{name} {share.documents:,} documents in {share.chunks} chunks" for name, share in shares.items()]
        text = f"{', '.join(parts)}; {len(self.monitor.migrations)} migrations"
        if self.monitor.failures:
            text += f", {self.monitor.failures} given up ({self.monitor.last_failure or 'no reason given'})"
        window = (self.door["config"]["settings"].find_one({"_id": "balancer"}) or {}).get("activeWindow")
        text += f"; the balancing window is {window['start']} to {window['stop']}" if window else ""
        return f"{text}; {why}" if why else text

    def _tell(self) -> None:
        """Series, table and figures of what was seen, also when it failed."""
        result = self.outcome
        times = [round(at - result.started, 3) for at, _ in self.looks]
        names = sorted({name for _, shares in self.looks for name in shares})
        for what, unit in (("chunks", "chunks"), ("documents", "documents"), ("bytes", "bytes")):
            lines = {
                name: [getattr(shares[name], what) if name in shares else 0 for _, shares in self.looks]
                for name in names
            }
            series = {"name": f"{what} by shard", "unit": unit, "stacked": True, "t": times, "lines": lines}
            result.series.append(series)
        moves = self.monitor.migrations if self.monitor else []
        result.counters["migrations"] = len(moves)
        result.counters["migrations given up"] = self.monitor.failures if self.monitor else 0
        result.counters["documents moved"] = sum(m.documents for m in moves)
        result.counters["bytes moved"] = sum(m.bytes for m in moves)
        result.details = {
            "event": self.keys.event,
            "event_at": round(self.event_at - result.started, 3),
            "moved": {f"{a} to {b}": n for (a, b), n in sorted(Counter((m.source, m.target) for m in moves).items())},
            "migrations": [[round(m.seen - result.started, 3), m.source, m.target, m.documents] for m in moves],
        }
        if moves and self.event_at:
            span = max(moves[-1].seen - self.event_at, 1e-3)
            moved = sum(m.bytes for m in moves)
            result.figures.append(Metric("bytes moved", "MB/s", round(moved / span / 1e6, 3), "higher"))
        if self.load is not None:
            self._tell_load(self.load)

    def _tell_load(self, load: BackgroundLoad) -> None:
        result = self.outcome
        result.counters["documents"] = load.inserted
        result.counters["errors"] = int(load.failed)
        result.latency, result.windows, result.table = load.latency(), load.windows(), load.by_period()
        _, seconds = load.whole_seconds()
        at = [round(s - result.started, 3) for s in seconds]
        rate = {"inserted": [load.by_second.get(s, 0) for s in seconds]}
        result.series.append({"name": "load", "unit": "documents/s", "stacked": False, "t": at, "lines": rate})
        slow = {
            name: [None if (us := load.p95(kind, s)) is None else round(us / 1000, 3) for s in seconds]
            for name, kind in (("insert p95", "INSERT"), ("read p95", "READ"))
            if any(load.p95(kind, s) is not None for s in seconds)
        }
        if slow:
            result.series.append({"name": "latency", "unit": "ms", "stacked": False, "t": at, "lines": slow})
        rates = {p.name: p.documents / p.seconds(result.ended) for p in load.periods if p.seconds(result.ended) > 0}
        if rates.get("before"):
            change = rates.get("during", 0.0) / rates["before"]
            result.figures.append(Metric("load rate, during over before", "", round(change, 4), "higher"))

    def _verify(self) -> None:
        """Raises PhaseError unless every document is there once, on the shards' own word too."""
        assert self.monitor is not None  # noqa: S101 - for the type checker
        expected = self.before + (self.load.inserted if self.load else 0)
        found = self._count()
        if found != expected:
            raise PhaseError("WrongCount", f"{expected} documents must be there after the balancing, {found} are")
        shares = self.monitor.shares()
        own = sum(share.documents for share in shares.values())
        if self.monitor.counts_orphans and own != expected:
            raise PhaseError("WrongCount", f"the shards' own counts add up to {own} of {expected} documents")
        if not self.monitor.counts_orphans:
            self.outcome.notes["orphans"] = "this server does not count them: documents by shard include copies"
        at_end = [share.documents for share in shares.values()]
        skew = max(at_end) * len(at_end) / max(sum(at_end), 1)
        self.outcome.figures.append(Metric("fullest shard over the mean, at the end", "", round(skew, 4), "lower"))

    def close(self) -> None:
        """End the load, the mover and the connections."""
        if self.mover is not None:
            self.mover.stop(1.0)
        if self.load is not None:
            self.load.close()
        if self.monitor is not None:
            self.monitor.close()
        if self.door is not None:
            self.door.close()


def _imbalance(shares: dict[str, ShardShare]) -> float:
    """Documents of the fullest shard over the mean of all."""
    counts = [share.documents for share in shares.values()]
    return max(counts) * len(counts) / sum(counts) if counts and sum(counts) else 1.0


ENGINE = BalanceEngine

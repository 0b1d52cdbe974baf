"""Real mongods, a real client and the real samplers: the evidence of a few seconds' work."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from microshard.analysis.bottleneck_rules import candidates
from microshard.analysis.evidence import Evidence, HostLoad, gather
from microshard.analysis.telemetry import read_folder, summarise
from microshard.analysis.verdict import judge
from microshard.hostlib import host_telemetry as host
from microshard.model.result import Verdict
from tests.cluster.workloads.mongods import Mongod
from tests.unit.analysis import make

CLIENT = Path(__file__).with_name("client.py")


@contextlib.contextmanager
def first_in_line() -> Iterator[None]:
    """What is started meanwhile gets the CPU before other programs of a busy machine, where the user may do that."""
    group = Path(f"/sys/fs/cgroup/cpu/microshard-first-{os.getpid()}")
    try:
        group.mkdir(exist_ok=True)
        (group / "cpu.shares").write_text("200000")
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:  # no root, or control groups of version 2: the machine had better be quiet
        yield
        return
    try:
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(os.getpid()))


def leave_line() -> None:
    """Remove the group of `first_in_line`, once its processes have ended."""
    group = Path(f"/sys/fs/cgroup/cpu/microshard-first-{os.getpid()}")
    if group.is_dir():
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid)
        group.rmdir()


def fill(mongod: Mongod, documents: int, bytes_each: int = 50) -> None:
    """Documents of random text, which no compressor makes smaller."""
    with mongod.client() as client:
        collection = client["test"]["things"]
        for first in range(0, documents, 2000):
            ids = range(first, min(first + 2000, documents))
            collection.insert_many([{"_id": n, "n": n, "text": os.urandom(bytes_each)} for n in ids])


@contextlib.contextmanager
def _beside(meanwhile: Callable[[threading.Event], object] | None) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=meanwhile or threading.Event.is_set, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Lab:
    """Observes a client and its servers in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self,
        servers: Sequence[dict[str, Any]],
        kind: str,
        *,
        uri: str,
        connections: int = 1,
        seconds: float = 4.0,
        prefix: Sequence[str] = (),
        group: Path | None = None,
        meanwhile: Callable[[threading.Event], object] | None = None,
    ) -> Evidence:
        """What telemetry saw while the client worked. `prefix` starts client and samplers (a namespace, say).

        `meanwhile` is called in a thread when the client starts, and is to end when its event is set.
        """
        listing, job, pid_file = (self.folder / name for name in ("processes.json", "job.json", "client.pid"))
        listing.write_text(json.dumps(servers))
        job.write_text(json.dumps({"point": {"processes": servers}}))
        telemetry = self.folder / "telemetry"
        telemetry.mkdir()
        sampled = [sys.executable, host.__file__, "--host", "local", "--processes", str(listing)]
        sampled += ["--client-pid-file", str(pid_file), "--out", str(telemetry / "host-local.jsonl")]
        servers_command = [sys.executable, "-m", "microshard.workloads.server_telemetry", "--job", str(job)]
        servers_command += ["--out", str(telemetry / "server.jsonl")]
        work = [sys.executable, str(CLIENT), uri, kind, str(connections), str(seconds)]
        with first_in_line():
            samplers = [subprocess.Popen([*prefix, *command]) for command in (sampled, servers_command)]
            try:
                join = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{group}/cgroup.procs"] if group else []
                client = subprocess.Popen([*prefix, *join, *work], stdout=subprocess.PIPE, text=True)
                pid_file.write_text(f"{client.pid}\n")
                with _beside(meanwhile):
                    output, _ = client.communicate(timeout=90)
                assert client.returncode == 0
                time.sleep(1.2)
            finally:
                for sampler in samplers:
                    sampler.terminate()
                    sampler.wait()
        return self._evidence(json.loads(output), servers, connections)

    def _evidence(self, interval: dict[str, Any], servers: Sequence[dict[str, Any]], connections: int) -> Evidence:
        phase = make.phase(metric=make.METRIC, **interval)
        processes = [(server["name"], server["role"]) for server in servers]
        sets = {server["name"]: server.get("replica_set") for server in servers}
        phases = (("measure", {"connections": connections}),)
        point = make.point(self.folder / "plan", processes=processes, phases=phases)
        members = tuple(dataclasses.replace(p, replica_set=sets[p.name]) for p in point.processes)
        point = dataclasses.replace(point, processes=members)
        found = read_folder(self.folder / "telemetry")
        assert found.problems == []
        whole = summarise(found.hosts, found.servers, interval["started"], interval["ended"], whole=True)
        return gather(phase, whole, point)


def _alone(host_seen: HostLoad) -> HostLoad:
    others = host_seen.roles.get("others", 0.0)
    roles = {role: used for role, used in host_seen.roles.items() if role != "others"}
    stall = {kind: share for kind, share in host_seen.stall.items() if kind != "memory"}
    return dataclasses.replace(
        host_seen, busy=max(host_seen.busy - others / host_seen.cores, 0), roles=roles, stall=stall
    )


def verdict(evidence: Evidence) -> Verdict:
    """The verdict as on a machine that does nothing else: what other programs used is taken out of the evidence."""
    return judge(dataclasses.replace(evidence, hosts=tuple(map(_alone, evidence.hosts))))


def summary_of(evidence: Evidence) -> str:
    """What all rules found, for a test that fails."""
    return "\n".join(f"{found.name} {found.score:.2f}: {found.sentence}" for found in candidates(evidence))

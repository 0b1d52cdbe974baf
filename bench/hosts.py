"""Configuring hosts reached by SSH (row 9): from nothing to a cluster ready for writes, and how that grows with hosts.

Boots container hosts (tests/hosts/bed: root, systemd-nspawn), three, then ten, then thirty. In turn on one and three of
them, once on more, two shards on each (one where hosts are many and cores few: see `_each`): `microshard up` where
nothing of microshard is on the hosts, `playbooks/deploy.yml` once more on what is up (the second run, which must change
nothing), `down`. Seconds are those of prepare and deploy in the run's journal. The growth is what one more host adds,
as a share of what one host takes. All hosts share the cores of this machine with the controller: they do one after the
other what real hosts do at the same time, so the growth is an upper bound. The notes say what it consists of: CPU of
the controller (the command and all it waited for: Ansible, ssh) and of the machine.
"""

import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.hosts.bed import Bed, BedError, bed, lacking, wheels

from bench.alone import BIN, ROOT, alone, available_mib, say, scratch
from bench.findings import Findings, Row, Target, absolute, compared, growth
from microshard.records.run_folder import find_runs

SHARDS_EACH = 2
FULL = (3, 4)  # hosts and shards on each, for which there are limits in seconds
FIRST_SECONDS, SECOND_SECONDS = 45, 20
MIB_EACH = 600  # RAM of a host with two mongods
LIMIT, LIMIT_EACH = 120, 15  # s, for one command, and for each host
FEW, MANY = (1, 3), (10, 30)
ROUNDS = 3  # where hosts are few
HOSTS_A_CORE = 5  # with SHARDS_EACH: see _each
INSTANCES_EACH = 32  # of inotify, for a host's systemd
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
Series = dict[str, dict[int, list[float]]]  # figure → hosts → repetitions
THIRD_PARTY = (
    "9: community.mongodb's roles as a baseline: they refuse a second mongod on a host and take MongoDB from its "
    "package sites alone, so there is nothing to compare on this machine"
)


def experiment(hosts: int, each: int) -> dict[str, Any]:
    """One point: so many hosts, and so many shards of one member on each."""
    return {
        "microshard": 1,
        "name": "bench-hosts",
        "infrastructure": {"shard_hosts": {"count": hosts}},
        "topology": {
            "shards": {"count": hosts * each},
            "storage": {"cache": {"policy": "per_process_mb", "value": 64}},
            "collections": [{"namespace": "vosa.mot_results", "shard_key": {"_id": 1}}],
        },
        "workload": [
            {"load": {"engine": "insert", "documents": 1}},
            {"measure": {"engine": "aggregate", "pipeline": "mot_greenness"}},
        ],
    }


class Bench:
    """A bed, and what is measured on it."""

    def __init__(self, lab: Bed, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.runs = folder / "runs"

    def command(self, *words: str | Path) -> str:
        """A command inside the bed's network; its output."""
        done = subprocess.run(
            self.lab.inside(words),
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
            timeout=LIMIT + LIMIT_EACH * len(self.lab.machines),
        )
        if done.returncode:
            raise SystemExit(f"{words[0]} {words[1]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def cpu(self) -> tuple[float, float]:
        """Seconds of CPU of the commands so far, and of this machine with the hosts on it."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
        user, nice, system, _idle, _wait, irq, soft = (int(word) for word in line.split()[1:8])
        ticks = user + nice + system + irq + soft
        return children.ru_utime + children.ru_stime, ticks / os.sysconf("SC_CLK_TCK")

    def fresh(self) -> None:
        """Nothing of microshard is on the hosts."""
        for machine in self.lab.machines:
            done = self.lab.ssh(machine, "sudo", "rm", "-rf", "/var/lib/microshard")
            if done.returncode:
                raise SystemExit(f"{machine.name}: {done.stderr}")

    def round(self, hosts: int, each: int) -> dict[str, float]:
        """Seconds of prepare and deploy first, of deploy again, and how many tasks that changed anything."""
        file = self.folder / "experiment.yml"
        file.write_text(json.dumps(experiment(hosts, each)), encoding="utf-8")
        shutil.rmtree(self.runs, ignore_errors=True)
        self.fresh()
        where: list[str | Path] = ["--runs-dir", self.runs]
        seconds: dict[str, float] = {}
        try:
            began, (own, whole) = time.perf_counter(), self.cpu()
            self.command(BIN / "microshard", "up", file, "--on", self.lab.inventory, *where)
            seconds["all"] = time.perf_counter() - began
            seconds["controller's CPU"], seconds["machine's CPU"] = (
                after - before for after, before in zip(self.cpu(), (own, whole), strict=True)
            )
            (run,) = find_runs(self.runs)
            for line in (run.path / "journal.jsonl").read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                if entry["event"] == "stage" and entry["stage"] in {"prepare", "deploy"}:
                    seconds[entry["stage"]] = entry["seconds"]
            seconds["first"] = seconds["prepare"] + seconds["deploy"]
            again = json.loads(self.command(sys.executable, "-m", "bench.hosts_again", run.path))
            seconds |= {"second": again["seconds"], "changed": again["changed"]}
        finally:
            self.command(BIN / "microshard", "down", *where)
        return seconds


def measure(quick: bool) -> Findings:
    """Row 9; growth with hosts."""
    found = Findings(missing=[THIRD_PARTY])
    if missing := lacking():
        found.missing.append(f"9: {missing}")
        return found
    wheels.fetch()
    taken: Series = defaultdict(dict)
    full: list[dict[str, float]] = []
    for sizes in (FEW,) if quick else (FEW, *((size,) for size in MANY)):
        if lack := _lack(max(sizes)):
            found.missing.append(lack)
            continue
        try:
            full += _on_a_bed(sizes, taken, 1 if quick or sizes != FEW else ROUNDS, quick=quick)
        except BedError as error:
            found.missing.append(f"9: {max(sizes)} hosts: {str(error).splitlines()[0]}")
    if not taken:
        return found
    _rows(found, taken, sorted(taken["first"]))
    for run, limit in (("first", FIRST_SECONDS), ("second", SECOND_SECONDS)) if full else ():
        name = f"prepare and deploy, {FULL[0]} hosts with {FULL[1]} shards each, {run} run"
        found.rows.append(absolute(9, name, [figures[run] for figures in full], "s", Target(limit)))
    return found


def _lack(hosts: int) -> str:
    """What this machine lacks for so many hosts; empty when nothing."""
    need = MIB_EACH * (hosts + 2)
    return f"9: {hosts} hosts need about {need:,} MiB of RAM" if available_mib() < need else ""


def _each(hosts: int) -> int:
    """Shards on each of so many hosts.

    Where a core has more than five hosts with two shards to start at the same time, the config server next to them does
    not answer within MongoDB's own time limits.
    """
    return SHARDS_EACH if hosts <= HOSTS_A_CORE * (os.cpu_count() or 1) else 1


@contextlib.contextmanager
def inotify_instances(least: int) -> Iterator[None]:
    """So many at least for root, who all the containers' systemd are; as before afterwards."""
    before = INOTIFY.read_text(encoding="ascii")
    INOTIFY.write_text(str(max(least, int(before))), encoding="ascii")
    try:
        yield
    finally:
        INOTIFY.write_text(before, encoding="ascii")


def _on_a_bed(sizes: tuple[int, ...], taken: Series, rounds: int, *, quick: bool) -> list[dict[str, float]]:
    """Rounds on so many hosts in turn, into `taken`; where there are as many as FULL asks for, rounds of that too."""
    with scratch() as folder, inotify_instances(INSTANCES_EACH * max(sizes)), bed(max(sizes)) as lab:
        bench = Bench(lab, folder)
        for _ in range(rounds):
            for hosts in sizes:
                figures = bench.round(hosts, _each(hosts))
                for name, value in figures.items():
                    taken[name].setdefault(hosts, []).append(value)
                say(f"{hosts} hosts: " + ", ".join(f"{name} {value:.1f}" for name, value in figures.items()))
        return [bench.round(*FULL) for _ in range(ROUNDS if max(sizes) == FULL[0] and not quick else 0)]


def _rows(found: Findings, taken: Series, sizes: list[int]) -> None:
    alike = [hosts for hosts in sizes if _each(hosts) == SHARDS_EACH]
    first, most = taken["first"], alike[-1]
    for hosts in sizes:
        what = f"prepare and deploy, {hosts} host{'' if hosts == 1 else 's'}"
        what += "" if hosts in alike else " with a shard each"
        found.rows.append(absolute(9, what, first[hosts], "s", note="" if hosts in alike else _cpu(taken, hosts)))
        second = taken["second"][hosts]
        found.rows.append(compared(9, f"{what}, second run", second, "the first", first[hosts], "s", Target(0.5)))
    if FULL[0] in first:
        name = f"prepare and deploy, {FULL[0]} hosts"
        found.rows.append(compared(9, name, first[FULL[0]], "one host", first[1], "s", Target(1.5)))
    if most > 1:
        one = statistics.median(first[1])
        added = _added(first, most)
        own, whole = (_added(taken[name], most) for name in ("controller's CPU", "machine's CPU"))
        found.rows.append(
            Row(
                9,
                f"what one more host adds, 1 to {most} hosts",
                "one host",
                added / one,
                None,
                Target(0.2),
                ours=f"{added:.3g} s",
                other=f"{one:.3g} s",
                repetitions=len(first[most]),
                note=f"{most} hosts and the controller share {os.cpu_count()} cores: each further host takes "
                f"{whole:.1f} s of their CPU, {own:.1f} s of it the controller's; hosts of their own do the rest at "
                "the same time",
            )
        )
        found.rows.append(
            Row(
                9,
                f"what one more host adds of the controller's CPU, 1 to {most} hosts",
                "one host",
                own / one,
                None,
                None,
                ours=f"{own:.3g} s",
                other=f"{one:.3g} s",
                repetitions=len(first[most]),
                note="Ansible and ssh, a process a task and host",
            )
        )
    changed = max(value for values in taken["changed"].values() for value in values)
    found.rows.append(absolute(9, "tasks that changed anything in the second run", [changed], "tasks", Target(0)))
    for name in ("first", "second"):
        grown = {hosts: taken[name][hosts] for hosts in alike}
        found.growths.append(growth(f"prepare and deploy, {name} run", "hosts", "s", grown))


def _cpu(taken: Series, hosts: int) -> str:
    """What keeps so many hosts on one machine from being as fast as hosts of their own."""
    own, whole = (statistics.median(taken[name][hosts]) for name in ("controller's CPU", "machine's CPU"))
    return (
        f"{hosts} hosts and the controller share {os.cpu_count()} cores: {whole:.0f} s of their CPU in all, "
        f"{own:.0f} s of it the controller's, {own / hosts:.1f} s a host"
    )


def _added(series: dict[int, list[float]], most: int) -> float:
    """What one more host adds to a figure."""
    return (statistics.median(series[most]) - statistics.median(series[1])) / (most - 1)


if __name__ == "__main__":
    sys.exit(alone(measure))

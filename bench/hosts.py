"""Hosts reached by SSH: from nothing to a cluster ready for writes, first and second time, and from one host to three.

    .venv/bin/python bench/hosts.py [--shards-each 4] [--rounds 1]

Boots three container hosts (tests/hosts/bed: root, systemd-nspawn; left out with the reason where they cannot be had).
In turn, on one and on all three of them, with as many shards each: `microshard up` where nothing of microshard is on
the hosts, `down`, and `up` again, which finds binaries and client there. Prints the seconds of prepare and deploy as
the run's journal has them (both: their sum; all: the whole command with survey and plan), and the ratio of three hosts
to one. Targets on a quiet machine of two cores: both within 45 s first, 20 s second; growth 1.5.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.hosts.bed import Bed, bed, lacking, wheels

from microshard.run.folder import find_runs

MICROSHARD = Path(sys.executable).with_name("microshard")


def experiment(hosts: int, shards: int) -> dict[str, Any]:
    """One point: so many shards of one member on so many hosts."""
    return {
        "microshard": 1,
        "name": "bench-hosts",
        "infrastructure": {"shard_hosts": {"count": hosts}},
        "topology": {
            "shards": {"count": shards},
            "storage": {"cache": {"policy": "per_process_mb", "value": 64}},
            "collections": [{"namespace": "vosa.mot_results", "shard_key": {"_id": 1}}],
        },
        "workload": [
            {"load": {"engine": "insert", "documents": 1}},
            {"measure": {"engine": "aggregate", "pipeline": "mot_greenness"}},
        ],
    }


def up(lab: Bed, folder: Path, hosts: int, shards: int) -> dict[str, float]:
    """Seconds of `up` by stage; the cluster is taken down again."""
    file, runs = folder / "experiment.yml", folder / "runs"
    file.write_text(json.dumps(experiment(hosts, shards)), encoding="utf-8")
    shutil.rmtree(runs, ignore_errors=True)

    def microshard(*words: str | Path) -> None:
        command = lab.inside([MICROSHARD, *words, "--runs-dir", runs])
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode:
            raise SystemExit(f"microshard {words[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    began = time.perf_counter()
    microshard("up", file, "--on", lab.inventory)
    seconds = {"all": time.perf_counter() - began}
    (run,) = find_runs(runs)
    for line in (run / "journal.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["event"] == "stage" and entry["stage"] in {"prepare", "deploy"}:
            seconds[entry["stage"]] = entry["seconds"]
    microshard("down")
    return {**seconds, "both": seconds["prepare"] + seconds["deploy"]}


def fresh(lab: Bed) -> None:
    """Nothing of microshard is on the hosts."""
    for machine in lab.machines:
        done = lab.ssh(machine, "sudo", "rm", "-rf", "/var/lib/microshard")
        if done.returncode:
            raise SystemExit(f"{machine.name}: {done.stderr}")


def main() -> None:
    """Run the rounds and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards-each", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    if missing := lacking():
        print(json.dumps({"skipped": missing}))
        return
    wheels.fetch()
    found: dict[str, list[float]] = {}
    folder = Path(tempfile.mkdtemp(prefix="microshard-bench-"))
    try:
        with bed(3) as lab:
            for _ in range(options.rounds):
                for hosts in (1, 3):
                    fresh(lab)
                    for turn in ("first", "second"):
                        for stage, seconds in up(lab, folder, hosts, hosts * options.shards_each).items():
                            name = f"{hosts} host{'s' if hosts > 1 else ''}, {turn}: {stage}"
                            found.setdefault(name, []).append(round(seconds, 2))
                            print(f"{name}: {seconds:.2f}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    medians = {name: statistics.median(values) for name, values in found.items()}
    growth = {
        turn: medians[f"3 hosts, {turn}: both"] / medians[f"1 host, {turn}: both"] for turn in ("first", "second")
    }
    print(json.dumps({"cores": os.cpu_count(), "median": medians, "growth": growth, "all": found}, indent=1))


if __name__ == "__main__":
    main()

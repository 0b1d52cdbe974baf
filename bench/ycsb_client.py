"""What YCSB's client costs, and what a ladder costs overhead its measuring time: both in one run, on one mongod.

`bench/ycsb_client.py [--rung-seconds 30] [--rounds 7] [--skip-cpu]`

1. CPU of the client process per operation against a bare loop of the same driver with the same documents, in turns in
   one JVM (clients/ycsb-mongodb, BareLoop). Target: at most 1.2 times.
2. A ladder of 8 rungs: seconds of the whole phase that were not measured, over those that were. Target: below 5 %.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cluster.workloads.mongods import start_job, start_mongod, stop_mongod

from microshard.embedded.binary import find_mongod
from microshard.model.phases.ycsb import YcsbPhase

CLIENT = Path(__file__).parents[1] / "clients" / "ycsb-mongodb"
MOST_CPU = 1.2
MOST_OVERHEAD = 0.05
RECORDS = 20_000


def cpu(rounds: int) -> bool:
    """The table of BareLoop; whether every kind of operation keeps to the limit."""
    command = [
        *("mvn", "--quiet", "--batch-mode", "--file", str(CLIENT / "pom.xml"), "-Pbench", "-DskipTests"),
        *(f"-Dmicroshard.mongod={find_mongod()}", f"-Dbench.args=rounds={rounds}", "verify"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    rows = [line.split() for line in done.stdout.splitlines() if line.split()[:1] and line.split()[0].isupper()]
    if done.returncode != 0 or not rows:
        sys.exit(f"the benchmark of the client failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    print(f"{'client CPU, µs an operation':<30}{'bare loop':>12}{'YCSB':>10}{'ratio':>8}")
    for kind, bare, ycsb, ratio, *_ in rows:
        print(f"{kind.lower():<30}{float(bare):>12.1f}{float(ycsb):>10.1f}{float(ratio):>8.2f}")
    return all(float(ratio) <= MOST_CPU for _, _, _, ratio, *_ in rows)


def phase(kind: str, **keys: Any) -> dict[str, Any]:
    """A phase of a job."""
    given = YcsbPhase.model_validate({"engine": "ycsb", "records": RECORDS, **keys})
    return {"name": kind, "kind": kind, "engine": "ycsb", "parameters": given.model_dump(exclude={"engine"})}


def ladder(folder: Path, rung_seconds: int) -> bool:
    """A ladder that climbs all of 8 rungs; whether what it takes overhead measuring keeps to the limit."""
    mongod = start_mongod(folder / "mongod1")
    try:
        rule = {"last": 128, "rung_seconds": rung_seconds, "patience": 100}
        job = start_job(
            folder,
            [mongod],
            phase("load", batch_size=100),
            phase("measure", threads="ladder", ladder=rule, proportions={"read": 0.95, "update": 0.05}),
        )
        code, result, errors = job.finish(600 + 12 * rung_seconds)
        if code != 0:
            sys.exit(f"the ladder failed: {errors}")
    finally:
        stop_mongod(mongod)
    measured = result["phases"][1]
    measuring = len(measured["rungs"]) * rung_seconds
    overhead = measured["seconds"] - measuring
    print(f"\nladder of {len(measured['rungs'])} rungs of {rung_seconds} s: {measured['seconds']:.1f} s in all")
    print(f"overhead measuring: {overhead:.1f} s, {overhead / measuring:.1%} (target: below {MOST_OVERHEAD:.0%})")
    print("threads  operations/s  p99 µs  limited by")
    for rung in measured["rungs"]:
        p99 = rung["latency"]["ALL"]["percentiles"]["99"]
        print(f"{rung['threads']:>7}  {rung['value']:>12,.0f}  {p99:>6,}  {json.dumps(rung['limited'])}")
    return bool(overhead / measuring < MOST_OVERHEAD)


def main() -> int:
    """The command; 1 when a limit is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rung-seconds", type=int, default=30, help="measured time of a rung (30)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of the CPU comparison (7)")
    parser.add_argument("--skip-cpu", action="store_true", help="the ladder only")
    given = parser.parse_args()
    if shutil.which("java") is None or (not given.skip_cpu and shutil.which("mvn") is None):
        print("not run: a JDK 17 and Maven are needed")
        return 0
    kept = given.skip_cpu or cpu(given.rounds)
    with tempfile.TemporaryDirectory(prefix="microshard-bench-") as folder:
        kept = ladder(Path(folder), given.rung_seconds) and kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

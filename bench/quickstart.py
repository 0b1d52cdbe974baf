"""Which share of a sweep is neither loading nor measuring (row 6): `microshard run experiments/quickstart.yml`.

The share is that of the run's own journal: its line "run ended" has the seconds of the whole run and those of load and
measure phases. The same orchestration around points that measure for five minutes is computed from it: what a
repetition and a deployment cost stays, whatever is measured. The quick form has fewer documents, points and
repetitions, and no target: its share says nothing of the whole one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.alone import BIN, ROOT, alone, say, scratch
from bench.findings import Findings, Row, Target, absolute

LIMIT = 460  # s
MEASURED = 300.0  # s a point measures in the second figure
FULL: list[str] = []
QUICK = [
    *("--set", "workload.0.load.documents=60000"),
    *("--set", "matrix={topology.shards.count: [1, 2]}"),
    *("--set", "repetitions=2"),
]


def journal(runs: Path) -> list[dict[str, object]]:
    """What the one run below a folder has done."""
    (path,) = runs.glob("*/journal.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measure(quick: bool) -> Findings:
    """Row 6."""
    with scratch() as folder:
        command = [str(BIN / "microshard"), "run", str(ROOT / "experiments" / "quickstart.yml"), "--yes"]
        command += ["--runs-dir", str(folder / "runs"), *(QUICK if quick else FULL)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        if done.returncode not in {0, 3}:  # 3: a gate did not hold, which says something of the machine
            raise SystemExit(f"quickstart ended with {done.returncode}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        records = journal(folder / "runs")
    (ended,) = (record for record in records if record["event"] == "run ended")
    steps = sum(record["event"] == "step done" for record in records)
    seconds, overhead = float(str(ended["seconds"])), float(str(ended["orchestration"]))
    stages = ended["stages"]
    assert isinstance(stages, dict)  # noqa: S101 - for the type checker: the runner writes it so
    inside = overhead - sum(float(stages.get(name, 0.0)) for name in ("prepare", "deploy", "teardown", "clean up"))
    told = ", ".join(f"{name} {float(spent):.1f} s" for name, spent in stages.items() if name != "measure")
    note = (
        f"{seconds:.0f} s in all, {steps} steps; {told}; around measuring (observers, parking, results) {inside:.1f} s"
    )
    say(note)
    name = "share of quickstart" if not quick else "share of a small quickstart"
    target = None if quick else Target(10.0)
    found = Findings([absolute(6, name, [overhead / seconds * 100], "%", target, note)])
    # All that is not loading or measuring, shared out over the steps, beside 5 minutes of measuring in each.
    each = overhead / steps
    found.rows.append(
        Row(
            6,
            "share with points of 5 minutes",
            "",
            each / (each + MEASURED) * 100,
            None,
            None if quick else Target(3.0),
            unit="%",
            note=f"computed: {each:.2f} s a step",
        )
    )
    return found


if __name__ == "__main__":
    sys.exit(alone(measure))

"""Which share of a sweep is neither loading nor measuring (row 6): `microshard run experiments/quickstart.yml`.

The share is that of the run's own journal: its line "run ended" has the seconds of the whole run and those of load and
measure phases. The same orchestration around points that measure for five minutes is computed from it: what a
repetition and a deployment cost stays, whatever is measured. The notes say what the share consists of: what each
playbook takes before its first task, measured by playbooks with nothing to do; deploying and teardown besides that; the
tasks around each phase. The quick form has fewer documents, points and repetitions, and no target: its share says
nothing of the whole one.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.alone import BIN, ROOT, alone, say, scratch, timed
from bench.findings import Findings, Row, Target, absolute
from microshard.model.run_records import JournalEvent
from microshard.records.run_folder import find_runs
from microshard.run.ansible_server import AnsibleProcess

LIMIT = 900  # s; seven minutes where nothing disturbs it
MEASURED = 300.0  # s a point measures in the second figure
FULL: list[str] = []
QUICK = [
    *("--set", "workload.0.load.documents=60000"),
    *("--set", "matrix={topology.shards.count: [1, 2]}"),
    *("--set", "repetitions=2"),
]


def journal(runs: Path) -> list[JournalEvent]:
    """What the one run below a folder has done."""
    (run,) = find_runs(runs)
    return list(run.journal.records())


def measure(quick: bool) -> Findings:
    """Row 6."""
    with scratch() as folder:
        command = [str(BIN / "microshard"), "run", str(ROOT / "experiments" / "quickstart.yml"), "--yes"]
        command += ["--runs-dir", str(folder / "runs"), *(QUICK if quick else FULL)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        if done.returncode not in {0, 3}:  # 3: a gate did not hold, which says something of the machine
            raise SystemExit(f"quickstart ended with {done.returncode}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        records = journal(folder / "runs")
    (ended,) = (record for record in records if record.event == "run ended")
    steps = sum(record.event == "step done" for record in records)
    plays = [record.stage for record in records if record.event == "stage" and record.stage and record.step is not None]
    seconds, overhead = ended.seconds or 0.0, ended.orchestration or 0.0
    name = "share of quickstart" if not quick else "share of a small quickstart"
    note = f"{seconds:.0f} s in all, {steps} steps: {_made_of(ended.stages or {}, plays, overhead)}"
    say(note)
    found = Findings([absolute(6, name, [overhead / seconds * 100], "%", None if quick else Target(10.0), note)])
    # All that is not loading or measuring, divided by the steps, with 5 minutes of measuring in each.
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


def _made_of(stages: dict[str, float], plays: list[str], overhead: float) -> str:
    """Where the seconds went that neither loaded nor measured."""
    start = _empty_play()
    besides = {name: stages.get(name, 0.0) - plays.count(name) * start for name in ("deploy", "teardown")}
    around = overhead - sum(besides.values()) - len(plays) * start
    parts = [
        f"{len(plays) * start:.0f} s before the first task of {len(plays)} playbooks ({start:.2f} s each)",
        f"{besides['deploy']:.0f} s starting servers and adding shards",
        f"{besides['teardown']:.0f} s ending them",
        f"{around:.0f} s around the phases ({around / plays.count('measure'):.1f} s each: tasks of the play, "
        "observers, engine, parking, results)",
    ]
    return f"{overhead:.0f} s neither load nor measure, of them {', '.join(parts)}"


def _empty_play() -> float:
    """Seconds a playbook takes that has nothing to do, the median of some after the first."""
    play = [{"hosts": "all", "gather_facts": False, "tasks": []}]
    with scratch() as folder, Path(os.devnull).open("wb") as events:
        (folder / "empty.yml").write_text(json.dumps(play), encoding="utf-8")
        arguments = ["--inventory", str(ROOT / "inventories" / "local"), str(folder / "empty.yml")]
        ansible = AnsibleProcess(ROOT, os.environ | {"ANSIBLE_HOME": str(folder)}, folder / "log", str(folder))

        def once() -> None:
            ansible.begin("empty", arguments, events.fileno())
            if code := ansible.wait():
                raise SystemExit(f"an empty playbook ended with {code}: {(folder / 'log').read_text()}")

        try:
            return statistics.median([timed(once) for _ in range(6)][1:])
        finally:
            ansible.close()


if __name__ == "__main__":
    sys.exit(alone(measure))

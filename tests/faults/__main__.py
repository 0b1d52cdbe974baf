"""The whole campaign of faults: `make faults`, or `make faults SECONDS=600` for a part of the kills."""

import argparse
import datetime
import importlib.util
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tests.cluster.embedded.lab import small_cluster
from tests.faults import conversations, definitions, disk, endless, full, images, kills, router, two_ways
from tests.faults.table import Row, show

KILL_SECONDS = 24 * 60.0  # for the kills; two cores that have nothing else to do need 3 to 6 s for one
KILLS = 240  # every victim, signal and stage once
FEWEST = 200  # of a whole campaign
FUZZ_SECONDS = 60
PARTS = ("disk", "definitions", "fuzz", "router", "images", "deploys", "kills")


def main() -> int:
    """Run the chosen parts, print the table. 1 when anything was lost or left."""
    wanted = _request()
    console = Console(width=max(Console().width, 120))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it otherwise
    began = time.monotonic()

    def tell(what: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/dim] {what}", highlight=False, soft_wrap=True)

    rows: list[Row] = []
    console.print(f"seed {wanted.seed}")
    with tempfile.TemporaryDirectory(prefix="microshard-faults-") as temporary:
        for part in wanted.parts or PARTS:
            tell(part)
            rows += _part(part, Path(temporary), wanted, tell)
    show(rows, console)
    killed = sum(row.times for row in rows if row.fault.startswith("SIG"))
    if "kills" in (wanted.parts or PARTS) and killed < FEWEST:
        console.print(f"{killed} kills came into the time; a whole campaign has {FEWEST} and more")
    return 0 if all(row.is_clean for row in rows) else 1


def _part(part: str, folder: Path, wanted: argparse.Namespace, tell: Callable[[str], None]) -> list[Row]:
    rows: list[Row] = []
    match part:
        case "disk":
            rows += [*disk.campaign(folder / "disk", tell), *full.campaign(folder / "full", tell)]
        case "definitions":
            (folder / "definitions").mkdir()
            rows += definitions.campaign(wanted.seed, 2500, folder / "definitions")
        case "fuzz":
            rows.append(_fuzz(folder))
        case "router":
            (folder / "router").mkdir()
            with small_cluster(folder / "router") as cluster:
                rows += router.campaign(cluster, wanted.seed, each=300, tell=tell)
                rows.append(conversations.campaign(cluster, wanted.seed, commands=10_000, tell=tell))
                rows.append(two_ways.campaign(cluster, wanted.seed, operations=20_000, tell=tell))
        case "images":
            rows += images.campaign(folder / "images", tell)
        case "deploys":
            rows.append(endless.campaign(folder / "deploys", wanted.deploys, tell))
        case "kills":
            place, limits = folder / "kills", (wanted.seconds, wanted.kills)
            rows += kills.campaign(wanted.seed, place, *limits, tell=tell, kinds=wanted.kinds)
    return rows


def _request() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=main.__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all when left out")
    parser.add_argument("--seconds", type=float, default=KILL_SECONDS, help="for the kills")
    parser.add_argument("--kills", type=int, default=KILLS, help="no more than so many")
    parser.add_argument("--kinds", nargs="+", choices=kills.KINDS, default=kills.KINDS, help="for the kills")
    parser.add_argument("--deploys", type=int, default=25, help="in one run, for the part deploys")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal(), help="that of the day")
    wanted = parser.parse_args()
    for part in wanted.parts:
        if part not in PARTS:
            parser.error(f"{part}: no such part")
    return wanted


def _fuzz(folder: Path) -> Row:
    if importlib.util.find_spec("atheris") is None:
        return Row("fuzzed by coverage: not done, atheris has no wheel for this Python", "loader", times=0)
    command = [sys.executable, "-m", "tests.faults.fuzz_loader", str(FUZZ_SECONDS), str(folder / "corpus")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    row = Row("fuzzed by coverage", "loader", times=sum(1 for line in done.stderr.splitlines() if line.startswith("#")))
    if done.returncode != 0 or "DONE" not in done.stderr:
        row.lost.append(done.stderr[-2000:])
    return row


if __name__ == "__main__":
    sys.exit(main())

"""What runs have left on EC2: by the account's tags, and by the ledgers of the runs on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator

from microshard.backends import local_processes
from microshard.backends.ec2 import account_limits as ask
from microshard.backends.ec2 import api as cloud
from microshard.backends.ec2 import find
from microshard.backends.ec2 import find_leftovers as gc
from microshard.backends.ec2.api import Api
from microshard.backends.ec2.cost_estimate import DEFAULT_REGION
from microshard.backends.ec2.ledger import Ledger
from microshard.records.run_folder import RunFolder
from microshard.run.gc import Found, GcRequest, Removed, RunBook


class Ec2Leftovers:
    """Collects on EC2, in the regions wished for, configured, and named by ledgers."""

    def __init__(self, request: GcRequest) -> None:
        self.request = request
        self.book = RunBook(request.runs)
        self.ledgers: dict[str, dict[str, Ledger]] = {}  # region → run → its ledger, of runs that are not known gone
        for run, folder in self.book.folders.items():
            for region in regions_of(folder):
                self.ledgers.setdefault(region, {})[run] = folder.ledger

    def look(self) -> list[Found]:
        """Runs of the owner that are over or expired, and runs of this machine whose ledger is not closed."""
        found = []
        for region, api in self._apis():
            listed = gc.leftovers(api, self.request.owner, now=time.time(), over=self.book.over)
            found += [_found(item.run, region, item.reason, item.things) for item in listed]
            for run in self.ledgers.get(region, {}):
                if self.book.over(run) and run not in {item.run for item in listed}:
                    tagged = find.by_run(api, run)
                    things = [*tagged, *find.untagged(api, run, tagged)]
                    if things:
                        found.append(_found(run, region, "over", tuple(things)))
        return found

    def collect(self) -> list[Removed]:
        """Tear them down, and look again."""
        done = []
        for run, folder in self.book.folders.items():
            if self.book.over(run):  # whether its playbook has made something already or not
                local_processes.end_playbooks(folder)
        for region, api in self._apis():
            removals = gc.collect(
                api, self.request.owner, now=time.time(), over=self.book.over, books=self.ledgers.get(region, {})
            )
            done += [
                Removed(r.run, f"ec2 {region}", tuple(r.removed), tuple(r.left), tuple(r.errors)) for r in removals
            ]
        return done

    def _apis(self) -> Iterator[tuple[str, Api]]:
        if not self.request.explicit and not self.ledgers and not ask.may_have_credentials():
            return  # nobody uses EC2 here
        regions = [cloud.default_region() or DEFAULT_REGION, *self.request.regions, *self.ledgers]
        for region in dict.fromkeys(regions):
            yield region, Api(region)


def _found(run: str, region: str, reason: str, things: tuple[find.Thing, ...]) -> Found:
    return Found(run, f"ec2 {region}", reason, tuple(map(str, things)))


def regions_of(folder: RunFolder) -> set[str]:
    """Regions in which a run has made something and was not seen gone since."""
    regions: set[str] = set()
    for record in folder.ledger.records():
        if record.get("kind") == "ec2":
            if record.get("state") == "creating" and record.get("region"):
                regions.add(str(record["region"]))
            elif record.get("state") == "gone":
                regions.clear()
    return regions

"""The EC2 backend: hosts reached over SSH like any others, but created, lost and removed through the EC2 API."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microshard.backends import local_processes
from microshard.backends.ec2.api import Api, CloudError, default_region, may_have_credentials
from microshard.backends.ec2.cost_estimate import DEFAULT_REGION
from microshard.backends.ec2.fleet import lost_hosts
from microshard.backends.ec2.render import hourly_cost
from microshard.backends.ec2.resources import find_all, is_gone, regions_in_use
from microshard.backends.ec2.tables import ebs_of_instance
from microshard.backends.ec2.teardown import find_leftover_runs, remove_leftover_runs, teardown
from microshard.backends.ssh import SshBackend, listing_of
from microshard.errors import MicroshardError, PlaceError
from microshard.model.ec2_facts import EbsOfInstance
from microshard.model.plan import Point
from microshard.model.run_records import BackendRecord, JournalEvent
from microshard.records.run_folder import Ledger, RunFolder, read_object, write_json
from microshard.run.ansible import EventHandler, Playbooks, ignore
from microshard.run.gc import Found, GcRequest, Removed, RunBook

_INVENTORY = "inventory.yml"  # in the run's folder; written by the role ec2_fleet
FLEET_VARIABLES = "hosts/fleet.json"  # in the run's folder: what playbooks/provision.yml and deprovision.yml read
_INTERRUPTED = "Server.SpotInstanceTermination"  # code of EC2's state reason


@dataclass
class Ec2Backend(SshBackend):
    """The hosts of a run on EC2."""

    name = "ec2"
    tunnel = True
    region: str = DEFAULT_REGION
    hourly_usd: float | None = None  # of the hosts that were launched
    expires_at: int = 0  # epoch seconds; 0 before the launch

    @property
    def where(self) -> str:  # type: ignore[override]  # a class attribute in the base
        """The name of the place in messages."""
        return f"EC2 {self.region}"

    def ebs_of(self, instance_type: str) -> EbsOfInstance | None:
        """Return what the EBS volumes of an instance type may do together; None where the table lacks the type."""
        return ebs_of_instance(instance_type)

    @classmethod
    def of(cls, folder: RunFolder, region: str) -> Ec2Backend:
        """Return the backend of a run; its hosts are those of its inventory, none before that is written."""
        path = folder / _INVENTORY
        return cls(path, listing_of(path) if path.exists() else {}, region=region)

    @classmethod
    def recorded_as(cls, known: BackendRecord) -> Ec2Backend:
        """Return the backend a run was made with; the inventory may be gone with its hosts."""
        path = Path(known.inventory or "")
        listing = listing_of(path) if path.is_file() else {}
        backend = cls(path, listing, region=known.region or DEFAULT_REGION)
        backend.facts, backend.used = known.hosts, known.used
        backend.hourly_usd, backend.expires_at = known.hourly_usd, known.expires_at or 0
        return backend

    def recorded(self, folder: RunFolder) -> BackendRecord:
        """What SSH hosts record, the region, and the cost."""
        return dataclasses.replace(
            super().recorded(folder), region=self.region, hourly_usd=self.hourly_usd, expires_at=self.expires_at or None
        )

    def cost(self, folder: RunFolder) -> str:
        """Return the price an hour and the expiry, or what a teardown has left; empty where nothing exists any more."""
        of_fleets = [self.recorded_as(fleet.backend()).cost(fleet) for fleet in folder.fleets()]
        if is_gone(folder):
            return "; ".join(filter(None, of_fleets))
        last = [record for record in folder.ledger.records() if record.kind == "ec2"][-1]
        if last.state == "left":
            return f"left on EC2: {', '.join(last.left or ())}"
        return hourly_cost(self.hourly_usd, self.expires_at, folder.run_id)

    def lost(self, folder: RunFolder) -> dict[str, str]:  # noqa: ARG002 - EC2 knows
        """Return the hosts that no longer run, by name, with the reason. Raises CloudError."""
        instances = {name: str(self.variable(name, "microshard_instance")) for name in self.names}
        return {
            name: f"{instances[name]} was terminated by a spot interruption ({reason})"
            if reason == _INTERRUPTED
            else f"{instances[name]} does not run any more ({reason})"
            for name, reason in lost_hosts(Api(self.region), instances).items()
        }

    def missing(self, folder: RunFolder, point: Point) -> list[str]:
        """Return the hosts that are gone; where none is, processes that do not run any more."""
        try:
            lost = self.lost(folder)
        except CloudError as error:
            return [f"it is not known whether a host is gone: {error}"]
        of_point = [f"{host.name}: {lost[host.name]}" for host in point.hosts if host.name in lost]
        return of_point or super().missing(folder, point)

    def clean(self, folder: RunFolder, handler: EventHandler = ignore) -> list[str]:
        """Terminate the hosts and remove everything of the run; return what is left."""
        of_fleets = []
        for fleet in folder.fleets():
            with fleet.lock():  # a fleet's process that has outlived the run is removing its hosts itself
                of_fleets += self.recorded_as(fleet.backend()).clean(fleet, handler)
        local_processes.end_playbooks(folder)
        left = of_fleets if is_gone(folder) else of_fleets + remove_hosts(folder, self.region, handler)
        shutil.rmtree(folder / "secrets", ignore_errors=True)  # the next fleet has other addresses
        return left

    def leftovers(self, folder: RunFolder) -> tuple[str, ...]:  # noqa: ARG002 - Ec2Leftovers finds them by their tags
        """Return nothing: `Ec2Leftovers` finds them in the account."""
        return ()

    def running(self, folder: RunFolder) -> list[str]:
        """Return the run's processes; none where the hosts are gone, or were never launched."""
        return [] if is_gone(folder) or not self.names else super().running(folder)


def create_hosts(folder: RunFolder, record: Path, variables: Mapping[str, Any], playbooks: Playbooks) -> dict[str, Any]:
    """Create a fleet from the variables of the role ec2_fleet; return it as `Ec2Fleet.as_json`, also in `record`.

    Raises PlaceError with EC2's message.
    """
    path = folder / FLEET_VARIABLES
    write_json(path, {**variables, "ec2_fleet_record": str(record)})
    try:
        playbooks.run("provision", path)
    except MicroshardError as error:
        raise PlaceError(f"no hosts on EC2: {error}") from None
    fleet: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    return fleet


def remove_hosts(folder: RunFolder, region: str, handler: EventHandler = ignore) -> list[str]:
    """Remove everything of the run on EC2 and search again; return what is left, one sentence each."""
    began = time.time() - 0.001  # the ledger's times are rounded
    try:
        Playbooks(folder, handler).run("deprovision", folder / FLEET_VARIABLES)
    except MicroshardError as error:
        folder.journal.append(JournalEvent("teardown failed", message=str(error)))
    for record in folder.ledger.records():
        if record.kind == "ec2" and record.state in {"gone", "left"} and record.t >= began:
            return [f"EC2 {region}: {resource}" for resource in record.left or ()]
    # The role did not come to its end: the same without Ansible.
    try:
        return [f"EC2 {region}: {resource}" for resource in teardown(Api(region), folder.run_id, folder.ledger).left]
    except CloudError as error:
        return [f"EC2 {region}: not known, it cannot be queried: {error}"]


def created_region(folder: RunFolder) -> str | None:
    """Return the region in which the run has created hosts; None when it has not."""
    region = read_object(folder / FLEET_VARIABLES).get("ec2_fleet_region")
    return None if region is None else str(region)


class Ec2Leftovers:
    """Collects leftovers on EC2: in the requested and the configured region, and in those of the runs' ledgers."""

    def __init__(self, request: GcRequest) -> None:
        self.request = request
        self.book = RunBook(request.runs)
        self.ledgers: dict[str, dict[str, Ledger]] = {}  # region → run → its ledger, of runs not known to be gone
        for run, folder in self.book.folders.items():
            for region in regions_in_use(folder):
                self.ledgers.setdefault(region, {})[run] = folder.ledger

    def look(self) -> list[Found]:
        """Find runs of the owner that are over or expired, and runs of this machine whose ledger is not closed."""
        found = []
        for region, api in self._apis():
            runs = find_leftover_runs(api, self.request.owner, now=time.time(), over=self.book.over)
            for run in self.ledgers.get(region, {}):
                if run not in runs and self.book.over(run):
                    runs[run] = "over", find_all(api, run)
            found += [
                Found(run, f"ec2 {region}", reason, tuple(map(str, resources)))
                for run, (reason, resources) in runs.items()
                if resources
            ]
        return found

    def collect(self) -> list[Removed]:
        """Tear them down and search again."""
        for run, folder in self.book.folders.items():
            if self.book.over(run):  # its playbook may have created something or not
                local_processes.end_playbooks(folder)
        done = []
        for region, api in self._apis():
            results = remove_leftover_runs(
                api, self.request.owner, now=time.time(), over=self.book.over, ledgers=self.ledgers.get(region)
            )
            done += [Removed(r.run, f"ec2 {region}", tuple(r.removed), tuple(r.left), tuple(r.errors)) for r in results]
        return done

    def _apis(self) -> Iterator[tuple[str, Api]]:
        if not self.request.explicit and not self.ledgers and not may_have_credentials():
            return  # nobody uses EC2 on this machine
        for region in dict.fromkeys([default_region() or DEFAULT_REGION, *self.request.regions, *self.ledgers]):
            yield region, Api(region)

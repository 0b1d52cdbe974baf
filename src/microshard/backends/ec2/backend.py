"""Hosts made on EC2 as the place of a run: reached like any others, but lost, and removed, in EC2's own ways."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microshard.backends import local_processes
from microshard.backends.ec2.api import Api
from microshard.backends.ec2.cost_estimate import DEFAULT_REGION
from microshard.backends.ec2.errors import CloudError
from microshard.backends.ec2.fleet import lost_hosts
from microshard.backends.ec2.teardown import teardown
from microshard.backends.ssh import SshBackend, listing_of
from microshard.errors import MicroshardError, PlaceError
from microshard.model.plan import Point
from microshard.records.run_folder import RunFolder, write_json
from microshard.run.ansible import EventHandler, Playbooks, ignore

INVENTORY = "inventory.yml"  # in the run's folder; written by the role from what it has made
FLEET = "hosts/fleet.json"  # in the run's folder: the variables of playbooks/provision.yml and deprovision.yml

# Words of EC2's state reasons for what happened.
_INTERRUPTED = "Server.SpotInstanceTermination"


@dataclass
class Ec2Backend(SshBackend):
    """The hosts of a run on EC2."""

    name = "ec2"
    region: str = DEFAULT_REGION

    @property
    def where(self) -> str:  # type: ignore[override]  # an attribute where it never changes
        """As messages call it."""
        return f"EC2 {self.region}"

    @classmethod
    def of(cls, folder: RunFolder, region: str) -> Ec2Backend:
        """The hosts that were made for a run. Raises PlaceError."""
        path = folder / INVENTORY
        return cls(path, listing_of(path), region=region)

    @classmethod
    def to_be_made(cls, folder: RunFolder, region: str) -> Ec2Backend:
        """Those of a run that has none yet."""
        return cls(folder / INVENTORY, {}, region=region)

    @classmethod
    def recorded_as(cls, known: Mapping[str, Any]) -> Ec2Backend:
        """The hosts a run was made on; their inventory may be gone with them."""
        path = Path(known["inventory"])
        made = cls(path, listing_of(path) if path.exists() else {}, region=known["region"])
        made.facts = {name: dict(facts) for name, facts in known["hosts"].items()}
        made.used = list(known["used"])
        return made

    def recorded(self, folder: RunFolder) -> Mapping[str, Any]:
        """As hosts of one's own, and the region."""
        return {**super().recorded(folder), "region": self.region}

    def lost(self, folder: RunFolder) -> dict[str, str]:  # noqa: ARG002 - EC2 is asked
        """Hosts that do not run any more, by name, with the reason. Raises CloudError."""
        known = {name: str(self.variable(name, "microshard_instance")) for name in self.names}
        told = lost_hosts(Api(self.region), known)
        return {
            name: f"{known[name]} was taken away by EC2: spot interruption ({reason})"
            if reason == _INTERRUPTED
            else f"{known[name]} does not run any more ({reason})"
            for name, reason in told.items()
        }

    def missing(self, folder: RunFolder, point: Point) -> list[str]:
        """Hosts that are gone; where none is, processes that do not run any more."""
        try:
            lost = self.lost(folder)
        except CloudError as error:
            return [f"whether a host is gone is not known: {error}"]
        mine = [f"{host.name}: {lost[host.name]}" for host in point.hosts if host.name in lost]
        return mine or super().missing(folder, point)

    def clean(self, folder: RunFolder, handler: EventHandler = ignore) -> list[str]:
        """Remove the hosts, and with them everything on them; then it is looked whether anything of the run is left."""
        local_processes.end_playbooks(folder)
        left = [] if is_gone(folder) else removed(folder, self.region, handler)
        shutil.rmtree(folder / "secrets", ignore_errors=True)  # the next fleet has other addresses
        return left

    def leftovers(self, folder: RunFolder) -> tuple[str, ...]:  # noqa: ARG002
        """None: the collector of EC2 finds them by their tags."""
        return ()

    def running(self, folder: RunFolder) -> list[str]:
        """None where the hosts are gone, or were not made; else as on any hosts."""
        return [] if is_gone(folder) or not self.names else super().running(folder)


def made(folder: RunFolder, record: Path, variables: Mapping[str, Any], playbooks: Playbooks) -> dict[str, Any]:
    """Make a fleet as `variables` wish for; what was made, as cloud.fleet.Fleet has it.

    It stays in the file `record`. Raises PlaceError with EC2's own words.
    """
    path = folder / FLEET
    write_json(path, {**variables, "ec2_fleet_record": str(record)})
    try:
        playbooks.run("provision", path)
    except MicroshardError as error:
        raise PlaceError(f"no hosts on EC2: {error}") from None
    told: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    return told


def removed(folder: RunFolder, region: str, listener: EventHandler = lambda _event: None) -> list[str]:
    """Remove everything of the run on EC2 and look again; what is left, one sentence each."""
    began = time.time() - 0.001  # the ledger's times are rounded
    try:
        Playbooks(folder, listener).run("deprovision", folder / FLEET)
    except MicroshardError as error:
        folder.journal.append(event="teardown failed", message=str(error))
    for record in folder.ledger.records():
        if record.get("kind") == "ec2" and record.get("state") in {"gone", "left"} and record["t"] >= began:
            return [f"EC2 {region}: {thing}" for thing in record.get("left", ())]
    # The role did not come to its end: the same without Ansible.
    try:
        return [f"EC2 {region}: {thing}" for thing in teardown(Api(region), folder.run_id, folder.ledger).left]
    except CloudError as error:
        return [f"EC2 {region}: not known, it could not be asked: {error}"]


def is_gone(folder: RunFolder) -> bool:
    """Whether everything the ledger names on EC2 was seen gone since."""
    gone = True
    for record in folder.ledger.records():
        if record.get("kind") == "ec2" and record.get("state") in {"creating", "gone", "left"}:
            gone = record["state"] == "gone"
    return gone


def region_of(folder: RunFolder) -> str | None:
    """The region of a run that is there; None when it never was on EC2."""
    try:
        return str(json.loads((folder / FLEET).read_text(encoding="utf-8"))["ec2_fleet_region"])
    except (OSError, ValueError, KeyError):
        return None

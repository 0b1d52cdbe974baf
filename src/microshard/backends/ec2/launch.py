"""Instances: launched where there is room, waited for, and given back when a zone has room for a part only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from microshard.backends.ec2 import ledger, request
from microshard.backends.ec2.api import Api, is_missing, is_unclear
from microshard.backends.ec2.errors import CAPACITY, SPOT_CAPACITY, CapacityError, CloudError, LaunchError
from microshard.backends.ec2.images import Image
from microshard.backends.ec2.ledger import Ledger
from microshard.backends.ec2.network import Builder, Network
from microshard.backends.ec2.request import Attempt, TypeFacts
from microshard.backends.ec2.spec import FleetSpec, GroupSpec

Instance = dict[str, Any]  # as DescribeInstances shows it
_GONE = {"shutting-down", "terminated", "stopping", "stopped"}
_IDS = 200  # ids asked for in one call


class _NoRoomError(Exception):
    def __init__(self, group: GroupSpec, code: str) -> None:
        super().__init__(group.name)
        self.group = group
        self.code = code


@dataclass(slots=True)
class Launcher:
    """Launches all groups of a fleet into one zone."""

    api: Api
    spec: FleetSpec
    book: Ledger
    builder: Builder
    network: Network
    types: Mapping[str, TypeFacts]
    images: Mapping[tuple[str, str], Image]  # by wish and architecture
    offered: Mapping[str, Sequence[str]]  # zones by type
    zones: list[str]
    user_data: str
    tried: list[str] = field(default_factory=list)

    def launch(self, living: Mapping[str, Sequence[str]], zone: str | None) -> dict[str, list[str]]:
        """Ids of running instances by group; `living` are there already, in `zone`.

        All hosts are in one zone: the first that has room for all of them. What was launched in a zone that has not is
        given back before the next is tried. When no zone has room, the group that found none goes on to its next type.
        Raises CapacityError when every allowed way was tried, LaunchError and CloudError.
        """
        choice = {g.name: 0 for g in self.spec.groups}
        while True:
            failed: _NoRoomError | None = None
            for candidate in self._candidates(choice, zone):
                try:
                    return self._into(candidate, choice, living)
                except _NoRoomError as problem:
                    failed = problem
            if failed is None:
                names = ", ".join(g.instance_types[choice[g.name]] for g in self.spec.groups)
                raise CapacityError("the fleet", "Unsupported", [f"no zone of {self.api.region} offers {names}"])
            if choice[failed.group.name] + 1 >= len(failed.group.instance_types):
                raise CapacityError(failed.group.name, failed.code, self.tried)
            choice[failed.group.name] += 1

    def _candidates(self, choice: Mapping[str, int], zone: str | None) -> list[str]:
        names = [g.instance_types[choice[g.name]] for g in self.spec.groups]
        return [z for z in ([zone] if zone else self.zones) if all(z in self.offered[n] for n in names)]

    def _into(self, zone: str, choice: Mapping[str, int], living: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        launched: dict[str, list[str]] = {}
        try:
            for group in self.spec.groups:
                missing = group.count - len(living.get(group.name, ()))
                if missing > 0:
                    facts = self.types[group.instance_types[choice[group.name]]]
                    launched[group.name] = self._group(group, missing, facts, zone)
            ids = {g.name: [*living.get(g.name, ()), *launched.get(g.name, ())] for g in self.spec.groups}
            self._wait_running(ids)
        except _NoRoomError:
            self._give_back([i for some in launched.values() for i in some])
            raise
        return ids

    def _group(self, group: GroupSpec, count: int, facts: TypeFacts, zone: str) -> list[str]:
        subnet = self.builder.subnet(self.network, zone, self.zones)
        image = self.images[group.image, facts.architecture]
        markets = {"on_demand": ["on-demand"], "spot": ["spot"], "spot_or_on_demand": ["spot", "on-demand"]}[
            group.market
        ]
        code = ""
        for market in markets:
            attempt = Attempt(group, count, facts, zone, market, image, subnet)
            try:
                return self._run(attempt)
            except CloudError as error:
                if error.code not in (SPOT_CAPACITY if market == "spot" else CAPACITY):
                    raise
                code = error.code
                self.tried.append(f"{attempt}: {error.code}")
        raise _NoRoomError(group, code)

    def _run(self, attempt: Attempt) -> list[str]:
        """One RunInstances, repeated with the same token while it is unclear whether it has worked."""
        problem: CloudError | None = None
        tries, number = 0, 1
        while tries < self.api.patience.attempts:
            attempt = dataclasses.replace(attempt, number=number)
            parameters = request.run_instances(
                self.spec, attempt, security_group=self.network.group_id, placement=self.network.placement,
                user_data=self.user_data,
            )  # fmt: skip
            name = f"{attempt.group.name}-{parameters['ClientToken'][:12]}"
            ledger.creating(
                self.book, "instance", name, run=self.spec.run, region=self.api.region, count=attempt.count,
                token=parameters["ClientToken"], attempt=str(attempt),
            )  # fmt: skip
            try:
                answer = self._make_visible(parameters)
            except CloudError as error:
                if error.code == "IdempotentParameterMismatch":
                    number += 1  # the token of an earlier run of this command, with another wish
                elif is_unclear(error):
                    self.api.pause(tries)
                    tries += 1
                else:
                    ledger.made(self.book, "instance", name, [])
                    raise
                problem = error
                continue
            instances = answer["Instances"]
            ids = [str(i["InstanceId"]) for i in instances]
            ledger.made(self.book, "instance", name, ids)
            if all(i["State"]["Name"] not in _GONE for i in instances):
                return ids
            number += 1  # the token stands for instances that are gone
        raise problem or CloudError("RunInstances", "NoAttempts", "patience.attempts is 0")

    def _make_visible(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """RunInstances names things made a moment ago; it is repeated while EC2 does not know them yet."""
        problem: CloudError | None = None
        for _ in self.api.patience.looks(self.api.patience.visible):
            try:
                return self.api.make("run_instances", **parameters)
            except CloudError as error:
                if not is_missing(error) or error.code.startswith("InvalidAMIID"):
                    raise
                problem = error
        raise problem or AssertionError("looks() yields at least once")

    def _wait_running(self, ids: Mapping[str, Sequence[str]]) -> None:
        group_of = {i: name for name, some in ids.items() for i in some}
        waiting: list[Instance] = []
        for _ in self.api.patience.looks(self.api.patience.launch):
            seen = describe(self.api, list(group_of))
            for instance in seen:
                self._refuse_gone(instance, group_of[str(instance["InstanceId"])])
            waiting = [i for i in seen if i["State"]["Name"] != "running"]
            if not waiting and len(seen) == len(group_of):
                return
        late = ", ".join(str(i["InstanceId"]) for i in waiting) or f"{len(group_of) - len(seen)} of them not to be seen"
        raise LaunchError(
            "RunInstances", "LaunchTimeout", f"not running after {self.api.patience.launch:.0f} s: {late} (pending)."
        )

    def _refuse_gone(self, instance: Instance, name: str) -> None:
        if instance["State"]["Name"] not in _GONE:
            return
        reason = instance.get("StateReason", {})
        code = str(reason.get("Code", ""))
        group = next(g for g in self.spec.groups if g.name == name)
        if code in CAPACITY:
            self.tried.append(f"{name} {instance['InstanceId']}: {code}")
            raise _NoRoomError(group, code)
        said = reason.get("Message") or code or "no reason given"
        raise LaunchError(
            "RunInstances", "InstanceEnded", f"{name}: {instance['InstanceId']} ended while it was starting: {said}."
        )

    def _give_back(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        self.api.when_visible("terminate_instances", InstanceIds=list(ids))
        for _ in self.api.patience.looks(self.api.patience.terminate):
            if all(i["State"]["Name"] == "terminated" for i in describe(self.api, ids)):
                return
        raise LaunchError("TerminateInstances", "TerminateTimeout", f"not gone: {', '.join(ids)}.")


def describe(api: Api, ids: Sequence[str]) -> list[Instance]:
    """What DescribeInstances shows of these; those not visible yet are left out. Raises CloudError."""
    found: list[Instance] = []
    for start in range(0, len(ids), _IDS):
        chosen = {"Name": "instance-id", "Values": list(ids[start : start + _IDS])}
        for reservation in api.pages("describe_instances", "Reservations", Filters=[chosen], MaxResults=1000):
            found.extend(reservation["Instances"])
    return found

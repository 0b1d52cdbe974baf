"""Remove everything of a run in the right order, then search again to prove that it is gone."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from microshard.backends.ec2.api import Api, CloudError, is_missing
from microshard.backends.ec2.resources import (
    CloudResource,
    find_all,
    find_by_owner,
    find_resources,
    recorded_ids,
    unanswered_since,
)
from microshard.model.run_records import LedgerRecord
from microshard.records.run_folder import Ledger

_ROUNDS = 4  # each removes what an error has held up in the round before; a dependency is waited for by time
_LONGEST_PAUSE = 30.0  # seconds between two rounds
_DEPENDS = ("DependencyViolation", ".InUse")  # AWS: something that is ending still uses it
_TERMINATE_AT_ONCE = 500  # ids in one TerminateInstances; AWS recommends to stay at or below 1,000
# Deleted by id, in this order. Internet gateways are detached first.
_DELETIONS = {
    "volume": ("delete_volume", "VolumeId"),
    "network-interface": ("delete_network_interface", "NetworkInterfaceId"),
    "security-group": ("delete_security_group", "GroupId"),
    "key-pair": ("delete_key_pair", "KeyName"),
    "placement-group": ("delete_placement_group", "GroupName"),
    "subnet": ("delete_subnet", "SubnetId"),
    "internet-gateway": ("delete_internet_gateway", "InternetGatewayId"),
    "vpc": ("delete_vpc", "VpcId"),
}

Log = Callable[[str], None]


@dataclass(slots=True)
class TeardownResult:
    """What a teardown has removed, and what is left."""

    run: str
    removed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # on the way; what they held up may be gone all the same
    left: list[str] = field(default_factory=list)  # still there, or not known to be gone

    @property
    def clean(self) -> bool:
        """Whether a search has found nothing of the run."""
        return not self.left


def teardown(api: Api, run: str, ledger: Ledger | None = None, log: Log = lambda _: None) -> TeardownResult:
    """Remove everything of a run; safe to repeat. Errors are collected and do not stop it.

    `left` names what a last search still finds by tag, by the run's names, and by the ids in the ledger; when the
    search itself fails, that is what is left. `ledger` is None for a run whose folder is not on this machine.
    """
    return _Teardown(api, run, ledger, log).execute()


class _Teardown:
    def __init__(self, api: Api, run: str, ledger: Ledger | None, log: Log) -> None:
        self.api = api
        self.ledger = ledger
        self.log = log
        self.result = TeardownResult(run)
        # Ids found on the way: a resource is searched for even if it has lost its tags.
        self.known = recorded_ids(ledger, "instance") | recorded_ids(ledger, "volume")
        self.waited = False
        # What the last round could not remove: because something still uses it, and for another reason.
        self.held_up = self.refused = 0

    def execute(self) -> TeardownResult:
        rounds = 0
        for _ in self.api.retry.polls(self.api.retry.depend, _LONGEST_PAUSE):
            found = self._search()
            if found is not None and not found and not self._wait_for_unanswered():
                break
            self.held_up = self.refused = 0
            self._remove(found or [])
            if self.held_up and not self.refused:
                self.log(f"waiting for {self.held_up} resources that something ending still uses")
            else:
                rounds += 1
            if rounds == _ROUNDS:
                found = self._search()
                break
        else:
            found = self._search()
        self.result.left = ["not known: EC2 cannot be queried"] if found is None else [r.located for r in found]
        self._record("gone" if self.result.clean else "left", run=self.result.run, left=self.result.left)
        return self.result

    def _record(self, state: str, **details: Any) -> None:
        if self.ledger is not None:
            self.ledger.append(LedgerRecord("ec2", state, **details))

    def _search(self) -> list[CloudResource] | None:
        try:
            return find_all(self.api, self.result.run, self.known)
        except CloudError as error:
            self.result.errors.append(str(error))
            return None

    def _wait_for_unanswered(self) -> bool:
        """A creation without an answer may become visible a little later: wait that long once, then search again."""
        since = unanswered_since(self.ledger)
        if since is None or self.waited:
            return False
        self.waited = True
        left = since + self.api.retry.visible - time.time()
        if left <= 0:
            return False
        self.log(f"waiting {left:.0f} s for what may still become visible")
        time.sleep(left)
        return True

    def _remove(self, found: list[CloudResource]) -> None:
        by_kind: dict[str, list[CloudResource]] = {}
        for resource in found:
            by_kind.setdefault(resource.kind, []).append(resource)
        instances = by_kind.get("instance", [])
        for instance in instances:
            self.known.add(instance.id)
            mappings = instance.description.get("BlockDeviceMappings", ())
            self.known.update(m["Ebs"]["VolumeId"] for m in mappings if "Ebs" in m)
        self._cancel_spot_requests(by_kind.get("spot-instances-request", []))
        self._end_instances(instances)
        ending = {instance.id for instance in instances}
        for kind, (action, id_key) in _DELETIONS.items():
            for resource in by_kind.get(kind, []):
                attachments = resource.description.get("Attachments", ())
                if kind == "volume" and any(a.get("InstanceId") in ending for a in attachments):
                    continue  # EC2 deletes it with its instance, or the next round does
                if kind == "network-interface" and resource.description.get("Attachment"):
                    self.held_up += 1
                    continue
                try:
                    if kind == "internet-gateway":
                        self._detach_gateway(resource)
                    self.api.call(action, **{id_key: resource.id})
                except CloudError as error:
                    if not is_missing(error):
                        depends = error.code.endswith(_DEPENDS)
                        self.held_up, self.refused = self.held_up + depends, self.refused + (not depends)
                        message = f"{resource}: {error}"
                        self.result.errors += [] if message in self.result.errors else [message]
                        continue
                self._record_removed([resource])

    def _cancel_spot_requests(self, requests: list[CloudResource]) -> None:
        if not requests:
            return
        try:
            self.api.call("cancel_spot_instance_requests", SpotInstanceRequestIds=[r.id for r in requests])
        except CloudError as error:
            self.result.errors.append(str(error))
        else:
            self._record_removed(requests)
        # Cancelling ends no instance: one that was launched but is not visible by its tags yet is known from here.
        self.known.update(str(r.description["InstanceId"]) for r in requests if r.description.get("InstanceId"))

    def _end_instances(self, instances: list[CloudResource]) -> None:
        if not instances:
            return
        ids = [instance.id for instance in instances]
        self.log(f"terminating {len(ids)} instances")
        for start in range(0, len(ids), _TERMINATE_AT_ONCE):
            self._terminate(ids[start : start + _TERMINATE_AT_ONCE])
        try:
            for _ in self.api.retry.polls(self.api.retry.terminate):
                still = find_resources(self.api, "instance", "instance-id", ids)
                if not still:
                    self._record_removed(instances)
                    return
            late = ", ".join(instance.id for instance in still)
            self.result.errors.append(f"not terminated after {self.api.retry.terminate:.0f} s: {late}")
        except CloudError as error:
            self.result.errors.append(str(error))

    def _terminate(self, ids: list[str]) -> None:
        """Terminate all at once. EC2 refuses all where it no longer knows one: that one is left out of the next try."""
        while ids:
            try:
                self.api.call("terminate_instances", InstanceIds=ids)
            except CloudError as error:
                unknown = set(re.findall(r"i-[0-9a-f]+", error.message)) if is_missing(error) else set()
                if not unknown & set(ids):
                    self.result.errors.append(str(error))
                    return
                ids = [i for i in ids if i not in unknown]
            else:
                return

    def _detach_gateway(self, gateway: CloudResource) -> None:
        for attachment in gateway.description.get("Attachments", ()):
            try:
                self.api.call("detach_internet_gateway", InternetGatewayId=gateway.id, VpcId=attachment["VpcId"])
            except CloudError as error:
                if error.code != "Gateway.NotAttached":
                    raise

    def _record_removed(self, resources: Iterable[CloudResource]) -> None:
        for resource in resources:
            self.result.removed.append(str(resource))
            self._record("removed", what=resource.kind, ids=[resource.id])


def find_leftover_runs(
    api: Api, owner: str, *, now: float, over: Callable[[str], bool] = lambda _: False
) -> dict[str, tuple[str, list[CloudResource]]]:
    """Return runs of `owner` that are "expired" at `now` (epoch seconds) or that `over` says are "over".

    Each with that reason and its resources. A run that is neither is never listed, nor anything of another owner.
    Raises CloudError.
    """
    runs: dict[str, list[CloudResource]] = {}
    for resource in find_by_owner(api, owner):
        if resource.run:
            runs.setdefault(resource.run, []).append(resource)
    found = {}
    for run, resources in sorted(runs.items()):
        expiries = [r.expires_at for r in resources if r.expires_at is not None]
        if expiries and max(expiries) <= now:
            found[run] = "expired", resources
        elif over(run):
            found[run] = "over", resources
    return found


def remove_leftover_runs(
    api: Api,
    owner: str,
    *,
    now: float,
    over: Callable[[str], bool] = lambda _: False,
    ledgers: Mapping[str, Ledger] | None = None,
) -> list[TeardownResult]:
    """Tear down every leftover run; `ledgers` are those of runs whose folder is on this machine. Raises CloudError.

    Runs with a ledger that `over` names are torn down even when nothing of them is found by tag: something may exist
    without one, or not be visible yet.
    """
    ledgers = ledgers or {}
    runs = {*find_leftover_runs(api, owner, now=now, over=over), *filter(over, ledgers)}
    return [teardown(api, run, ledgers.get(run)) for run in sorted(runs)]

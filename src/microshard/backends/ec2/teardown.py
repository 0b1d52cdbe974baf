"""Everything of a run goes, in the right order; then it is looked whether it is gone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from microshard.backends.ec2 import find, ledger
from microshard.backends.ec2.api import Api, is_missing
from microshard.backends.ec2.errors import CloudError
from microshard.backends.ec2.find import Thing
from microshard.backends.ec2.ledger import Ledger

_ROUNDS = 4  # passes over what is still there; each repeats what an error or a dependency has held up
_TERMINATE_AT_ONCE = 500  # ids in one TerminateInstances; AWS recommends to stay at or below 1,000

Say = Callable[[str], None]


@dataclass(slots=True)
class Removal:
    """What a teardown has done."""

    run: str
    removed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # on the way; what they held up may be gone all the same
    left: list[str] = field(default_factory=list)  # still there, or not known to be gone

    @property
    def clean(self) -> bool:
        """Nothing of the run is left, and that has been looked at."""
        return not self.left


def teardown(api: Api, run: str, book: Ledger, say: Say = lambda _: None) -> Removal:
    """Remove everything of a run; safe to repeat. Errors are collected and do not stop it.

    `left` names what is still there afterwards, by a fresh look by tag, by the run's names, and by the ids in the
    ledger; when the look itself fails, that is what is left.
    """
    return _Teardown(api, run, book, say).run_to_end()


class _Teardown:
    def __init__(self, api: Api, run: str, book: Ledger, say: Say) -> None:
        self.api = api
        self.book = book
        self.say = say
        self.result = Removal(run)
        # Ids seen on the way, so that a thing is looked for even if it has lost its tags.
        self.known = ledger.known_ids(book, "instance") | ledger.known_ids(book, "volume")
        self.dirty = True

    def run_to_end(self) -> Removal:
        for number in range(_ROUNDS):
            things = self._look()
            if things is not None and not things and not self._may_still_appear():
                self.result.left = []
                self.book.append(kind="ec2", state="gone", run=self.result.run)
                return self.result
            if number and things:
                time.sleep(self.api.patience.poll)
            for thing in things or ():
                if thing.kind == "instance":
                    self.known.add(thing.id)
                    self.known.update(
                        m["Ebs"]["VolumeId"] for m in thing.facts.get("BlockDeviceMappings", ()) if "Ebs" in m
                    )
            self._remove(things or [])
        things = self._look()
        self.result.left = ["not known: EC2 could not be asked"] if things is None else [str(t) for t in things]
        self.book.append(
            kind="ec2", state="gone" if self.result.clean else "left", run=self.result.run, left=self.result.left
        )
        return self.result

    def _look(self) -> list[Thing] | None:
        try:
            tagged = find.by_run(self.api, self.result.run)
            return tagged + find.untagged(self.api, self.result.run, tagged, self.known)
        except CloudError as error:
            self._note(error)
            return None

    def _may_still_appear(self) -> bool:
        """A creation without an answer may show itself a little later: wait that long once, then look again."""
        since = ledger.unanswered_since(self.book)
        if since is None or not self.dirty:
            return False
        self.dirty = False
        left = since + self.api.patience.visible - time.time()
        if left <= 0:
            return False
        self.say(f"waiting {left:.0f} s for what may still appear")
        time.sleep(left)
        return True

    def _remove(self, things: list[Thing]) -> None:
        of: dict[str, list[Thing]] = {}
        for thing in things:
            of.setdefault(thing.kind, []).append(thing)
        self._spot(of.get("spot-instances-request", []))
        self._instances(of.get("instance", []))
        gone = {t.id for t in of.get("instance", [])}
        self._each(
            (v for v in of.get("volume", []) if not _goes_with(v, gone)),
            lambda t: self.api.call("delete_volume", VolumeId=t.id),
        )
        self._each(
            (e for e in of.get("network-interface", []) if not e.facts.get("Attachment")),
            lambda t: self.api.call("delete_network_interface", NetworkInterfaceId=t.id),
        )
        self._each(of.get("security-group", []), lambda t: self.api.call("delete_security_group", GroupId=t.id))
        self._each(of.get("key-pair", []), lambda t: self.api.call("delete_key_pair", KeyName=t.id))
        self._each(of.get("placement-group", []), lambda t: self.api.call("delete_placement_group", GroupName=t.id))
        self._each(of.get("subnet", []), lambda t: self.api.call("delete_subnet", SubnetId=t.id))
        self._each(of.get("internet-gateway", []), self._gateway)
        self._each(of.get("vpc", []), lambda t: self.api.call("delete_vpc", VpcId=t.id))

    def _spot(self, requests: list[Thing]) -> None:
        if not requests:
            return
        try:
            self.api.call("cancel_spot_instance_requests", SpotInstanceRequestIds=[t.id for t in requests])
        except CloudError as error:
            self._note(error)
        else:
            self._done(requests)
        # Cancelling ends no instance: one that was launched but is not visible by its tags yet is known from here.
        self.known.update(str(t.facts["InstanceId"]) for t in requests if t.facts.get("InstanceId"))

    def _instances(self, instances: list[Thing]) -> None:
        if not instances:
            return
        ids = [t.id for t in instances]
        self.say(f"ending {len(ids)} instances")
        for start in range(0, len(ids), _TERMINATE_AT_ONCE):
            self._terminate(ids[start : start + _TERMINATE_AT_ONCE])
        try:
            for _ in self.api.patience.looks(self.api.patience.terminate):
                still = find.of_kind(self.api, "instance", "instance-id", ids)
                if not still:
                    self._done(instances)
                    return
            self.result.errors.append(
                f"not ended in {self.api.patience.terminate:.0f} s: {', '.join(t.id for t in still)}"
            )
        except CloudError as error:
            self._note(error)

    def _terminate(self, ids: list[str]) -> None:
        """All at once. One that is not known any more makes EC2 refuse all: it is left out of the next try."""
        while ids:
            try:
                self.api.call("terminate_instances", InstanceIds=ids)
            except CloudError as error:
                unknown = set(re.findall(r"i-[0-9a-f]+", error.message)) if is_missing(error) else set()
                if not unknown & set(ids):
                    self._note(error)
                    return
                ids = [i for i in ids if i not in unknown]
            else:
                return

    def _gateway(self, thing: Thing) -> None:
        for attachment in thing.facts.get("Attachments", ()):
            try:
                self.api.call("detach_internet_gateway", InternetGatewayId=thing.id, VpcId=attachment["VpcId"])
            except CloudError as error:
                if error.code != "Gateway.NotAttached":
                    raise
        self.api.call("delete_internet_gateway", InternetGatewayId=thing.id)

    def _each(self, things: Iterable[Thing], remove: Callable[[Thing], object]) -> None:
        for thing in things:
            try:
                remove(thing)
            except CloudError as error:
                if not is_missing(error):
                    self._note(error, thing)
                    continue
            self._done([thing])

    def _done(self, things: Iterable[Thing]) -> None:
        for thing in things:
            self.result.removed.append(str(thing))
            self.book.append(kind="ec2", state="removed", what=thing.kind, ids=[thing.id])

    def _note(self, error: CloudError, thing: Thing | None = None) -> None:
        self.result.errors.append(f"{thing}: {error}" if thing else str(error))


def _goes_with(volume: Thing, instances: set[str]) -> bool:
    """Whether it hangs on an instance that is just ending: EC2 deletes it then, or the next round does."""
    return any(a.get("InstanceId") in instances for a in volume.facts.get("Attachments", ()))

"""What a plan wants to know of the account, where it may be asked: quotas and images. Nothing is made."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from microshard.backends.ec2 import images, instances, quota
from microshard.backends.ec2.api import Api, RetryPolicy
from microshard.backends.ec2.errors import CloudError
from microshard.backends.ec2.quota import Quotas
from microshard.backends.ec2.spec import GroupSpec, group_specs
from microshard.model.infrastructure import Infrastructure

# Somebody waits for a plan: a network that is not there is soon known.
RETRY_POLICY = RetryPolicy(connect=3.0, answer=10.0, attempts=2)


@dataclass(slots=True)
class Asked:
    """What the account said, by region; what it did not say is in `notes`."""

    quotas: dict[str, Quotas] = field(default_factory=dict)
    images: dict[tuple[str, str], str] = field(default_factory=dict)  # (region, wish) → id and name
    notes: list[str] = field(default_factory=list)

    @property
    def quota(self) -> str:
        """The quotas in words: what they are, or why they were not asked."""
        told = [
            f"{kind} {market.replace('_', ' ')} in {region}: {q.vcpus} vCPUs, {q.used} in use"
            for region, found in sorted(self.quotas.items())
            for (kind, market), q in found.of.items()
        ]
        return "; ".join([*told, *self.notes]) or "not asked"


def account(infrastructures: Iterable[Infrastructure], region: str, patience: RetryPolicy = RETRY_POLICY) -> Asked:
    """Ask for quotas and images of every region the infrastructures name; `region` where they name none.

    Never raises for AWS: without credentials or a network the plan is made all the same, and says what it lacks.
    """
    asked = Asked()
    if not may_have_credentials():
        asked.notes.append("not asked (no AWS credentials)")
        return asked
    by_region: dict[str, dict[GroupSpec, None]] = {}
    for infrastructure in infrastructures:
        groups = by_region.setdefault(infrastructure.ec2.region or region, {})
        groups |= dict.fromkeys(group_specs(infrastructure))
    for name, groups in by_region.items():
        try:
            api = Api(name, patience=patience)
            asked.quotas[name] = quota.ask(api, markets(tuple(groups)))
            asked.images |= {(name, wish): told for wish, told in _images(api, tuple(groups)).items()}
        except CloudError as error:
            asked.notes.append(f"not known in {name} ({error.code}: {error.message})")
    return asked


def markets(groups: Sequence[GroupSpec]) -> list[tuple[str, str]]:
    """All (instance type, market) a launch of these groups may come to."""
    return [
        (name, market)
        for group in groups
        for name in group.instance_types
        for market in (("spot", "on_demand") if group.market == "spot_or_on_demand" else (group.market,))
    ]


def _images(api: Api, groups: Sequence[GroupSpec]) -> Mapping[str, str]:
    found = {}
    for group in groups:
        facts = instances.find(group.instance_types[0])
        image = images.resolve(api, group.image, facts.architecture if facts else "x86_64")
        found[group.image] = f"{image.id} ({image.name})"
    return found


def may_have_credentials() -> bool:
    """Whether the AWS configuration of this machine has credentials, looked for as the AWS CLI does."""
    import botocore.session  # type: ignore[import-untyped]  # noqa: PLC0415 (0.2 s that only EC2 should pay)
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        session = botocore.session.get_session()
        if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
            session.set_config_variable("metadata_service_timeout", 1)
        return session.get_credentials() is not None
    except BotoCoreError:
        return True  # something is configured and wrong: the first call says what

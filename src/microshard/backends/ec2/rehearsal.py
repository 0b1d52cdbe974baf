"""Rehearse a plan: every call it would make, sent with DryRun, and what only the account knows. Creates nothing.

DryRun checks the permissions of a call without making it: DryRunOperation is the success, UnauthorizedOperation the
refusal (EC2 API reference). Whether it checks parameters as well is not documented; nothing here depends on it. It does
not say whether there is capacity.
"""

import time
from collections.abc import Iterator, Mapping, Sequence

from microshard.backends.ec2.account import QUICK_RETRY
from microshard.backends.ec2.api import Api, CloudError
from microshard.backends.ec2.checks import check_account
from microshard.backends.ec2.cost_estimate import GRACE_SECONDS, FleetEstimate
from microshard.backends.ec2.ec2_plan import Ec2Plan
from microshard.backends.ec2.fleet import describe_types, resolve_images, usable_zones, zones_offering
from microshard.backends.ec2.launch import MARKETS
from microshard.backends.ec2.network import controller_cidrs, existing_subnets
from microshard.backends.ec2.request import LaunchAttempt, run_instances, user_data
from microshard.backends.ec2.spec import FleetSpec, GroupSpec, fleet_spec
from microshard.backends.ec2.tables import instance_price, volume_rate
from microshard.run.backend import CheckResult, State

_RUN = "rehearsal"
_CLOCK_WRONG = 300.0  # seconds; AWS refuses a signature that is older (General reference, SigV4 request elements)
_CLOCK_NOTE = 30.0  # hosts terminate by their own clock at a time this machine's clock has set
# The run's VPC does not exist yet, so a launch is tried in the default one, which an account may lack (error codes).
_NO_DEFAULT_VPC = {"VPCIdNotSpecified", "MissingInput"}


def rehearse(plan: Ec2Plan, owner: str) -> Iterator[CheckResult]:
    """Yield what the account says about everything the plan would do. Never raises for AWS."""
    for region in dict.fromkeys(fleet.region for fleet in plan.estimate.fleets):
        fleets = [fleet for fleet in plan.estimate.fleets if fleet.region == region]
        points = [point for fleet in fleets for point in fleet.points]
        wrong = set[str]()
        for result in check_account([plan.definitions[point].experiment for point in points], region, owner):
            yield result
            wrong |= {result.what} if result.state == "wrong" else set()
        if wrong & {"credentials", "region"}:
            continue  # every further call would fail for the same reason
        api = Api(region, retry=QUICK_RETRY)
        yield _clock(api)
        yield from _prices(api, fleets)
        for fleet in fleets:
            try:
                yield from _launches(api, fleet, _spec(plan, fleet, owner))
            except CloudError as error:
                yield CheckResult(f"{fleet.name}: launch", "wrong", str(error))


def _spec(plan: Ec2Plan, fleet: FleetEstimate, owner: str) -> FleetSpec:
    return fleet_spec(
        fleet.infrastructure,
        run=_RUN,
        owner=owner,
        experiment=plan.plan.name,
        expires_at=int(time.time() + (plan.estimate.budget.max_hours or 0) * 3600 + GRACE_SECONDS),
        controller_cidrs=controller_cidrs(fleet.infrastructure.ec2),
    )


def _clock(api: Api) -> CheckResult:
    try:
        offset = api.clock_offset()
    except CloudError as error:
        return CheckResult("clock", "unknown", str(error))
    size = abs(offset)
    state: State = "wrong" if size > _CLOCK_WRONG else "note" if size > _CLOCK_NOTE else "ok"
    message = f"this machine is {size:.0f} s {'ahead of' if offset > 0 else 'behind'} AWS"
    if state == "ok":
        message = f"this machine and AWS agree to {max(size, 1.0):.0f} s"
    return CheckResult("clock", state, message, "set this machine's clock: hosts terminate at a time that it decides")


def _prices(api: Api, fleets: Sequence[FleetEstimate]) -> Iterator[CheckResult]:
    """Compare the tables' prices of instances and volumes with AWS's price list, where the policy allows to read it."""
    groups = [group for fleet in fleets for group in fleet.groups]
    volumes = {volume.type for group in groups for volume in (group.root_volume, *group.volumes)} - {"instance_store"}
    names = [*sorted({name for group in groups for name in group.instance_types}), *sorted(volumes)]
    listed: dict[str, float | None] = {}
    try:
        for name in names:
            listed[name] = api.price(name)
    except CloudError as error:
        message = f"AWS's price list was not read ({error.code}); the estimate has the dated table's prices"
        yield CheckResult("prices", "unknown", message, "allow pricing:GetProducts")
        return
    for name, usd in listed.items():
        volume = name in volumes
        known = volume_rate(name, api.region) if volume else instance_price(name, api.region)
        what = f"a GiB of {name}" if volume else name
        unit = "USD a month" if volume else "USD an hour"
        if usd is None:
            yield CheckResult("prices", "unknown", f"AWS's price list has no price of {what} in {api.region}")
        elif known is None or abs(known.usd - usd) > 0.0005:
            table = "has none" if known is None else f"of {known.date} has {known.usd:.4f}"
            yield CheckResult("prices", "note", f"{what} costs {usd:.4f} {unit}; the table {table}", "count with it")
        else:
            yield CheckResult("prices", "ok", f"{what} costs {usd:.4f} {unit}, as in the table")


def _launches(api: Api, fleet: FleetEstimate, spec: FleetSpec) -> Iterator[CheckResult]:
    """Try every RunInstances the launch may come to, in the first zone that offers all first choices."""
    types = describe_types(api, spec)
    images = resolve_images(api, spec, types)
    offered = zones_offering(api, spec, types)
    vpc_id, subnets = existing_subnets(api, spec)
    zones = usable_zones(spec, subnets if vpc_id else None, offered)
    first = [group.instance_types[0] for group in spec.groups]
    shared = [zone for zone in zones if all(zone in offered[name] for name in first)]
    if shared:
        yield CheckResult(f"{fleet.name}: zones", "ok", f"{', '.join(shared)}: tried in this order")
    else:
        message = f"no zone of {api.region} offers {', '.join(dict.fromkeys(first))} together"
        yield CheckResult(f"{fleet.name}: zones", "wrong", message, "list alternative_types, or use another region")
    for group in spec.groups:
        for name in group.instance_types:
            zone = next((z for z in (*shared, *zones) if z in offered[name]), None)
            for market in MARKETS[group.market] if zone else ():
                image = images[group.image, types[name].architecture]
                attempt = LaunchAttempt(group, group.count, types[name], str(zone), market, image, "")
                yield _try(api, fleet, group, attempt, spec, subnets)


def _try(
    api: Api,
    fleet: FleetEstimate,
    group: GroupSpec,
    attempt: LaunchAttempt,
    spec: FleetSpec,
    subnets: Mapping[str, str],
) -> CheckResult:
    """Send one RunInstances with DryRun, without what does not exist yet: key pair, groups and the run's subnet."""
    parameters = run_instances(
        spec, attempt, security_group="", placement_group=None,
        user_data=user_data("0" * 400, "0" * 80, spec.expires_at),
    )  # fmt: skip
    for name in ("KeyName", "ClientToken", "NetworkInterfaces"):
        del parameters[name]
    parameters |= {"SubnetId": subnets[attempt.zone]} if subnets else {"Placement": {"AvailabilityZone": attempt.zone}}
    tags = [each for each in parameters["TagSpecifications"] if each["ResourceType"] != "network-interface"]
    parameters["TagSpecifications"] = tags
    what = f"{fleet.name}: launch"
    try:
        api.create("run_instances", **parameters, DryRun=True)
    except CloudError as error:
        if error.code == "DryRunOperation":
            return CheckResult(what, "ok", f"{group.name}: {attempt} would be accepted, where there is capacity")
        state: State = "unknown" if error.code in _NO_DEFAULT_VPC else "wrong"
        return CheckResult(
            what, state, f"{group.name}: {attempt}: {error}", "a first run shows" if state == "unknown" else ""
        )
    return CheckResult(what, "wrong", f"{group.name}: {attempt}: AWS has ignored DryRun and launched them")

"""An outlook for people: hosts, volumes, prices, limits."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from microshard.backends.ec2 import instances, prices
from microshard.backends.ec2.cost_estimate import GRACE_SECONDS, CostEstimate, FleetEstimate
from microshard.backends.ec2.fleet_plan import iops, mibps
from microshard.backends.ec2.spec import GroupSpec, VolumeSpec
from microshard.plan.wording import duration

_UNKNOWN = "unknown"


def show(view: CostEstimate, console: Console) -> None:
    """Print fleets with hosts, volumes and prices, then budget, quotas and every limit that is broken."""
    for fleet in view.fleets:
        _fleet(fleet, view, console)
    _say(console, f"Quotas: {view.quota}.")
    _say(console, f"Price of the run: {_price(view)}.")
    _say(console, f"Budget: {_budget(view)}.")
    for broken in view.limits:
        colour = "red" if broken.severity == "error" else "yellow"
        word = "limit broken" if broken.severity == "error" else "note"
        console.print(f"[{colour}]{word}:[/{colour}] {broken.key}: {broken.message}", highlight=False, soft_wrap=True)


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def _fleet(fleet: FleetEstimate, view: CostEstimate, console: Console) -> None:
    hosts = sum(g.count for g in fleet.groups)
    _say(console, f"{fleet.name}: {hosts} hosts in {fleet.region} for {_points(fleet)}")
    for reason in fleet.forced_by:
        _say(console, f"  new hosts, because of {reason}")
    console.print(_hosts(fleet, view))
    console.print(_volumes(fleet))
    _say(console, _surroundings(fleet))
    hourly = _usd(fleet.cost.hourly_usd, "an hour")
    known = "" if fleet.cost.hourly_usd is not None else f" ({fleet.cost.known_usd:.3f} USD an hour of it are known)"
    _say(
        console,
        f"Price: {hourly}{known} × {duration(fleet.seconds)} (estimate) = {_usd(fleet.cost_usd)}{_basis(fleet)}",
    )
    console.print()


def _points(fleet: FleetEstimate) -> str:
    names = ", ".join(fleet.points[:12]) + (f" … ({len(fleet.points)} in all)" if len(fleet.points) > 12 else "")
    return f"point{'' if len(fleet.points) == 1 else 's'} {names}"


def _hosts(fleet: FleetEstimate, view: CostEstimate) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("group", "hosts", "type", "vCPU", "GiB", "market", "image", "USD/h each"):
        table.add_column(name, justify="right" if name in {"hosts", "vCPU", "GiB", "USD/h each"} else "left")
    for group in fleet.groups:
        facts = instances.find(group.instance_types[0])
        price = prices.instance(group.instance_types[0], fleet.region)
        table.add_row(
            group.name,
            str(group.count),
            _types(group),
            str(facts.vcpus) if facts else _UNKNOWN,
            f"{facts.memory_mib / 1024:.4g}" if facts else _UNKNOWN,
            group.market.replace("_", " "),
            f"{group.image} = {view.images[fleet.region, group.image]}"
            if (fleet.region, group.image) in view.images
            else f"{group.image} (newest)",
            ("" if price.exact else "≤ ") + f"{price.usd:.4f}" if price else _UNKNOWN,
        )
    return table


def _types(group: GroupSpec) -> str:
    others = f", else {', '.join(group.instance_types[1:])}" if len(group.instance_types) > 1 else ""
    threads = f", {group.threads_per_core} thread(s) a core" if group.threads_per_core else ""
    return f"{group.instance_types[0]}{others}{threads}"


def _volumes(fleet: FleetEstimate) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("volume", "hosts", "type", "GiB", "IOPS", "MiB/s", "USD/h each"):
        table.add_column(name, justify="left" if name in {"volume", "type"} else "right")
    for group in fleet.groups:
        for volume in (VolumeSpec("root", "gp3", group.root_gib), *group.volumes):
            price = prices.volume(volume, fleet.region)
            own = volume.type == "instance_store"
            table.add_row(
                f"{group.name}: {volume.purpose}",
                str(group.count),
                volume.type.replace("_", " "),
                str(volume.size_gib),
                "–" if own else _rate(iops(volume), volume.iops),
                "–" if own else _rate(mibps(volume), volume.throughput_mibps),
                f"{price.usd:.4f}" if price else _UNKNOWN,
            )
    return table


def _rate(value: float, asked: int | None) -> str:
    """A rate that is provisioned, or what the type delivers by itself."""
    return f"{asked:,}" if asked is not None else f"≤ {value:,.0f}"


def _surroundings(fleet: FleetEstimate) -> str:
    ec2 = fleet.infrastructure.ec2
    network = ec2.subnet_id or ec2.vpc_id or "a VPC made for the run"
    zone = (
        f"the first of {', '.join(ec2.zones)} with room for all"
        if ec2.zones
        else "one zone, the first with room for all"
    )
    close = "close together (cluster placement group)" if ec2.placement_group else "placed as EC2 likes"
    who = "this machine's public address" if ec2.controller_cidrs == "auto" else ", ".join(ec2.controller_cidrs)
    return f"Placement: {network}; {zone}; {close}; SSH from {who} only."


def _usd(value: float | None, unit: str = "") -> str:
    return _UNKNOWN if value is None else f"{value:.3f} USD{' ' + unit if unit else ''}"


def _basis(fleet: FleetEstimate) -> str:
    cost = fleet.cost
    told = [f"on-demand prices of {', '.join(cost.dates)}" if cost.dates else "no price is known"]
    if not cost.exact:
        told.append("may be up to 10 % less")
    if cost.spot:
        told.append("spot costs less")
    if cost.unknown:
        told.append(f"no price of {', '.join(cost.unknown)}")
    return f"; {'; '.join(told)}."


def _price(view: CostEstimate) -> str:
    most = f", at most {view.most_usd:.2f} USD if it takes all its hours" if view.most_usd is not None else ""
    return f"about {_usd(view.cost_usd)} for {duration(view.seconds)}{most}"


def _budget(view: CostEstimate) -> str:
    hours, usd = view.budget.max_hours, view.budget.max_cost_usd
    told = []
    if hours is not None:
        told.append(
            f"the run stops after the repetition in which {hours:g} h are over; hosts end themselves "
            f"{GRACE_SECONDS / 60:.0f} min later"
        )
    told.append(f"it stops before {usd:g} USD are spent" if usd is not None else "no limit of its cost (max_cost_usd)")
    return "; ".join(told)

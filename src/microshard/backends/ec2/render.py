"""Print a cost estimate: hosts, volumes, prices, limits."""

import time

from rich.console import Console
from rich.table import Table

from microshard.backends.ec2.cost_estimate import GRACE_SECONDS, CostEstimate, FleetEstimate
from microshard.backends.ec2.spec import GroupSpec, VolumeSpec
from microshard.backends.ec2.tables import Price, find_instance, instance_price, volume_price
from microshard.plan.render import count, duration

_UNKNOWN = "unknown"


def show(estimate: CostEstimate, console: Console) -> None:
    """Print fleets with hosts, volumes and prices, then budget, quotas and every violated limit."""
    for fleet in estimate.fleets:
        _show_fleet(fleet, estimate, console)
    _print(console, f"Quotas: {estimate.account}.")
    most = f", at most {estimate.most_usd:.2f} USD within budget.max_hours" if estimate.most_usd is not None else ""
    side = f", up to {estimate.parallel} fleets at a time" if estimate.parallel > 1 and len(estimate.fleets) > 1 else ""
    about = "" if estimate.cost_usd is None else "about "
    _print(console, f"Cost of the run: {about}{_usd(estimate.cost_usd)} for {duration(estimate.seconds)}{side}{most}.")
    _print(console, f"Budget: {_budget(estimate)}.")
    for violation in estimate.violations:
        colour, word = ("red", "limit exceeded") if violation.severity == "error" else ("yellow", "note")
        message = f"[{colour}]{word}:[/{colour}] {violation.key}: {violation.message}"
        console.print(message, highlight=False, soft_wrap=True)


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def _show_fleet(fleet: FleetEstimate, estimate: CostEstimate, console: Console) -> None:
    points = ", ".join(fleet.points[:12]) + (f" … ({len(fleet.points)} in all)" if len(fleet.points) > 12 else "")
    plural = "" if len(fleet.points) == 1 else "s"
    _print(console, f"{fleet.name}: {fleet.host_count} hosts in {fleet.region} for point{plural} {points}")
    for reason in fleet.forced_by:
        _print(console, f"  new hosts, because of {reason}")
    console.print(_hosts_table(fleet, estimate))
    console.print(_volumes_table(fleet))
    _print(console, _placement(fleet))
    price = fleet.price
    known = "" if price.hourly_usd is not None else f" (the known parts: {price.known_usd:.3f} USD an hour)"
    basis = [f"on-demand prices of {', '.join(price.dates)}" if price.dates else "no price is known"]
    if not price.exact:
        basis.append("may be up to 10 % less")
    if price.spot:
        basis.append("spot costs less")
    if price.unknown:
        basis.append(f"no price of {', '.join(price.unknown)}")
    hourly = _usd(price.hourly_usd, " an hour")
    total = f"{hourly}{known} × {duration(fleet.seconds)} (estimate) = {_usd(fleet.cost_usd)}"
    _print(console, f"Cost: {total}; {'; '.join(basis)}.")
    console.print()


def _table(columns: tuple[str, ...], left: set[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right")
    return table


def _hosts_table(fleet: FleetEstimate, estimate: CostEstimate) -> Table:
    columns = ("group", "hosts", "type", "vCPU", "GiB", "market", "image", "USD/h each")
    table = _table(columns, {"group", "type", "market", "image"})
    for group in fleet.groups:
        facts = find_instance(group.instance_types[0])
        image = estimate.account.images.get((fleet.region, group.image))
        table.add_row(
            group.name,
            str(group.count),
            _types(group),
            str(facts.vcpus) if facts else _UNKNOWN,
            f"{facts.memory_mib / 1024:.4g}" if facts else _UNKNOWN,
            group.market.replace("_", " "),
            f"{group.image} = {image}" if image else f"{group.image} (newest)",
            _price(instance_price(group.instance_types[0], fleet.region)),
        )
    return table


def _types(group: GroupSpec) -> str:
    others = f", else {', '.join(group.instance_types[1:])}" if len(group.instance_types) > 1 else ""
    threads = f", {count(group.threads_per_core, 'thread')} per core" if group.threads_per_core else ""
    return f"{group.instance_types[0]}{others}{threads}"


def _volumes_table(fleet: FleetEstimate) -> Table:
    table = _table(("volume", "hosts", "type", "GiB", "IOPS", "MiB/s", "USD/h each"), {"volume", "type"})
    for group in fleet.groups:
        for volume in (group.root_volume, *group.volumes):
            table.add_row(
                f"{group.name}: {volume.purpose}",
                str(group.count),
                volume.type.replace("_", " "),
                str(volume.size_gib),
                _rate(volume, volume.most_iops, volume.iops),
                _rate(volume, volume.most_mibps, volume.throughput_mibps),
                _price(volume_price(volume, fleet.region)),
            )
    return table


def _rate(volume: VolumeSpec, default: float, requested: int | None) -> str:
    """Format a rate that is provisioned, or the type's default."""
    if volume.type == "instance_store":
        return "–"
    return f"{requested:,}" if requested is not None else f"≤ {default:,.0f}"


def _price(price: Price | None) -> str:
    if price is None:
        return _UNKNOWN
    return ("" if price.exact else "≤ ") + f"{price.usd:.4f}"


def _placement(fleet: FleetEstimate) -> str:
    ec2 = fleet.infrastructure.ec2
    network = ec2.subnet_id or ec2.vpc_id or "a VPC created for the run"
    zone = "the first of " + ", ".join(ec2.zones) if ec2.zones else "one zone, the first"
    group = "cluster placement group" if ec2.placement_group else "no placement constraint"
    source = "this machine's public address" if ec2.controller_cidrs == "auto" else ", ".join(ec2.controller_cidrs)
    return f"Placement: {network}; {zone} with capacity for all hosts; {group}; SSH from {source} only."


def hourly_cost(hourly_usd: float | None, expires_at: int, run: str, what: str = "the hosts") -> str:
    """Return a sentence on what hosts cost while they exist; `expires_at` in epoch seconds."""
    price = "an unknown price" if hourly_usd is None else f"{hourly_usd:.3f} USD"
    end = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(expires_at))
    down = f"`microshard down {run}`" if run else "`microshard down`"
    return f"{price} an hour for {what}, each hour until {down}; they terminate automatically at {end}"


def _usd(value: float | None, unit: str = "") -> str:
    return _UNKNOWN if value is None else f"{value:.3f} USD{unit}"


def _budget(estimate: CostEstimate) -> str:
    hours, usd = estimate.budget.max_hours, estimate.budget.max_cost_usd
    parts = []
    if hours is not None:
        parts.append(
            f"the run stops after the repetition in which {hours:g} h are over; hosts terminate automatically "
            f"{GRACE_SECONDS / 60:.0f} min later"
        )
    parts.append(f"it stops before {usd:g} USD are spent" if usd is not None else "no cost limit (max_cost_usd)")
    return "; ".join(parts)

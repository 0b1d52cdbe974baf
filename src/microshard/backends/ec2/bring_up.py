"""Bring up hosts on EC2: those of a fleet for a run, or of one point that stays up until `down`."""

import dataclasses
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from microshard import this_machine
from microshard.backends.ec2.api import Api
from microshard.backends.ec2.backend import Ec2Backend, create_hosts, created_region, remove_hosts
from microshard.backends.ec2.cost_estimate import GRACE_SECONDS, FleetEstimate
from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.backends.ec2.network import controller_cidrs
from microshard.backends.ec2.render import hourly_cost
from microshard.backends.ec2.resources import is_gone
from microshard.backends.ec2.spec import fleet_spec
from microshard.backends.ec2.tables import fleet_price
from microshard.errors import MicroshardError, PlaceError
from microshard.interrupts import signals
from microshard.model.plan import Plan, Point
from microshard.plan.render import count
from microshard.records.run_folder import RunFolder, read_object, write_json
from microshard.run.ansible import Playbooks
from microshard.run.cluster import LeftBehindError, bring_up, choose
from microshard.run.outcome import Meter
from microshard.run.prepare import lock_binaries, write_points, write_request
from microshard.run.runner import Listener


def check(plan: Ec2Plan) -> dict[str, tuple[str, ...]]:
    """Return fleet → networks that may reach its hosts. Raises MicroshardError for what EC2 would refuse."""
    plan.raise_on_violations()
    plan.raise_on_unsupported()
    for region in dict.fromkeys(fleet.region for fleet in plan.estimate.fleets):
        Api(region).caller()  # without a login nothing will work
    return {fleet.name: controller_cidrs(fleet.infrastructure.ec2) for fleet in plan.estimate.fleets}


def most_ports(plan: Plan) -> int:
    """Return how many ports a host may need at once, when the clusters of all points run side by side."""
    return sum(point.most_ports for point in plan.points)


def expiry(plan: Ec2Plan) -> int:
    """Return when hosts launched now terminate automatically, epoch seconds."""
    return int(time.time() + (plan.estimate.budget.max_hours or 0) * 3600 + GRACE_SECONDS)


def up_on_ec2(
    file: Path,
    scale: str | None,
    overrides: Mapping[str, Any],
    runs: Path,
    point: str | None,
    console: Console,
    listener: Listener,
) -> tuple[RunFolder, Point]:
    """Launch the hosts of one point, deploy it and leave it running. When anything fails, nothing is left.

    Raises MicroshardError, LeftBehindError where the hosts could not be removed again.
    """
    plan = plan_ec2(file, scale=scale, overrides=overrides, only=partial(choose, name=point))
    cidrs, (fleet,) = check(plan), plan.estimate.fleets
    expires_at = expiry(plan)
    hosts = f"{fleet.host_count} hosts in {fleet.region}"
    console.print(hourly_cost(fleet.price.hourly_usd, expires_at, "", hosts), highlight=False, soft_wrap=True)
    folder = RunFolder.create(runs, plan.plan.name)
    write_request(folder, plan.request)
    write_json(folder / "plan.json", choose(plan.plan, None))
    launched = Ec2Backend.of(folder, fleet.region)
    launched.hourly_usd, launched.expires_at = fleet.price.hourly_usd, expires_at
    launched.record(folder)
    with signals():
        try:
            backend, created = launch_hosts(
                folder, plan, fleet, listener, cidrs=cidrs[fleet.name], expires_at=expires_at
            )
            meter = Meter()
            for note in (*created["notes"], *reprice(meter, fleet, created)):
                console.print(f"[yellow]warning:[/yellow] {note}", highlight=False, soft_wrap=True)
            backend.hourly_usd = meter.hourly_usd
            inputs = backend.inputs(runs)
            with backend.ports(most_ports(plan.plan)) as base:
                one = choose(plan.replan(fleet.points, dataclasses.replace(inputs, base_port=base)), None)
            backend.check_room(one)
            binaries = backend.binaries(one)
            write_json(folder / "plan.json", one)
            lock_binaries(folder, plan.request, binaries)
            write_points(folder, one, binaries, backend)
        except BaseException as error:
            region = created_region(folder)
            left = remove_hosts(folder, region) if region is not None and not is_gone(folder) else []
            if left:
                raise LeftBehindError(left) from error
            raise
        bring_up(folder, one, binaries, backend, listener)
    return folder, one.points[0]


def launch_hosts(
    folder: RunFolder,
    plan: Ec2Plan,
    fleet: FleetEstimate,
    listener: Listener,
    *,
    cidrs: tuple[str, ...],
    expires_at: int,
) -> tuple[Ec2Backend, dict[str, Any]]:
    """Launch the hosts of a fleet and wait until they answer; return them and `Ec2Fleet.as_json`. Raises PlaceError."""
    spec = fleet_spec(
        fleet.infrastructure,
        run=folder.run_id,
        owner=this_machine.user(),
        experiment=plan.plan.name,
        expires_at=expires_at,
        controller_cidrs=cidrs,
    )
    variables = {
        "microshard_run": {"id": folder.run_id, "folder": str(folder.path)},
        "ec2_fleet_region": fleet.region,
        **{f"ec2_fleet_{key}": value for key, value in dataclasses.asdict(spec).items() if key != "run"},
    }
    listener.stage(None, "hosts")
    playbooks = Playbooks(folder, listener.event)
    try:
        created = create_hosts(folder, new_fleet_record(folder, fleet.name), variables, playbooks)
        backend = Ec2Backend.of(folder, fleet.region)
        backend.expires_at = expires_at
        playbooks = backend.playbooks(folder, listener.event, backend.names)
        playbooks.run("wait_for_ssh", None)
    except PlaceError:
        raise
    except MicroshardError as error:
        raise PlaceError(f"hosts on EC2 do not answer: {error}") from None
    except BaseException:
        playbooks.stop()
        raise
    return backend, created


def reprice(meter: Meter, fleet: FleetEstimate, created: Mapping[str, Any]) -> Iterator[str]:
    """Charge from now on for what was launched, which may be another type than the first that was listed."""
    types = {host["group"]: host["instance_type"] for host in created["hosts"]}
    groups = [dataclasses.replace(group, instance_types=(types[group.name],)) for group in fleet.groups]
    price = fleet_price(groups, fleet.region, public_addresses=fleet.infrastructure.ec2.public_addresses)
    if price.hourly_usd is not None:
        meter.reprice(price.hourly_usd)
    elif fleet.price.hourly_usd is not None:
        yield f"there is no price of {', '.join(price.unknown)}; the cost is that of the types listed first"


def new_fleet_record(folder: RunFolder, fleet: str) -> Path:
    """Return the file for a fleet's hosts; the one of an earlier session is renamed to hosts/FLEET-N.json."""
    path = folder / "hosts" / f"{fleet}.json"
    if path.exists():
        path.rename(next(p for n in range(1, 10_000) if not (p := path.with_stem(f"{fleet}-{n}")).exists()))
    return path


def earlier_hosts_notes(folder: RunFolder, fleet: str, created: Mapping[str, Any], measured: int) -> Iterator[str]:
    """Yield a note where some of the fleet's measurements were made on the hosts of an earlier session."""
    earlier = sorted((folder / "hosts").glob(f"{fleet}-*.json"), key=lambda path: int(path.stem.rpartition("-")[2]))
    if measured and earlier:
        yield (
            f"resumed on new hosts, {_describe_hosts(created)}; {count(measured, 'earlier measurement')} made on "
            f"others ({'; '.join(f'{path.name}: {_describe_hosts(read_object(path))}' for path in earlier)})"
        )


def _describe_hosts(created: Mapping[str, Any]) -> str:
    counts = Counter((host["group"], host["instance_type"], host["market"]) for host in created.get("hosts", []))
    kinds = [f"{group}: {count} x {kind} {market}" for (group, kind, market), count in counts.items()]
    return f"{', '.join(kinds) or 'unknown'} in {created.get('zone', 'an unknown zone')}"

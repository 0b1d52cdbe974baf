"""No key is accepted and then ignored: with another value it changes the plan, or is refused, or is warned about."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.experiment.errors import DefinitionError
from microshard.experiment.load import load
from microshard.experiment.matrix import expand
from microshard.experiment.shape import EXPERIMENT, KeyShape
from microshard.model.plan import Inputs
from microshard.plan.build import build_plan
from microshard.plan.checks import PlanError
from microshard.run.prepare import pipelines
from tests.conftest import todays
from tests.faults.definitions import SHIPPED

# Read by others than the plan: the report, the runner's budget, the judge's gates, the tool's own words.
ELSEWHERE = ("microshard", "name", "title", "reproduces", "reference", "scales", "lock", "gates", "budget", "matrix")
INPUTS = Inputs(cores=4, ram_mib=64 * 1024, free_disk_bytes=10**15)


def leaves(
    shape: KeyShape, value: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], KeyShape]]:
    """Every key that can be named below a value, whether it is given or has its default."""
    if shape.kind in {"mapping", "variants"}:
        for key, child in shape.keys(value).items():
            given = value.get(key) if isinstance(value, dict) else None
            # A step is one of load, warm_up and measure; a second one is refused anyway.
            if (not path and key in ELSEWHERE) or (len(path) == 2 and path[0] == "workload" and given is None):
                continue
            yield from leaves(child, given, (*path, key))
    elif shape.kind == "list" and isinstance(value, list) and shape.item is not None:
        for index, item in enumerate(value):
            yield from leaves(shape.item, item, (*path, index))
    elif path[-1] != "engine" or path[0] != "workload":
        yield path, shape


def others(shape: KeyShape, value: Any) -> Iterator[Any]:
    """Values of the right type that are not the one given."""
    match shape.kind:
        case "words":
            yield from (word for word in shape.words if word != value)
        case "bool":
            yield from (v for v in (True, False) if v != value)
        case "whole" | "number":
            low = shape.ge if shape.ge is not None else (shape.gt or 0) + 1
            for candidate in (3, 2, 1, 7, 100, 0.5, low, low + 1, 4000, 3000):
                if shape.kind == "whole" and candidate != int(candidate):
                    continue
                if candidate != value and candidate >= low and (shape.le is None or candidate <= shape.le):
                    yield int(candidate) if shape.kind == "whole" else candidate
        case "text":
            yield from (v for v in ("other.things", "other", "4.4", "/other", "other1") if v != value)
        case "either":
            for option in shape.options:
                yield from others(option, value)


def planned(path: Path, overrides: dict[str, Any]) -> tuple[Any, list[str]]:
    loaded = load(path, overrides=overrides)
    points = expand(loaded)
    inputs = dataclasses.replace(INPUTS, pipelines=pipelines(path), folder=path.parent)
    plan = build_plan(loaded.experiment, points, inputs)
    reported = [str(w) for w in loaded.warnings] + [w for p in points for w in p.warnings] + list(plan.warnings)
    return dataclasses.asdict(dataclasses.replace(plan, warnings=())), reported


def ignored(path: Path, below: tuple[str, ...]) -> tuple[list[str], int]:
    """Keys that change nothing whatever they are, and how many values were tried."""
    loaded = load(path)
    # Two values of each axis: with one point there is no order.
    small = {f"matrix.{key}": values[:2] for key, values in loaded.experiment.matrix.axes.items()}
    overruled = {*loaded.experiment.matrix.axes, *loaded.experiment.matrix.zip}
    base, warned = planned(path, small)
    found, tried = [], 0
    for place, shape in leaves(EXPERIMENT, loaded.document.data):
        key = ".".join(map(str, place))
        values = list(others(shape, None))
        if place[0] not in below or key in overruled or not values:
            continue
        for value in values:
            tried += 1
            try:
                plan, warnings = planned(path, {**small, key: value})
            except (DefinitionError, PlanError):
                break  # not here, and it is said
            if plan != base or set(warnings) != set(warned):
                break
        else:
            found.append(key)
    return found, tried


def test_every_key_of_machines_and_topology_has_an_effect_or_is_refused() -> None:
    quickstart = next(p for p in SHIPPED if p.stem == "quickstart")
    found, tried = ignored(quickstart, ("infrastructure", "topology", "order", "repetitions", "teardown"))
    assert not found, f"accepted and without any effect: {found}"
    assert tried > 60


def runs_here(path: Path) -> bool:
    """Whether this machine could run it: an experiment of other engines and versions is for hosts."""
    try:
        planned(path, {})
    except PlanError:
        return False
    return True


@pytest.mark.parametrize("path", todays(SHIPPED, 4))
def test_every_key_of_the_workload_has_an_effect_or_is_refused(path: Path) -> None:
    if not runs_here(path):
        return  # refused as a whole
    found, tried = ignored(path, ("workload",))
    assert not found, f"accepted and without any effect: {found}"
    assert tried > 5

"""Hosts of another release than the bed's: its systemd, its Python, its packages."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from microshard.records.run_folder import find_runs
from tests.hosts.bed import Bed, bed, lacking, wheels
from tests.hosts.bed.root import PYTHONS, SUITE
from tests.hosts.controller import Controller, small
from tests.hosts.needs import need

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
OTHERS = sorted(set(PYTHONS) - {SUITE})


@pytest.fixture(scope="module", params=OTHERS)
def other(request: pytest.FixtureRequest) -> Iterator[tuple[str, Bed]]:
    need(lacking())
    wheels.fetch(request.param)
    with bed(suites=[request.param, request.param, SUITE]) as made:
        yield request.param, made


def test_a_cluster_over_hosts_of_two_releases_is_measured_and_leaves_nothing(
    other: tuple[str, Bed], tmp_path: Path
) -> None:
    suite, machines = other
    controller = Controller(machines, tmp_path)
    code, said = controller.run("run", controller.write(small()), "--on", machines.inventory)
    assert code == 0, said
    (folder,) = find_runs(controller.runs)
    (result,) = [json.loads(path.read_text()) for path in folder.path.glob("results/*/r1.json")]
    assert sum(shard["documents"] for shard in result["phases"][0]["storage"]["by_shard"].values()) == 20000
    hosts = json.loads((folder / "backend.json").read_text())["hosts"]
    pythons = [".".join(map(str, hosts[name]["client_python"]["version"][:2])) for name in ("host1", "host3")]
    assert pythons == [PYTHONS[suite], PYTHONS[SUITE]]
    assert controller.left() == []

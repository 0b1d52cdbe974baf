"""Data images on hosts: each keeps its own part on its own disk, and what one has lost is loaded again."""

import itertools
import json

import pytest

from microshard.records.data_images import kept_images
from microshard.records.run_folder import find_runs
from tests.hosts.controller import Controller, small

IMAGES = "/var/lib/microshard/images"


def _run(controller: Controller, *more: str):
    path = controller.write(small(load={"image": "use"}))
    code, said = controller.run("run", path, "--on", controller.bed.inventory, *more, timeout=600)
    assert code == 0, said
    (run,) = find_runs(controller.runs)[-1:]
    result = json.loads((run / "results" / "p01" / "r1.json").read_text())
    answers = [phase["answer_sha256"] for phase in result["phases"] if phase["kind"] == "measure"]
    return {event.event: event for event in run.journal.records()}, result["data"], answers


def _parts(controller: Controller) -> list[list[str]]:
    """Of every machine: the processes whose loaded data it has."""
    loaded = [kept.path.name for kept in kept_images(controller.runs) if kept.image and kept.image.documents]
    command = f"sudo ls {IMAGES}/{loaded[0]}/data" if loaded else f"sudo ls {IMAGES}"
    return [controller.bed.ssh(each, command).stdout.split() for each in controller.bed.machines]


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_a_cluster_on_hosts_is_restored_and_loaded_where_a_host_has_lost_its_part(controller: Controller) -> None:
    _, data, expected = _run(controller)
    assert data == "loaded"
    parts = _parts(controller)
    assert all(parts)
    assert sorted(itertools.chain(*parts)) == ["config1", *(f"shard0{n}-{m}" for n in (1, 2, 3) for m in (1, 2))]
    (kept,) = kept_images(controller.runs)
    assert kept.image is not None
    assert set(kept.image.host_bytes) == {"host1", "host2", "host3"}
    assert not (kept.path / "data").exists()
    # Where its ports are taken, the addresses in the data are changed.
    for more in ((), ("--set", "topology.network.base_port=28500")):
        events, data, answers = _run(controller, *more)
        assert (data, answers) == ("restored", expected)
    lost = controller.bed.machines[1]
    assert controller.bed.ssh(lost, "sudo", "sh", "-c", f"'rm -r {IMAGES}/*'").returncode == 0
    events, data, answers = _run(controller)
    assert (data, answers) == ("loaded", expected)
    assert "there is no such data image" in events["data image refused"].message
    assert "host2" in events["data image refused"].message
    assert _parts(controller) == parts
    code, said = controller.run("images", "rm", "--all")
    assert code == 0, said
    assert _parts(controller) == [[], [], []]
    assert kept_images(controller.runs) == []
    assert controller.left() == []

"""What differs between releases is data with a source, and each entry is used."""

import json
from pathlib import Path
from typing import Any

import pytest

from microshard.experiment import releases
from tests.unit.plan.conftest import experiment

FILE = Path(releases.__file__).with_suffix(".json")
SHARDED: dict[str, Any] = {"kind": "sharded", "shards": {"count": 2}}
NAMESPACE = "vosa.mot_results"


def noted(version: str, **topology: Any) -> str:
    """The notes for this release, as one text."""
    mongodb = {"source": "packages", "version": version}
    return "\n".join(releases.differences(experiment(topology={"mongodb": mongodb, **topology})))


def test_every_difference_has_a_release_a_subject_and_a_source() -> None:
    data = json.loads(FILE.read_text(encoding="utf-8"))
    for entry in [*data["differences"], *data["commands"].values()]:
        assert entry["since"][0].isdigit()
        assert entry["source"]
    assert all(entry["what"] and entry["concerns"] for entry in data["differences"])


@pytest.mark.parametrize(
    ("version", "topology", "text"),
    [
        ("7.0", {"kind": "standalone"}, "tickets are adjusted to the load"),
        ("7.0", SHARDED | {"balancer": {"enabled": True}}, "rangeDeleterHighPriority"),
        ("7.0", SHARDED | {"balancer": {"enabled": True}}, "AutoMerger"),
        ("8.0", SHARDED, "one process less"),
        ("8.0", SHARDED | {"shards": {"count": 4, "initial": 2}}, "forceRedistribution"),
        ("8.0", SHARDED | {"collections": []}, "moveCollection"),
        ("8.2", SHARDED | {"balancer": {"enabled": True}}, "orphanCleanupDelaySecs"),
        ("8.0", SHARDED | {"balancer": {"enabled": True}}, "sets chunks of 64 MiB; MongoDB 8.0 has 128 by default"),
    ],
)
def test_a_plan_says_what_is_new_in_the_release_of_the_experiment(
    version: str, topology: dict[str, Any], text: str
) -> None:
    assert text in noted(version, **topology)
    assert text not in noted("6.0", kind="standalone")


def test_what_does_not_concern_an_experiment_is_not_said() -> None:
    assert "config server" not in noted("8.0", kind="replica_set")
    assert "one process less" not in noted("8.0", **SHARDED, config_servers={"embedded": True})
    assert "AutoMerger" not in noted("8.0", **SHARDED)
    assert noted("6.0", kind="replica_set") == ""


@pytest.mark.parametrize(("release", "size"), [((2, 2), 64), ((5, 0), 64), ((6, 0), 128), ((8, 0), 128)])
def test_the_default_chunk_size_is_that_of_the_release(release: tuple[int, int], size: int) -> None:
    assert releases.default_chunk_size_mb(release) == size

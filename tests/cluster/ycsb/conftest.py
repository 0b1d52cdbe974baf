"""Mongods with records, and jobs of YCSB against them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from microshard.model.phases.ycsb import YcsbPhase
from microshard.workloads.ycsb.clients import BUILT_JAR
from tests.cluster.workloads.conftest import mongod, run_job

__all__ = ["mongod", "run_job"]

RECORDS = 2000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.skipif(shutil.which("java") is None, reason="there is no java"))
            item.add_marker(
                pytest.mark.skipif(not BUILT_JAR.exists(), reason="the YCSB client is not built (make clients)")
            )


def phase(kind: str, name: str | None = None, **keys: Any) -> dict[str, Any]:
    """A phase of a job, with all keys explicit, as a plan hands it over."""
    small = {"records": RECORDS, "threads": 2, "java_options": ["-XX:TieredStopAtLevel=1", "-Xmx128m"]}
    given = YcsbPhase.model_validate({"engine": "ycsb", **small, **keys})
    parameters = given.model_dump(mode="json", exclude={"engine"})
    return {"name": name or kind, "kind": kind, "engine": "ycsb", "parameters": parameters}


@pytest.fixture
def records() -> Callable[[Any, int], None]:
    """Put documents of YCSB's keys into a mongod without YCSB: enough for a run that must fail anyway."""

    def fill(client: Any, count: int = RECORDS) -> None:
        client["ycsb"]["usertable"].insert_many([{"_id": f"x{n}"} for n in range(count)])

    return fill

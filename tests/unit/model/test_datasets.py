"""Facts about data sets: every data set of the experiment file has them and a generator; files are read with care."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from microshard.model.datasets import DATASETS, DataError, DatasetInfo, dataset_info
from microshard.model.phases.insert import InsertPhase
from microshard.workloads.datasets import CLASSES


def dump(path: Path) -> DatasetInfo:
    return dataset_info("dump", {"file": str(path)})


def test_every_data_set_has_facts_and_a_generator() -> None:
    assert sorted(get_args(InsertPhase.model_fields["dataset"].annotation)) == sorted(DATASETS)
    for name, (module, _, cls) in ((name, path.partition(".")) for name, path in CLASSES.items()):
        generator = getattr(importlib.import_module(f"microshard.workloads.datasets.{module}"), cls)
        (facts,) = generator.__orig_bases__[0].__args__
        assert issubclass(DATASETS[name], facts)
    assert CLASSES.keys() == DATASETS.keys()


def test_reading_an_experiment_imports_no_engine() -> None:
    script = "import sys, microshard.model.workload, microshard.experiment.rules; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "microshard.model.phases.ycsb" in modules
    assert not [m for m in modules if m.startswith(("microshard.workloads", "pymongo", "bson", "numpy", "hdrh"))]


def test_the_plain_indexes_of_a_dump_are_read_from_its_metadata(tmp_path: Path) -> None:
    metadata = tmp_path / "a.metadata.json"
    assert dump(tmp_path / "a.bson").secondary_indexes() == ()
    keys = ['{"_id":{"$numberInt":"1"}}', '{"x":1,"d.e":{"$numberDouble":"-1.0"}}', '{"_fts":"text"}', '{"y":"hashed"}']
    listed = ",".join(f'{{"v":2,"key":{key},"name":"n"}}' for key in keys)
    metadata.write_text(f'{{"options":{{}},"indexes":[{listed}]}}')
    assert dump(tmp_path / "a.bson").secondary_indexes() == ({"x": 1, "d.e": -1},)
    assert dump(tmp_path / "a.json").secondary_indexes() == ()
    metadata.write_text('{"indexes": [{"key": 1}]}')
    with pytest.raises(DataError, match=r"a\.metadata\.json has no indexes as mongodump"):
        dump(tmp_path / "a.bson").secondary_indexes()


@pytest.mark.parametrize("wanted", [None, 7_000])
def test_orders_must_be_a_multiple_of_a_part(wanted: int | None) -> None:
    with pytest.raises(DataError, match="parts of 7,500 orders"):
        dataset_info("tpch", {"documents": wanted})


def test_a_missing_package_is_reported_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    for name in ("flights", "tpch"):
        with pytest.raises(DataError, match=r"which is not installed: run `make data`"):
            dataset_info(name, {"documents": 7_500}).check_available()

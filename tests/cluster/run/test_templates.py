"""An experiment is data: nothing in it is evaluated by Ansible, in a whole run."""

from __future__ import annotations

import json

import pytest

from tests.cluster.run.conftest import Cli

pytestmark = pytest.mark.cluster


def test_templates_in_an_experiment_reach_mongod_as_they_are(cli: Cli) -> None:
    trap = f"{{{{ lookup('ansible.builtin.pipe', 'touch {cli.folder}/trapped') }}}}"
    path = cli.write(
        title=trap,
        topology={"kind": "standalone", "storage": {"cache": {"policy": "host_total_mb", "value": 256}}},
        workload=[
            {"load": {"engine": "insert", "documents": 2000, "seed": 7}},
            {"measure": {"engine": "aggregate", "pipeline": [{"$match": {"_id": {"$gte": 0}}},
                                                             {"$group": {"_id": trap, "n": {"$sum": 1}}}]}},
        ],
        matrix={},
        repetitions=1,
    )  # fmt: skip
    code, output = cli.run("run", path)
    assert code == 0, output
    assert not (cli.folder / "trapped").exists()
    (result,) = cli.results().values()
    assert trap in json.dumps(result).replace("\\\\", "\\"), "the answer names the template, unevaluated"

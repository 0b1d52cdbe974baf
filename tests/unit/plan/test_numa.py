"""NUMA settings of each host, and what a host is known not to have."""

from typing import Any

import pytest

from microshard.plan import Inputs, PlanError

POLICY = {"shard_hosts": {"numa": {"policy": "node_round_robin", "nodes": [0, 1]}}}


def test_the_host_of_the_data_has_the_settings_of_the_data(planned: Any) -> None:
    (point,) = planned([2], Inputs(cores=4, numa_nodes=(0, 1)), infrastructure=POLICY).points
    assert point.numa == {"local": {"policy": "node_round_robin", "nodes": [0, 1], "reserved_cores": 1}}
    assert planned([2], Inputs(cores=4)).points[0].numa == {}


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        (Inputs(cores=4, numa_nodes=(0,)), "numa.nodes: local has the NUMA nodes 0 and no 1"),
        (Inputs(cores=4, numa_nodes=(0, 1), numactl=False), "numa.policy: local has no numactl"),
    ],
)
def test_a_host_without_the_node_or_numactl_is_refused_by_name(planned: Any, inputs: Inputs, problem: str) -> None:
    with pytest.raises(PlanError) as caught:
        planned([2], inputs, infrastructure=POLICY)
    assert f"infrastructure.shard_hosts.{problem}" in str(caught.value)


def test_one_node_is_nothing_to_go_round(planned: Any) -> None:
    policy = {"shard_hosts": {"numa": {"policy": "node_round_robin"}}}
    with pytest.raises(PlanError, match="has one NUMA node"):
        planned([2], Inputs(cores=4, numa_nodes=(0,)), infrastructure=policy)


def test_more_shards_than_cores_are_refused_with_the_numbers(planned: Any) -> None:
    policy = {"shard_hosts": {"numa": {"policy": "cores_per_shard", "reserved_cores": 2}}}
    assert planned([2], Inputs(cores=4, numa_nodes=(0,)), infrastructure=policy).points[0].numa
    with pytest.raises(PlanError, match=r"local has 4 cores, 2 of them reserved: .* give 3 data-bearing processes"):
        planned([1, 3], Inputs(cores=4, numa_nodes=(0,)), infrastructure=policy)

"""Members, zones and shards that differ from one another: what may be said, and what is refused where."""

import pytest

from tests.unit.experiment.lab import Lab

HEAD = """\
microshard: 1
name: members
topology:
"""
WORK = """\
workload:
  - measure: {engine: aggregate, pipeline: p, namespace: db.c}
"""


def replica_set(members: str) -> str:
    return f"{HEAD}  kind: replica_set\n  replica_set: {{members: {members}}}\n{WORK}"


def sharded(rest: str) -> str:
    collections = "  collections: [{namespace: db.c, shard_key: {a: 1, b: 1}}]\n"
    return f"{HEAD}  shards: {{count: 3, initial: 2}}\n{collections}{rest}{WORK}"


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ("[{}, {hidden: true, priority: 2}]", "1.priority: a hidden member has the priority 0, not 2"),
        ("[{}, {delay_seconds: 5, priority: 1}]", "1.priority: a delayed member has the priority 0, not 1"),
        ("[{}, {votes: 0, priority: 1}]", "1.priority: a member without a vote has the priority 0, not 1"),
        ("[{}, {arbiter: true, votes: 0}]", "1.votes: an arbiter has to vote"),
        ("[{}, {arbiter: true, block_compressor: zlib}]", "1.block_compressor: an arbiter bears no data"),
        ("[{}, {votes: 2}]", "1.votes: found the number 2, needs a whole number from 0 to 1"),
        ("[{}, {vote: 0}]", "1.vote: unknown key; did you mean `votes`?"),
        ("[{hidden: true}, {}]", ": the first member becomes the primary"),
        ("[{initial: false}, {}]", ": the first member becomes the primary"),
        ("[{}, {priority: 2}]", ": the first member becomes the primary, so no other has a higher priority"),
        ("[{}, {}, {}, {}, {}, {}, {}, {}]", ": at most 7 members vote"),
        ("8", ": found the number 8, needs a whole number from 1 to 7 or a list"),
        ("[{}, {mongod: {net: {port: 1}}}]", "1.mongod.net.port: mongod's net.port cannot be set here"),
    ],
)
def test_a_member_that_cannot_be_is_refused_at_its_place(lab: Lab, members: str, problem: str) -> None:
    (headline,) = lab.wrong(replica_set(members))
    assert headline.startswith(f"x.yml:5:{headline.split(':')[2]}: topology.replica_set.members")
    assert problem in headline


def test_a_compressor_of_one_member_is_held_against_the_version(lab: Lab) -> None:
    text = replica_set("[{}, {block_compressor: zstd}]").replace(
        "topology:\n", 'topology:\n  mongodb: {source: tarball, version: "4.0"}\n'
    )
    (headline,) = lab.wrong(text)
    assert "members.1.block_compressor: zstd came with MongoDB 4.2" in headline


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("  zones: [{name: z, shards: [3]}]\n", "topology.zones.0.shards.0: there is no shard 3; 2 are added"),
        ("  zones: [{name: z, shards: [1]}, {name: z, shards: [2]}]\n", "topology.zones.1.name: z is given twice"),
        (
            "  zones: [{name: z, shards: [1], ranges: [{namespace: db.d}]}]\n",
            "topology.zones.0.ranges.0.namespace: db.d is not among topology.collections",
        ),
        (
            "  zones: [{name: z, shards: [1], ranges: [{namespace: db.c, lower: {b: 1}}]}]\n",
            "topology.zones.0.ranges.0.lower: needs the first fields of the shard key ['a', 'b'], not ['b']",
        ),
        ("  balancer: {window: {start: \"23:00\", stop: \"23:00\"}}\n", "stop: a window from 23:00 to 23:00 is none"),
        ("  balancer: {window: {start: \"24:00\", stop: \"01:00\"}}\n", "needs a time of day in quotes"),
        ("  balancer: {write_concern: {w: 2}}\n", "write_concern: goes with secondary_throttle: true"),
    ],
)  # fmt: skip
def test_what_a_cluster_cannot_be_is_refused_at_its_place(lab: Lab, rest: str, problem: str) -> None:
    (headline,) = lab.wrong(sharded(rest))
    assert problem in headline


def test_split_points_ascend_and_leave_no_room_for_zones(lab: Lab) -> None:
    def wrong(presplit: str) -> list[str]:
        text = sharded("  zones: [{name: z, shards: [1], ranges: [{namespace: db.c, lower: {a: 1}}]}]\n")
        return lab.wrong(text.replace("b: 1}}]", f"b: 1}}, presplit: {presplit}}}]"))

    assert "split_points needs points, ascending, none twice" in wrong("{policy: split_points, points: [2, 1]}")[0]
    assert "db.c is pre-split by split_points" in wrong("{policy: split_points, points: [1, 2]}")[0]


def test_a_list_of_members_can_be_an_axis(lab: Lab) -> None:
    text = (
        replica_set("1") + "matrix: {topology.replica_set.members: [1, [{}, {hidden: true, block_compressor: zlib}]]}\n"
    )
    one, two = lab.points(text)
    assert one.experiment.topology.replica_set.members == 1
    assert [m.block_compressor for m in two.experiment.topology.replica_set.members] == [None, "zlib"]  # type: ignore[union-attr]

"""Experiments on EC2 for the tests."""

FILE = """\
microshard: 1
name: on-ec2
infrastructure:
  ec2: {region: us-east-1, controller_cidrs: [192.0.2.7/32], placement_group: true}
  shard_hosts:
    instance_type: c5.4xlarge
    volumes:
      data: {type: gp3, size_gib: 512, iops: 6000, throughput_mibps: 250}
      journal: {type: io2, size_gib: 25, iops: 1000}
  client_hosts: {instance_type: c5.2xlarge}
topology:
  mongodb: {source: packages, version: "7.0"}
  collections: [{namespace: vosa.mot_results, shard_key: {_id: hashed}}]
workload:
  - load: {engine: insert, documents: 600000}
  - measure: {engine: aggregate, pipeline: mot_greenness}
matrix: {topology.shards.count: [1, 4]}
budget: {max_hours: 4}
"""
TWO_FLEETS = FILE.replace(
    "matrix: {topology.shards.count: [1, 4]}\n",
    """matrix:
  infrastructure.shard_hosts.instance_type: [c5.4xlarge, m5.4xlarge]
  topology.storage.block_compressor: [none, zlib]
repetitions: 2
""",
)
# A standalone mongod without data volumes.
SIMPLE = (
    (
        FILE[: FILE.index("    volumes:")]
        + FILE[FILE.index("  client_hosts:") : FILE.index("  collections:")]
        + FILE[FILE.index("workload:") :]
    )
    .replace("topology:\n", "topology:\n  kind: standalone\n")
    .replace("matrix: {topology.shards.count: [1, 4]}\n", "")
)

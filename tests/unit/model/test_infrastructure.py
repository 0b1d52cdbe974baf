"""Keys that speak of EC2: what is refused, where, and in which words."""

import pytest

from microshard.model.ec2_facts import ebs_types
from tests.unit.experiment.lab import BASE, Lab

EC2 = "infrastructure:\n  ec2: {%s}\n"
GROUP = "infrastructure:\n  shard_hosts: {%s}\n"


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        (EC2 % "region: us-est", "infrastructure.ec2.region", "a region such as us-east-1"),
        (EC2 % "region: eu-west-1, zones: [us-east-1a]", "infrastructure.ec2.zones", "us-east-1a is not in eu-west-1"),
        (EC2 % "zones: [us-east-1a, us-east-1a]", "infrastructure.ec2.zones", "one is given twice"),
        (EC2 % "vpc_id: vpc-0123abcd, subnet_id: subnet-0123abcd", "infrastructure.ec2.vpc_id", "has its VPC already"),
        (EC2 % "zones: [us-east-1a], subnet_id: subnet-0123abcd", "infrastructure.ec2.zones", "in one zone already"),
        (EC2 % "vpc_id: my-vpc", "infrastructure.ec2.vpc_id", "the id of a VPC"),
        (EC2 % "controller_cidrs: [0.0.0.0/0]", "infrastructure.ec2.controller_cidrs", "opens SSH to too many"),
        (EC2 % "controller_cidrs: ['2001:db8::/64']", "infrastructure.ec2.controller_cidrs", "IPv4"),
        (EC2 % "controller_cidrs: [here]", "infrastructure.ec2.controller_cidrs", "'here' does not appear"),
        (EC2 % "owner: 'a b'", "infrastructure.ec2.owner", "a name of letters"),
        (GROUP % "instance_type: big", "infrastructure.shard_hosts.instance_type", "an EC2 instance type such as"),
        (GROUP % "alternative_types: [c5.large]", "infrastructure.shard_hosts.alternative_types", "no instance_type"),
        (
            GROUP % "instance_type: c5.large, alternative_types: [c5.large]",
            "infrastructure.shard_hosts.alternative_types",
            "given twice",
        ),
        (GROUP % "market: sport", "infrastructure.shard_hosts.market", "did you mean `spot`?"),
        (GROUP % "threads_per_core: 3", "infrastructure.shard_hosts.threads_per_core", "found the number 3"),
        (GROUP % "image: windows", "infrastructure.shard_hosts.image", "al2023, ubuntu-22.04"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(lab: Lab, text: str, key: str, words: str) -> None:
    (problem,) = lab.problems(BASE + text)
    assert problem.key_path == key or problem.key_path.startswith(f"{key}.")
    assert words in problem.message


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        ("type: gp3, size_gib: 10, iops: 6000", "gp3 volumes of 10 GiB take 3000 to 5000 IOPS, not 6000"),
        ("type: gp3, size_gib: 10, iops: 5000", None),
        ("type: io1, size_gib: 10, iops: 501", "take 100 to 500 IOPS, not 501"),
        ("type: io2, size_gib: 10, iops: 10000", None),
        ("type: io2, size_gib: 10", "io2 volumes need provisioned IOPS"),
        ("type: standard, iops: 100", "standard volumes take no provisioned IOPS"),
        ("type: gp3, iops: 3000, throughput_mibps: 751", "take 125 to 750 MiB/s with 3000 IOPS, not 751"),
        ("type: gp3, iops: 3000, throughput_mibps: 750", None),
        ("type: sc1, size_gib: 124", "sc1 volumes have 125 to 16384 GiB"),
        ("type: sc1, size_gib: 125", None),
    ],
)
def test_a_volume_beyond_what_its_type_has_and_at_its_limit(lab: Lab, volume: str, words: str | None) -> None:
    text = BASE + GROUP % f"volumes: {{data: {{{volume}}}}}"
    if words is None:
        lab.load(text)
    else:
        assert words in lab.problems(text)[0].message


@pytest.mark.parametrize(
    ("kind", "gib", "iops", "rates"),
    [("gp2", 100, None, (300, 128)), ("gp2", 8000, None, (16000, 250)), ("gp3", 100, None, (3000, 125)),
     ("io1", 500, 1000, (1000, 250)), ("io1", 1280, 64000, (64000, 1000)), ("io2", 256, 16000, (16000, 4000)),
     ("st1", 1024, None, (500, 250)), ("standard", 512, None, (200, 90))],
)  # fmt: skip
def test_what_a_volume_delivers(kind: str, gib: int, iops: int | None, rates: tuple[int, float]) -> None:
    limits = ebs_types()[kind]
    assert (limits.iops_of(gib, iops), limits.mibps_of(gib, iops, None)) == rates


@pytest.mark.parametrize("image", ["debian-12", "ami-0123456789abcdef0", "'ssm:/my/{arch}'", "'name:mine-*'"])
def test_images(lab: Lab, image: str) -> None:
    loaded = lab.load(BASE + GROUP % f"image: {image}")
    assert loaded.experiment.infrastructure.shard_hosts.image == image.strip("'")

"""Limits of volumes, instances, RAM and quotas."""

import pytest

from microshard.backends.ec2.account import Quota, quota_kind
from microshard.backends.ec2.limits import limit_violations, package_violations
from microshard.backends.ec2.spec import GroupSpec, VolumeSpec, group_spec
from microshard.model.infrastructure import HostGroup


def group(type_: str = "c5.4xlarge", *volumes: VolumeSpec, count: int = 1, name: str = "shard_hosts") -> GroupSpec:
    return GroupSpec(name, count, (type_,), volumes)


@pytest.mark.parametrize(
    ("instance", "volume", "found"),
    [
        ("m5.24xlarge", VolumeSpec("data", "instance_store", 100), "has no instance store disks, 1 are requested"),
        ("m5d.2xlarge", VolumeSpec("data", "instance_store", 280), "disks of m5d.2xlarge have 279 GiB each"),
        ("m5.large", VolumeSpec("data", "instance_store", 60), "; types that have them: m5ad.large, "),
        ("m5d.2xlarge", VolumeSpec("data", "instance_store", 279), None),
        ("c4.8xlarge", VolumeSpec("data", "io1", 800, 32001), "not built on Nitro: of 32001 IOPS"),
        ("m5.24xlarge", VolumeSpec("data", "io1", 800, 32001), None),
        ("m5.24xlarge", VolumeSpec("data", "standard", 10), None),
    ],
)
def test_what_an_instance_does_not_have_or_deliver(instance: str, volume: VolumeSpec, found: str | None) -> None:
    messages = [violation.message for violation in limit_violations([group(instance, volume)])]
    assert any(found in m for m in messages) if found else messages == []


@pytest.mark.parametrize(
    ("versions", "image", "instance", "found"),
    [
        (["6.0"], "al2023", "c5.large", "6.0 has no packages for al2023 on x86_64; images that have it: ubuntu-22.04"),
        (["6.0.3"], "ubuntu-22.04", "c5.large", "first release there is 6.0.4"),
        (["8.0"], "debian-12", "c6g.large", "no packages for debian-12 on arm64; images that have it: al2023, ubuntu"),
        (["5.0"], "al2023", "c5.large", "no image has it; use source tarball; versions al2023 has: 7.0, 8.0"),
        (["7.0", "8.0.4"], "al2023", "c6g.large", None),
        (["6.0.4"], "ubuntu-22.04", "c5.large", None),
        (["5.0"], "ami-0123456789abcdef0", "c5.large", None),
    ],
)
def test_packages_of_mongodb_by_version_image_and_processor(
    versions: list[str], image: str, instance: str, found: str | None
) -> None:
    groups = [GroupSpec("shard_hosts", 1, (instance,), image=image)]
    violations = list(package_violations(groups, versions))
    assert [(v.key, v.severity) for v in violations] == (
        [("infrastructure.shard_hosts.image", "error")] if found else []
    )
    assert found is None or found in violations[0].message


def test_volumes_beyond_the_instances_ebs_limit_are_warnings() -> None:
    found = limit_violations([group("c4.4xlarge", VolumeSpec("data", "io2", 500, 30000))])
    assert [v.severity for v in found] == ["warning", "warning"]
    assert "16000" in found[0].message
    burst = limit_violations([group("c5.large", VolumeSpec("data", "gp3", 500, 10000))])
    assert "4000, and 20000 for half an hour" in burst[0].message


def test_more_volumes_than_an_instance_takes() -> None:
    volumes = {"data": {"count": 24, "type": "gp3", "size_gib": 720, "policy": "raid0"}}
    more = {**volumes, "journal": {"count": 3, "policy": "per_shard"}}
    many = HostGroup.model_validate({"instance_type": "c5.large", "volumes": more})
    assert "27 volumes beside the root volume are requested; c5.large takes 26" in str(
        limit_violations([group_spec("shard_hosts", many)])
    )


def test_quota_counts_all_hosts() -> None:
    groups = [group(count=2), group("c5.large", name="client_hosts")]
    kind = ("Standard", "on_demand")
    assert limit_violations(groups, quotas={kind: Quota("L-1", 44, 10)}) == []
    (violation,) = limit_violations(groups, quotas={kind: Quota("L-1", 43, 10)})
    assert violation.severity == "error"
    assert violation.message.startswith("34 vCPUs of Standard on demand")
    assert limit_violations(groups, quotas={("Standard", "spot"): Quota("L-1", 1, 0)}) == []


def test_quotas_of_other_kinds_and_markets_are_kept_apart() -> None:
    groups = [group("x1e.xlarge"), GroupSpec("client_hosts", 2, ("c5.large",), market="spot_or_on_demand")]
    quotas = {("X", "on_demand"): Quota("L-X", 4, 0), ("Standard", "spot"): Quota("L-S", 3, 0)}
    (violation,) = limit_violations(groups, quotas=quotas)
    assert (violation.severity, violation.message[:21]) == ("warning", "4 vCPUs of Standard s"), (
        "falls back to on demand"
    )


@pytest.mark.parametrize(
    ("type_", "kind"),
    [("c5.large", "Standard"), ("i4i.large", "Standard"), ("im4gn.large", "Standard"), ("x2idn.16xlarge", "X"),
     ("u-6tb1.metal", "High Memory"), ("g5.xlarge", "G and VT"), ("hpc7g.4xlarge", "HPC"), ("mac1.metal", "Standard")],
)  # fmt: skip
def test_the_quota_a_type_counts_for(type_: str, kind: str) -> None:
    assert quota_kind(type_) == kind


@pytest.mark.parametrize(("cache", "severity"), [(20000, None), (30000, "warning"), (33000, "error")])
def test_caches_against_ram(cache: float, severity: str | None) -> None:
    found = limit_violations([group()], cache_mib={"shard_hosts": cache})  # 32,768 MiB
    assert [v.severity for v in found] == ([severity] if severity else [])


def test_an_unknown_type_is_a_warning_with_similar_names() -> None:
    (violation,) = limit_violations([group("c5.4xlarg")])
    assert (violation.severity, "c5.4xlarge" in violation.message) == ("warning", True)

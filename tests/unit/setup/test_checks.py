"""What set-up says about machines that lack something."""

import dataclasses

import pytest
from setup.checks import Facts, cpu_flags, distribution_family, notes, stoppers, wheel_obstacle

DEBIAN_12 = Facts(
    python=(3, 11),
    system="Linux",
    machine="x86_64",
    family="debian",
    glibc=(2, 36),
    cpu_flags=frozenset({"sse4_2", "avx", "avx2"}),
    missing_modules=(),
    missing_libraries=(),
    free_bytes=20_000_000_000,
    own_mongod=None,
    own_mongod_runs=False,
)
OWN = "MICROSHARD_MONGOD=/path/to/mongod"


def machine(**differences: object) -> Facts:
    return dataclasses.replace(DEBIAN_12, **differences)  # type: ignore[arg-type]  # keywords of one test each


def test_a_complete_machine_meets_no_complaint() -> None:
    assert stoppers(DEBIAN_12, new_environment=True) == []
    assert wheel_obstacle(DEBIAN_12) == ""
    assert notes(DEBIAN_12) == []


def test_debian_without_its_venv_package_is_reported_the_package_of_its_python() -> None:
    (problem,) = stoppers(machine(missing_modules=("ensurepip",)), new_environment=True)
    assert "ensurepip" in problem
    assert "apt install python3.11-venv" in problem


def test_other_systems_without_venv_are_reported_to_name_a_complete_python() -> None:
    (problem,) = stoppers(machine(missing_modules=("venv", "ensurepip"), family="other"), new_environment=True)
    assert "venv and ensurepip" in problem
    assert "make PYTHON=" in problem


def test_what_makes_the_environment_is_not_requested_once_it_is_made() -> None:
    assert stoppers(machine(missing_modules=("ensurepip",), free_bytes=0), new_environment=False) == []


def test_a_full_disk_is_found_before_anything_is_downloaded() -> None:
    (problem,) = stoppers(machine(free_bytes=100_000_000), new_environment=True)
    assert "0.1 GB are free here, 1.2 GB are needed" in problem


def test_a_mongod_of_ones_own_that_cannot_be_run_is_named() -> None:
    (problem,) = stoppers(machine(own_mongod="/opt/none", own_mongod_runs=False), new_environment=False)
    assert "MICROSHARD_MONGOD=/opt/none" in problem


@pytest.mark.parametrize(
    ("libraries", "package", "named"),
    [
        (("libssl.so.3", "libcrypto.so.3"), "apt install libssl3.", "OpenSSL 3"),
        (("libcurl.so.4",), "apt install libcurl4.", "libcurl.so.4"),
    ],
)
def test_missing_libraries_are_named_with_their_package(libraries: tuple[str, ...], package: str, named: str) -> None:
    obstacle = wheel_obstacle(machine(missing_libraries=libraries))
    assert package in obstacle
    assert named in obstacle
    assert OWN in obstacle


def test_fedora_is_reported_its_own_package_names() -> None:
    assert "dnf install openssl-libs." in wheel_obstacle(machine(missing_libraries=("libssl.so.3",), family="fedora"))


def test_a_processor_without_avx_is_reported_of_virtual_machines_and_older_servers() -> None:
    obstacle = wheel_obstacle(machine(cpu_flags=frozenset({"sse4_2"})))
    assert "AVX" in obstacle
    assert "-cpu host" in obstacle
    assert OWN in obstacle


def test_an_unknown_processor_is_given_the_benefit_of_the_doubt() -> None:
    assert wheel_obstacle(machine(cpu_flags=None)) == ""


def test_arm_has_a_wheel_from_armv8_2_on() -> None:
    arm = machine(machine="aarch64", cpu_flags=frozenset({"fp", "asimd", "atomics"}))
    assert wheel_obstacle(arm) == ""
    old = dataclasses.replace(arm, cpu_flags=frozenset({"fp", "asimd"}))
    assert "ARMv8.2" in wheel_obstacle(old)


@pytest.mark.parametrize(
    ("differences", "named"),
    [
        ({"machine": "riscv64"}, "Linux on riscv64"),
        ({"system": "Darwin", "machine": "arm64", "glibc": ()}, "Darwin on arm64"),
        ({"glibc": ()}, "without the GNU C library"),
        ({"glibc": (2, 31)}, "glibc 2.34 or newer, found 2.31"),
    ],
)
def test_machines_without_a_wheel_are_reported_how_to_bring_their_own(
    differences: dict[str, object], named: str
) -> None:
    obstacle = wheel_obstacle(machine(**differences))
    assert named in obstacle
    assert OWN in obstacle


def test_a_python_newer_than_ansible_supports_is_noted() -> None:
    assert "3.14" in notes(machine(python=(3, 14)))[0]


def test_facts_are_read_from_the_kernels_and_the_distributions_files() -> None:
    assert cpu_flags("processor\t: 0\nflags\t\t: fpu avx\n") == frozenset({"fpu", "avx"})
    assert cpu_flags("processor\t: 0\nFeatures\t: fp atomics\n") == frozenset({"fp", "atomics"})
    assert cpu_flags("") is None
    assert distribution_family('NAME="X"\nID=linuxmint\nID_LIKE="ubuntu debian"\n') == "debian"
    assert distribution_family('ID="rocky"\nID_LIKE="rhel centos fedora"\n') == "fedora"
    assert distribution_family("ID=alpine\n") == "other"

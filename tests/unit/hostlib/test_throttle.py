import pytest

from microshard.hostlib.throttle import Controller, Limits, NoControllerError, controller

_V1 = ["read_bps", "write_bps", "read_iops", "write_iops"]


def test_version_1_is_found_by_its_blkio_mount_and_limits_stand_in_its_root(tmp_path):
    for name in _V1:
        (tmp_path / f"blkio.throttle.{name}_device").touch()
    mounts = f"cgroup2 /nowhere cgroup2 rw 0 0\ncgroup {tmp_path} cgroup rw,relatime,blkio 0 0\n"
    found = controller(mounts)
    assert found == Controller(1, tmp_path)
    assert found.group("run.p01") == tmp_path


def test_version_2_needs_the_io_controller_and_gives_a_point_its_own_group(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpu io memory\n")
    (tmp_path / "cgroup.subtree_control").touch()
    found = controller(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n")
    assert found == Controller(2, tmp_path)
    assert found.group("run.p01") == tmp_path / "microshard.run.p01"


@pytest.mark.parametrize("controllers", ["cpu memory\n", None])
def test_a_machine_without_a_block_controller_is_reported_so(tmp_path, controllers):
    if controllers is not None:
        (tmp_path / "cgroup.controllers").write_text(controllers)
    with pytest.raises(NoControllerError, match="neither cgroup v1 blkio nor io in cgroup v2"):
        controller(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n")


def test_a_limit_is_read_back_from_io_max(tmp_path):
    group = tmp_path / "microshard.r.p01"
    group.mkdir()
    (group / "io.max").write_text(
        "8:0 rbps=max wbps=max riops=7 wiops=max\n7:0 rbps=1048576 wbps=max riops=150 wiops=1\n"
    )
    found = Controller(2, tmp_path).limits("7:0", "r.p01")
    assert found == {"rbps": 1048576, "wbps": None, "riops": 150, "wiops": 1}


def test_reads_and_writes_are_limited_alike():
    assert Limits(150, None).by_key() == {"rbps": None, "wbps": None, "riops": 150, "wiops": 150}

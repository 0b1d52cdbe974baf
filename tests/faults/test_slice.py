"""A slice of every campaign, another one each day; `make faults` runs them whole."""

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.embedded.lab import small_cluster
from tests.faults import conversations, definitions, disk, endless, full, images, kills, router
from tests.faults.table import Row

SEED = datetime.date.today().toordinal()


def clean(rows: list[Row]) -> None:
    wrong = [f"{row.fault}, {row.where}: {item}" for row in rows for item in row.lost + row.left]
    assert not wrong, f"seed {SEED}: " + "\n".join(wrong[:10])


def test_wrong_experiment_files(tmp_path: Path) -> None:
    clean(definitions.campaign(SEED, 100, tmp_path))


@pytest.mark.long
def test_very_many_wrong_experiment_files(tmp_path: Path) -> None:
    rows = definitions.campaign(SEED, 1000, tmp_path)
    clean(rows)
    assert sum(row.times for row in rows) >= 1000


@pytest.mark.long
def test_fuzzing_the_loader_by_its_coverage(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris has no wheel for this Python")
    command = [sys.executable, "-m", "tests.faults.fuzz_loader", "30", str(tmp_path / "corpus")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "DONE" in done.stderr


@pytest.mark.long
@pytest.mark.cluster
def test_hostile_clients(tmp_path: Path) -> None:
    with small_cluster(tmp_path) as cluster:
        clean(router.campaign(cluster, SEED, each=12, connections=400))
        clean([conversations.campaign(cluster, SEED, commands=400)])


@pytest.mark.long
@pytest.mark.cluster
def test_very_many_hostile_clients(tmp_path: Path) -> None:
    with small_cluster(tmp_path) as cluster:
        clean(router.campaign(cluster, SEED, each=150))
        clean([conversations.campaign(cluster, SEED, commands=2500)])


def test_disks_that_fail_and_files_that_end_anywhere(tmp_path: Path) -> None:
    rows = disk.campaign(tmp_path)
    clean(rows)
    assert sum(row.times for row in rows) > 500


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_whole_run_on_a_disk_that_gives_way(tmp_path: Path) -> None:
    fault = ("full", "read-only")[SEED % 2]
    clean([full.whole_run(tmp_path / "run", fault, ("deploy", "measure", "between")[SEED // 2 % 3])])


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(1200)
def test_bad_luck_with_data_images(tmp_path: Path) -> None:
    damage = list(images.DAMAGE)[SEED % len(images.DAMAGE)]
    clean(list(images.campaign(tmp_path / "images", print, damage=[damage])))
    if os.geteuid() == 0:
        clean([full.whole_run(tmp_path / "full", "full", full.OF_IMAGES[SEED % 2], images=True)])


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(1200)
def test_many_kills(tmp_path: Path) -> None:
    rows = kills.campaign(SEED, tmp_path, seconds=30)
    clean(rows)
    assert sum(row.times for row in rows) >= 4


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_many_deploys_in_a_row(tmp_path: Path) -> None:
    clean([endless.campaign(tmp_path, 10)])


def test_growth_is_seen(tmp_path: Path) -> None:
    flat = [endless.Sample(rss_mib=100 + n % 3, files=20, temporary=3, ports=2) for n in range(40)]
    assert list(endless.grown(flat)) == []
    leaking = [endless.Sample(rss_mib=100 + n, files=20 + n, temporary=3, ports=2) for n in range(40)]
    assert [word.split()[0] for word in endless.grown(leaking)] == ["rss_mib", "files"]


def test_a_row_with_something_lost_is_not_clean() -> None:
    with pytest.raises(AssertionError, match="seed"):
        clean([Row("fault", "somewhere", 1, lost=["a point"])])

"""A run leaves as one file and arrives as it was; what is not whole or not honest does not arrive at all."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from microshard.analysis.comparison import compare
from microshard.cli.group import microshard
from microshard.records.bundle import MANIFEST, SUFFIX, BadBundleError, export, unpack
from microshard.records.redaction import Redactor, for_run
from microshard.records.run_folder import RunFolder
from tests.report.make_run import Shape, make_run

Member = tuple[tarfile.TarInfo, bytes]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.open(make_run(tmp_path / "runs", Shape(shards=(1, 2), repetitions=3, drift=False)))


@pytest.fixture
def bundle(run: RunFolder, tmp_path: Path) -> Path:
    path = tmp_path / f"x{SUFFIX}"
    export(run, path, Redactor({}))
    return path


def _members(bundle: Path) -> list[Member]:
    with tarfile.open(bundle) as archive:
        return [(m, f.read() if (f := archive.extractfile(m)) else b"") for m in archive]


def _repack(bundle: Path, members: list[Member]) -> Path:
    with tarfile.open(bundle, "w:gz") as archive:
        for header, content in members:
            header.size = len(content) if header.isreg() else 0
            archive.addfile(header, io.BytesIO(content))
    return bundle


def test_a_run_arrives_as_it_was(run: RunFolder, bundle: Path, tmp_path: Path) -> None:
    arrived = unpack(bundle, tmp_path / "elsewhere")
    for path in (run / "results").rglob("*.json"):
        assert (arrived / path.relative_to(run.path).as_posix()).read_bytes() == path.read_bytes()
    origin = arrived.marker().imported
    assert origin is not None
    assert origin.file == bundle.name
    found = compare(run.path, arrived.path)
    assert [row.change.verdict for row in found.rows] == ["no difference"] * 2
    assert not found.definition


def test_two_exports_are_the_same_file(run: RunFolder, bundle: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    export(run, again, Redactor({}))
    assert again.read_bytes() == bundle.read_bytes()


def test_what_is_private_is_in_no_byte_of_it(run: RunFolder, tmp_path: Path) -> None:
    planted = ["203.0.113.77", "AKIAIOSFODNN7EXAMPLE", "210987654321", "hunter22x", "janedoe", "Zm9vYmFyYmF6cXV4"]
    text = (
        "mongod on 203.0.113.77, AKIAIOSFODNN7EXAMPLE, arn:aws:iam::210987654321:user/x, "
        "mongodb://lab:hunter22x@h/, /home/janedoe/x, Zm9vYmFyYmF6cXV4"
    )
    (run / "secrets").mkdir()
    (run / "secrets" / "keyfile").write_text("Zm9vYmFyYmF6cXV4")
    (run / "logs").mkdir(exist_ok=True)
    files = ("experiment.yml", "journal.jsonl", "report/report.html", "logs/ansible.log", "ledger.jsonl", "plan.json")
    for name in files:
        path = run / name
        old = path.read_text() if path.exists() else "{}"
        path.write_text(json.dumps({"note": text, **json.loads(old)}) if name == "plan.json" else f"{old}\n{text}\n")
    (run / "telemetry" / "p01").mkdir(parents=True, exist_ok=True)
    (run / "telemetry" / "p01" / "host-203.0.113.77.jsonl").write_text(json.dumps({"host": text}) + "\n")
    path = tmp_path / "private.tgz"
    export(run, path, for_run(run.path, tmp_path))
    content = gzip.decompress(path.read_bytes())
    found = [(w, content[max(0, at - 80) : at + 40]) for w in planted if (at := content.find(w.encode())) >= 0]
    assert not found
    assert str(tmp_path).encode() not in content
    names = [member.name for member, _ in _members(path)]
    assert "telemetry/p01/host-address1.jsonl" in names
    assert not [name for name in names if name.startswith(("logs", "ledger", "secrets", "points"))]


def test_a_bundle_cut_anywhere_is_refused_and_nothing_is_left(bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    runs = tmp_path / "elsewhere"
    for part in range(0, 100, 7):
        bundle.write_bytes(whole[: len(whole) * part // 100])
        with pytest.raises(BadBundleError, match=r"truncated|not a bundle|empty"):
            unpack(bundle, runs)
    assert list(runs.iterdir()) == []


def test_a_bundle_with_any_byte_changed_is_refused(bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    for place in range(100, len(whole) - 8, len(whole) // 25):
        bundle.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with pytest.raises(BadBundleError):
            unpack(bundle, tmp_path / "elsewhere")


def _altered(members: list[Member]) -> list[Member]:
    return [
        (h, c.replace(b'"valid": true', b'"valid":false') if h.name.startswith("results") else c) for h, c in members
    ]


def _link(members: list[Member]) -> list[Member]:
    header = tarfile.TarInfo(members[1][0].name)
    header.type, header.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return [members[0], (header, b""), *members[2:]]


def _climbing(name: str) -> Callable[[list[Member]], list[Member]]:
    def change(members: list[Member]) -> list[Member]:
        manifest = json.loads(members[0][1])
        old = members[1][0].name
        manifest["files"][name] = manifest["files"].pop(old)
        members[1][0].name = name
        return [(members[0][0], json.dumps(manifest).encode()), *members[1:]]

    return change


def _manifest(**changes: object) -> Callable[[list[Member]], list[Member]]:
    def change(members: list[Member]) -> list[Member]:
        manifest = json.loads(members[0][1]) | changes
        return [(members[0][0], json.dumps(manifest).encode()), *members[1:]]

    return change


BAD: dict[str, tuple[Callable[[list[Member]], list[Member]], str]] = {
    "altered": (_altered, "altered"),
    "a file more": (lambda members: [*members, (tarfile.TarInfo("results/p01/r9.json"), b"{}")], "not in the manifest"),
    "a file twice": (lambda members: [*members, members[1]], "not in the manifest"),
    "a file less": (lambda members: members[:-1], "truncated"),
    "a link": (_link, "link"),
    "climbing": (_climbing("../../evil"), "outside"),
    "climbing in the middle": (_climbing("results/../../evil"), "outside"),
    "absolute": (_climbing("/srv/evil"), "outside"),
    "of Windows": (_climbing("C:\\evil"), "outside"),
    "hidden": (_climbing(".bashrc"), "outside"),
    "newer": (_manifest(bundle=2, microshard="9.1"), "microshard 9.1"),
    "a run's name that climbs": (_manifest(run_id="../x"), "not a folder name"),
    "too large": (_manifest(files={"run.json": {"bytes": 1 << 40, "sha256": ""}}), "more than a run has"),
    "a negative size": (_manifest(files={"run.json": {"bytes": -1, "sha256": ""}}), "more than a run has"),
    "no files": (_manifest(files=7), "not a bundle"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bundle_that_is_not_honest_is_refused(bundle: Path, tmp_path: Path, case: str) -> None:
    change, message = BAD[case]
    _repack(bundle, change(_members(bundle)))
    runs = tmp_path / "a" / "b"
    with pytest.raises(BadBundleError, match=message):
        unpack(bundle, runs)
    assert list(runs.iterdir()) == []
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "a" / "evil").exists()


def test_something_else_is_not_a_bundle(tmp_path: Path) -> None:
    other = tmp_path / "x.tgz"
    _repack(other, [(tarfile.TarInfo("hello"), b"x")])
    with pytest.raises(BadBundleError, match=MANIFEST):
        unpack(other, tmp_path / "runs")
    other.write_text("no gzip at all")
    with pytest.raises(BadBundleError, match="damaged"):
        unpack(other, tmp_path / "runs")


def test_the_commands_from_list_to_rm(run: RunFolder, tmp_path: Path) -> None:
    here, there = ["--runs-dir", str(run.path.parent)], ["--runs-dir", str(tmp_path / "there")]
    bundle = tmp_path / "out.tgz"

    def call(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(microshard, list(arguments), standalone_mode=False)
        assert not result.exception or code, result.output
        return result.output

    assert run.run_id in call("list", *here)
    assert "6 of" in call("list", *here)
    call("export", run.run_id, "-o", str(bundle), *here)
    refused = CliRunner().invoke(microshard, ["export", run.run_id, "-o", str(bundle), *here])
    assert "--force" in refused.output
    assert "Imported" in call("import", str(bundle), *there)
    with pytest.raises(BadBundleError, match="already exists"):
        CliRunner().invoke(microshard, ["import", str(bundle), *there], standalone_mode=False, catch_exceptions=False)
    assert "imported" in call("show", *there)
    assert json.loads(call("list", "--json", *there))[0]["state"] == "imported"
    kept = CliRunner().invoke(microshard, ["rm", run.run_id, *there], input="n\n", standalone_mode=False)
    assert "Remove" in kept.output
    assert run.run_id in call("list", *there)
    call("rm", "-y", run.run_id, *there)
    assert "No runs" in call("list", *there)


@pytest.mark.parametrize(
    ("name", "content"),
    [("experiment.yml", "a: [1"), ("results/", "no JSON"), ("plan.json", '{"points": 7}'), ("lock.json", "[]")],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(
    run: RunFolder, tmp_path: Path, name: str, content: str
) -> None:
    path = next(iter(sorted((run / "results").rglob("*.json")))) if name == "results/" else run / name
    path.write_text(content, encoding="utf-8")
    bundle = tmp_path / f"y{SUFFIX}"
    export(run, bundle, Redactor({}))
    with pytest.raises(BadBundleError, match=f"{path.name} in it cannot be read"):
        unpack(bundle, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_page_from_elsewhere_is_never_shown(run: RunFolder, tmp_path: Path) -> None:
    (run / "report").mkdir(exist_ok=True)
    (run / "report" / "report.html").write_text("<script>alert(1)</script>", encoding="utf-8")
    bundle = tmp_path / f"y{SUFFIX}"
    export(run, bundle, Redactor({}))
    there = tmp_path / "there"
    shown = CliRunner().invoke(microshard, ["import", str(bundle), "--runs-dir", str(there)], standalone_mode=False)
    page = there / run.run_id / "report" / "report.html"
    assert str(page) in shown.output.replace("\n", "")
    assert "alert(1)" not in page.read_text(encoding="utf-8")

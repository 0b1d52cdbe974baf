import datetime
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from setup import audit

HASH = "--hash=sha256:" + "0" * 64
LOCK = f"something==1.0 \\\n    {HASH}\nother==2.0 \\\n    {HASH}\n"
KNOWN = {"id": "GHSA-1", "aliases": ["CVE-2026-1"], "summary": "bad", "affected": []}
TODAY = datetime.date(2026, 5, 1)


@pytest.fixture
def osv() -> Iterator[str]:
    """OSV's query address, of a server that knows something of one package."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({"vulns": [KNOWN]} if query["package"]["name"] == "something" else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "some.lock"
    path.write_text(LOCK, encoding="utf-8")
    return path


def accepted(folder: Path, until: str, **more: str) -> str:
    path = folder / "audit.toml"
    keys = {"id": "CVE-2026-1", "package": "something", "reason": "never called"} | more
    lines = [f'{key} = "{value}"' for key, value in keys.items()]
    path.write_text("\n".join(["[[accepted]]", *lines, f"until = {until}\n"]), encoding="utf-8")
    return str(path)


def test_a_known_vulnerability_fails_unless_it_is_accepted(
    lock: Path, osv: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(lock), "--service", "osv", "--osv-url", osv]
    assert audit.main(arguments) == 1
    said = capsys.readouterr().out
    assert "VULNERABLE something 1.0: CVE-2026-1, GHSA-1" in said
    assert "2 packages of 1 lock files" in said
    assert audit.main([*arguments, "--accepted", accepted(tmp_path, "2999-01-01")]) == 0
    assert "never called" in capsys.readouterr().out


def test_an_index_that_does_not_answer_is_reported_and_fails_nothing(
    lock: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main([str(lock), "--service", "osv", "--osv-url", "http://127.0.0.1:9/v1/query"]) == 0
    assert "NOT AUDITED" in capsys.readouterr().out


def test_a_lock_file_that_cannot_be_read_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "some.lock"
    path.write_text("something>=1.0\n", encoding="utf-8")
    assert audit.main([str(path), "--service", "osv", "--osv-url", "http://127.0.0.1:9/v1/query"]) == 1
    assert "audit stopped: pip-audit" in capsys.readouterr().err


def known(package: str) -> audit.Answer:
    return audit.read_answer([{"name": package, "version": "1.0", "vulns": [KNOWN | {"fix_versions": ["1.1"]}]}])


def test_what_is_accepted_is_so_for_one_package_and_until_a_day(tmp_path: Path) -> None:
    reasons = audit.read_accepted(Path(accepted(tmp_path, "2026-05-01")))
    verdicts = {
        "in time": list(audit.judged(known("something"), reasons, TODAY)),
        "late": list(audit.judged(known("something"), reasons, TODAY + datetime.timedelta(1))),
        "another package": list(audit.judged(known("else"), reasons, TODAY)),
    }
    assert {name: any(fails for fails, _ in found) for name, found in verdicts.items()} == {
        "in time": False,
        "late": True,
        "another package": True,
    }
    assert "mended in 1.1" in verdicts["another package"][0][1]
    assert "not found any more" in verdicts["another package"][1][1]


@pytest.mark.parametrize("wrong", [{"reason": " "}, {"why": "x"}])
def test_accepting_needs_a_reason(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(audit.AuditError):
        audit.read_accepted(Path(accepted(tmp_path, "2026-05-01", **wrong)))


def test_packages_nothing_is_known_of_are_named() -> None:
    answer = audit.read_answer(
        [{"name": "rare", "skip_reason": "not found"}, {"name": "x", "version": "1", "vulns": []}]
    )
    assert (answer.audited, answer.skipped) == (1, ["rare"])
    assert list(audit.judged(answer, [], TODAY)) == [(False, "nothing is known of rare")]


def test_the_shipped_list_of_accepted_ones_can_be_read() -> None:
    audit.read_accepted(audit.ACCEPTED)

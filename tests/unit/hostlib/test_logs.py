import json
from pathlib import Path

from microshard.hostlib import logs


def entry(severity: str, message: str) -> str:
    return json.dumps({"t": {"$date": "2026-01-01"}, "s": severity, "c": "STORAGE", "msg": message, "attr": {"n": 1}})


def test_the_last_lines_are_short_and_errors_before_them_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "mongod.log"
    lines = [entry("E", "disk full"), *(entry("I", f"line {n}") for n in range(20)), "*** aborting ***" + "x" * 999]
    log.write_text("\n".join(lines))
    found = logs.last_lines(str(log), lines=3)
    assert found[0] == 'E STORAGE  disk full {"n":1}'
    assert found[1:3] == ['I STORAGE  line 18 {"n":1}', 'I STORAGE  line 19 {"n":1}']
    assert found[3].startswith("*** aborting ***")
    assert len(found[3]) == 300


def test_what_was_said_before_the_log_was_opened_is_found(tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_text("Unrecognized option: x\n")
    assert logs.last_lines(str(tmp_path / "mongod.log"), str(tmp_path / "stdout.log")) == ["Unrecognized option: x"]
    assert logs.last_lines(str(tmp_path / "neither")) == []

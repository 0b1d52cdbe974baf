import json

from microshard.backends.local_processes import last_lines


def _line(severity, text, **attributes):
    entry = {"t": {"$date": "2026-01-01T00:00:00"}, "s": severity, "c": "STORAGE", "id": 1, "msg": text}
    return json.dumps(entry | ({"attr": attributes} if attributes else {}), separators=(",", ":"))


def test_the_reason_is_shown_and_not_the_backtrace_after_it(tmp_path):
    log = tmp_path / "mongod.log"
    lines = [_line("I", "hello"), _line("E", "WiredTiger error", message="No space left on device")]
    log.write_text("\n".join(lines + [_line("I", "Frame")] * 100) + "\n")
    (only,) = last_lines(log)
    assert only.endswith('E STORAGE WiredTiger error {"message": "No space left on device"}')


def test_without_an_error_the_last_lines_are_shown(tmp_path):
    log = tmp_path / "mongod.log"
    log.write_text("\n".join(_line("I", f"line {n}") for n in range(9)) + "\nnot json\n")
    assert [line.split()[-1] for line in last_lines(log)] == ["5", "6", "7", "8", "json"]


def test_a_missing_log_has_no_lines(tmp_path):
    assert last_lines(tmp_path / "none") == []

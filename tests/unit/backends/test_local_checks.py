"""What the doctor says of this machine, and of one that lacks things."""

import resource

from microshard import this_machine
from microshard.backends import local_checks
from microshard.embedded.binary import BinaryError
from microshard.hostlib import host_counters
from microshard.run.backend import CheckRequest


def test_this_machine_is_examined_without_a_trace(tmp_path):
    found = {f.what: f for f in local_checks.examine(CheckRequest(runs=tmp_path / "runs"))}
    assert {"Python", "open files", "ports", "disk", "RAM", "mongod", "Java", "YCSB", "AWS credentials"} <= set(found)
    assert all(f.remedy for f in found.values() if f.state != "ok")
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_wrong_and_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("microshard.this_machine.free_disk_bytes", lambda _: 10**6)
    monkeypatch.setattr("microshard.this_machine.memory_mib", lambda *_: 100.0)

    def no_mongod():
        raise BinaryError("the processor lacks AVX")

    monkeypatch.setattr(local_checks, "find_mongod", no_mongod)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    found = {f.what: f for f in local_checks.examine(CheckRequest(runs=tmp_path))}
    assert [found[what].state for what in ("disk", "RAM", "mongod", "open files")] == ["wrong"] * 3 + ["note"]
    assert "AVX" in found["mongod"].detail
    assert "limits.conf" in found["open files"].remedy


def test_memory_is_capped_by_the_control_groups_above_too(tmp_path, monkeypatch):
    (tmp_path / "user" / "shell").mkdir(parents=True)
    (tmp_path / "user" / "memory.max").write_text(f"{1 << 30}\n")
    (tmp_path / "user" / "shell" / "memory.max").write_text("max\n")
    monkeypatch.setattr(host_counters, "control_groups", lambda _: {"": str(tmp_path / "user" / "shell")})
    assert this_machine.memory_mib() == 1024


def test_without_ipv4_on_loopback_it_is_said_so(monkeypatch):
    monkeypatch.setattr("microshard.backends.local._LOOPBACK", "192.0.2.1")
    found = local_checks.check_ports()
    assert (found.state, "has no address 192.0.2.1" in found.detail) == ("wrong", True)


def test_ports_that_are_all_taken(monkeypatch):
    def none(_):
        raise OSError("no 64 free ports in a row")

    monkeypatch.setattr("microshard.backends.local_checks.port_block", none)
    assert local_checks.check_ports().state == "wrong"


def test_an_experiment_that_cannot_run_here_is_wrong(tmp_path):
    file = tmp_path / "x.yml"
    file.write_text(
        "microshard: 1\nname: x\ntopology: {kind: standalone, mongodb: {source: path, path: /no}}\n"
        "workload:\n  - load: {engine: insert, documents: 10}\n"
        "  - measure: {engine: aggregate, pipeline: mot_greenness}\n",
        encoding="utf-8",
    )
    *_, last = local_checks.examine(CheckRequest(file, runs=tmp_path))
    assert last.what == str(file)
    assert last.state == "wrong"


def test_credentials_are_reported_by_where_they_come_from_and_not_shown(monkeypatch):
    none = local_checks.check_credentials()
    assert (none.state, none.detail) == ("note", "there are none")
    assert "aws configure" in none.remedy
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAPLANTED")
    half = local_checks.check_credentials()
    assert half.state == "note"
    assert "AWS_SECRET_ACCESS_KEY" in half.detail
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    there = local_checks.check_credentials()
    assert there.state == "ok"
    assert "(env)" in there.detail
    assert not any(secret in str(f) for f in (half, there) for secret in ("AKIAPLANTED", "planted-secret"))


def test_a_java_that_is_too_old_or_missing_says_what_to_install(tmp_path, monkeypatch):
    jvm = tmp_path / "bin" / "java"
    jvm.parent.mkdir()
    jvm.write_text("#!/bin/sh\n")
    jvm.chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    old = local_checks.check_java()
    assert old.state == "note"
    assert old.detail == f"11 ({jvm}); YCSB's client needs 17"
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.2"\n')
    new = local_checks.check_java()
    assert (new.state, new.detail) == ("ok", f"21 ({jvm})")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    none = local_checks.check_java()
    assert (none.state, none.detail) == ("note", "Java is not installed")
    assert "openjdk-17-jre-headless" in none.remedy

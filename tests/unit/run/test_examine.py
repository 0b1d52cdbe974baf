"""What the doctor says of this machine, and of one that lacks things."""

import resource

from microshard.doctor import Question
from microshard.embedded.binary import ProcessorUnsupported
from microshard.run import examine


def findings(question, check):
    return list(check(question))


def test_this_machine_is_examined_without_a_trace(tmp_path):
    found = {f.what: f for f in examine.examine(Question(runs=tmp_path / "runs"))}
    assert {"Python", "open files", "ports", "disk", "RAM", "mongod", "YCSB"} <= set(found)
    assert all(f.remedy for f in found.values() if f.state != "ok")
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_wrong_and_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("microshard.run.place.free_disk_bytes", lambda _: 10**6)
    monkeypatch.setattr("microshard.run.place.memory_mib", lambda *_: 100.0)

    def no_mongod():
        raise ProcessorUnsupported("the processor lacks AVX")

    monkeypatch.setattr(examine, "find_mongod", no_mongod)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    found = {f.what: f for f in examine.examine(Question(runs=tmp_path))}
    assert [found[what].state for what in ("disk", "RAM", "mongod", "open files")] == ["wrong"] * 3 + ["note"]
    assert "AVX" in found["mongod"].told
    assert "limits.conf" in found["open files"].remedy


def test_ports_that_are_all_taken(tmp_path, monkeypatch):
    def none(_):
        raise OSError("no 64 free ports in a row")

    monkeypatch.setattr("microshard.run.place.port_block", none)
    ((finding,)) = findings(Question(runs=tmp_path), examine._ports)
    assert finding.state == "wrong"


def test_an_experiment_that_cannot_run_here_is_wrong(tmp_path):
    file = tmp_path / "x.yml"
    file.write_text(
        "microshard: 1\nname: x\ntopology: {kind: standalone, mongodb: {source: path, path: /no}}\n"
        "workload:\n  - load: {engine: insert, documents: 10}\n"
        "  - measure: {engine: aggregate, pipeline: mot_greenness}\n",
        encoding="utf-8",
    )
    *_, last = examine.examine(Question(file, runs=tmp_path))
    assert last.what == str(file)
    assert last.state == "wrong"

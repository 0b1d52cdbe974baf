"""What must not leave this machine does not."""

import json
from pathlib import Path

import pytest

from microshard.records.redaction import Redactor, for_run

PRIVATE = {
    "an address": "mongod listens on 203.0.113.77 for all",
    "an IPv6 address": "peer 2001:db8::17 said",
    "a full IPv6 address": "peer 2001:db8:0:1:2:3:4:17 said",
    "a network card": "eth0 06:1f:aa:bb:cc:dd",
    "a host of AWS": "ec2-203-0-113-77.eu-west-1.compute.amazonaws.com",
    "a host inside AWS": "reached ip-10-1-2-3.ec2.internal",
    "an account in an ARN": "arn:aws:iam::210987654321:role/lab",
    "an account in a log": "caller account 210987654321",
    "an access key": "used AKIAIOSFODNN7EXAMPLE for it",
    "an instance": "i-0abcdef1234567890",
    "a volume": "vol-0abcdef1234567890",
    "a login in a URI": "mongodb://lab:s3cretw0rd@db1:27017/admin",
    "a mail address": "by jane.doe@example.org",
    "a home folder": "/home/janedoe/bench/x.yml",
    "a private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\nsecretline\n-----END RSA PRIVATE KEY-----",
    "a public key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIexample jane@laptop",
    "a password setting": "  password: hunter22x",
}
NEEDLES = (
    *("203.0.113.77", "2001:db8", "06:1f:aa", "203-0-113-77", "10-1-2-3", "210987654321", "AKIAIOSFODNN7EXAMPLE"),
    *("0abcdef1234567890", "s3cretw0rd", "example.org", "janedoe", "secretline", "AAAAC3Nza", "hunter22x"),
)
HARMLESS = (
    "127.0.0.1:27101",
    "::1",
    "0.0.0.0",  # noqa: S104 - nothing listens on it
    "MongoDB 6.0.5",
    "kernel 6.1.0-18-amd64",
    "08:30:00",
    "12:34:56.789",
    "0.123 12.5 1.2.3",
    "std::map",
    "topology.shards.count",
    "password: {}",
    "https://github.com/mongodb/mongo",
    "210987654321 bytes",
    "shard01/127.0.0.1:27101",
)


@pytest.mark.parametrize("name", PRIVATE)
def test_it_is_gone_from_a_text_and_from_json(name: str) -> None:
    private = PRIVATE[name]
    redact = Redactor({})
    for clean in (redact(private), redact.json(json.dumps({"message": private, "n": 1.5}))):
        assert not [needle for needle in NEEDLES if needle in clean], clean
        assert clean != private


@pytest.mark.parametrize("text", HARMLESS)
def test_what_says_nothing_stays(text: str) -> None:
    redact = Redactor({})
    assert redact(text) == text
    assert json.loads(redact.json(json.dumps({text: [text, 1]}))) == {text: [text, 1]}


def test_secret_members_vanish_whatever_they_hold() -> None:
    line = json.dumps({"password": "x1", "client_secret": "y2", "token": 'a"b', "passwordless": True, "tokens": 3})
    clean = json.loads(Redactor({}).json(line))
    assert clean == {
        "password": "(removed)", "client_secret": "(removed)", "token": "(removed)", "passwordless": True, "tokens": 3
    }  # fmt: skip


def test_the_same_thing_keeps_the_same_name() -> None:
    redact = Redactor({})
    assert redact("10.0.0.5 and 10.0.0.6") == "address1 and address2"
    assert redact("again 10.0.0.6") == "again address2"


def test_accounts_as_numbers_of_json() -> None:
    assert json.loads(Redactor({}).json('{"account": 210987654321, "bytes": 210987654321}')) == {
        "account": 0,
        "bytes": 210987654321,
    }


def test_a_run_knows_its_paths_hosts_user_and_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/people/janedoe")
    monkeypatch.setenv("LOGNAME", "janedoe")
    monkeypatch.setattr("socket.gethostname", lambda: "janes-desk.lab")
    run = tmp_path / "runs" / "quick-1"
    (run / "secrets").mkdir(parents=True)
    (run / "secrets" / "keyfile").write_text("Zm9vYmFyYmF6cXV4\nsecondlineofit\n")
    (run / "plan.json").write_text(
        json.dumps({"hosts": [{"name": "db-berlin", "address": "db-berlin.corp"}, {"name": "local"}]})
    )
    redact = for_run(run, tmp_path / "project")
    clean = redact(
        f"{run}/x {run.parent}/y {tmp_path}/project/z /srv/people/janedoe/a janedoe janes-desk.lab janes-desk "
        "db-berlin db-berlin.corp db-berlin-2 local Zm9vYmFyYmF6cXV4 secondlineofit"
    )
    assert clean == (
        "RUN/x RUNS/y PROJECT/z HOME/a user controller controller host1 host1 db-berlin-2 local (removed) (removed)"
    )

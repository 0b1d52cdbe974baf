"""mongos's options: they take effect, are refused, or are reported as having no effect."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from microshard.embedded import options
from microshard.embedded.options import Options, UsageError

CONFIG = ["--configdb", "cfg/127.0.0.1:27019"]


def _parse(*arguments: str) -> Options:
    return options.parse([*CONFIG, *arguments])


def _file(folder: Path, text: str) -> list[str]:
    path = folder / "mongos.conf"
    path.write_text(text, encoding="utf-8")
    return ["--config", str(path)]


def test_options_of_the_command_line_take_effect(tmp_path: Path) -> None:
    chosen = _parse(
        "--port=27117", "--bind_ip", "localhost,127.0.0.2", "--logpath", str(tmp_path / "log"), "--logappend",
        "--fork", "--pidfilepath", str(tmp_path / "pid"), "-vv", "--quiet", "--maxConns", "50",
        "--setParameter", "a=1", "--setParameter", "b=x=y", "--setParameter", f"microshardRouterPath={tmp_path}",
    )  # fmt: skip
    assert (chosen.config_servers, chosen.port) == ("cfg/127.0.0.1:27019", 27117)
    assert chosen.hosts == ("127.0.0.1", "127.0.0.2")
    assert (chosen.log_path, chosen.log_append, chosen.fork) == (tmp_path / "log", True, True)
    assert (chosen.verbosity, chosen.quiet, chosen.max_connections) == (2, True, 50)
    assert chosen.set_parameters == {"a": "1", "b": "x=y"}
    assert (chosen.router_path, chosen.pid_file) == (tmp_path, tmp_path / "pid")


@pytest.mark.parametrize(("argument", "level"), [("-v", 1), ("-vvvvv", 5), ("--verbose", 1), ("--verbose=vvv", 3)])
def test_verbosity_is_counted(argument: str, level: int) -> None:
    assert _parse(argument).verbosity == level


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    text = """
net: {port: 1, bindIp: 127.0.0.1, unixDomainSocket: {enabled: false}, compression: {compressors: zlib}}
sharding: {configDB: "cfg/127.0.0.1:27019"}
systemLog: {verbosity: 3, destination: file, path: /nowhere/log, logAppend: true}
setParameter: {a: true, b: 2}
security: {javascriptEnabled: false}
"""
    chosen = options.parse([*_file(tmp_path, text), "--port", "27018", "--setParameter", "b=3"])
    assert (chosen.port, chosen.verbosity, chosen.compressors) == (27018, 3, "zlib")
    assert chosen.set_parameters == {"a": "true", "b": "3"}
    assert chosen.log_path == Path("/nowhere/log")
    assert (chosen.router_arguments, chosen.without_effect) == (("--noscripting",), [])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--nonsense"], "unrecognised.*--nonsense"),
        (["--port"], "argument.*--port.*missing"),
        (["--port="], "invalid"),
        (["--port", "x"], "invalid"),
        (["--port", "70000"], "65535"),
        (["--fork=yes"], "any arguments"),
        (["--fork="], "any arguments"),
        (["--fork"], "--logpath"),
        (["--bind_ip", "0.0.0.0"], "loopback"),  # noqa: S104 - to be refused
        (["--bind_ip", "192.0.2.1"], "loopback"),
        (["--bind_ip_all"], "loopback"),
        (["--tlsMode", "preferTLS"], "preferTLS"),
        (["--tlsMode", "requireTLS", "--tlsCAFile", "/ca"], "needs --tlsCertificateKeyFile"),
        (["--tlsCAFile", "/ca"], "tlsMode requireTLS"),
        (["--clusterAuthMode", "x509"], "one machine"),
        (["--syslog"], "logs to a file"),
        (["--setParameter", "x"], "name=value"),
        (["--setParameter", "requireApiVersion=maybe"], "true or false"),
        (["--logRotate", "sometimes"], "unknown value"),
        (["--logRotate", "reopen"], "logAppend"),
        (["--configdb", "127.0.0.1:27019"], "replica set connection string"),
        (["--configdb", "cfg/127.0.0.1"], "not host:port"),
        (["--configdb", "cfg/127.0.0.1:70000"], "not host:port"),
        (["positional"], "positional"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        _parse(*arguments)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("net: {prot: 1}", r"net\.prot"),
        ("net: {port: true}", "invalid"),
        ("net: [", "YAML"),
        ("text", "no options"),
        ("security: {authorization: enabled}", "mongod"),
        ("storage: {dbPath: /x}", r"storage\.dbPath"),
        ("systemLog: {destination: syslog}", "logs to a file"),
        ("systemLog: {destination: file}", "systemLog.path"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        _parse(*_file(tmp_path, text))


def test_key_and_certificate_are_given_to_the_router_mongod_too(tmp_path: Path) -> None:
    text = "security: {keyFile: /k}\nnet: {tls: {mode: requireTLS, certificateKeyFile: /c, CAFile: /a}}"
    chosen = _parse(*_file(tmp_path, text))
    assert (chosen.key_file, chosen.certificate, chosen.ca_file) == (Path("/k"), Path("/c"), Path("/a"))
    assert chosen.router_arguments[:2] == ("--keyFile", "/k")
    assert {"requireTLS", "/c", "/a"} <= set(chosen.router_arguments)


def test_a_config_server_is_required() -> None:
    with pytest.raises(UsageError, match="--configdb"):
        options.parse([])


@pytest.mark.parametrize("extra", [["--slowms", "1"], ["--localThreshold", "5"], ["--filePermissions", "0700"]])
def test_options_without_effect_are_reported_with_the_reason(extra: list[str]) -> None:
    ((name, reason),) = _parse(*extra).without_effect
    assert name == extra[0].removeprefix("--")
    assert reason


def test_every_option_takes_effect_is_refused_or_is_reported() -> None:
    """No option is accepted and ignored: each one of the table changes what is chosen, or is named."""
    values: dict[type, Any] = {bool: [], int: ["7"], str: ["x"], Path: ["x"]}
    plain = _parse()
    for option in options.OPTIONS:
        if option.flag in ("", "configdb", "config", "nounixsocket", "port", "bind_ip", "ipv6", "timeStampFormat"):
            continue
        try:
            chosen = _parse(f"--{option.flag}", *values[option.type])
        except UsageError:
            continue
        chosen.argv, chosen.given = plain.argv, plain.given
        assert chosen != plain, option.flag


def test_a_wrong_option_ends_the_program_with_2() -> None:
    mongos = Path(sys.executable).with_name("mongos")
    done = subprocess.run([mongos, "--nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "mongos --help" in done.stderr


def test_help_lists_an_option_a_line() -> None:
    lines = options.help_text().splitlines()
    for option in ("--configdb", "--port", "--bind_ip", "--logpath", "--fork", "--setParameter", "--nounixsocket"):
        assert any(line.lstrip().startswith(option) for line in lines)

"""The options of mongos, from its command line and its YAML file, in mongos's own names and with its own refusals.

Every option of mongos 6.0 is known here and has one of three fates: it takes effect, it is refused with a sentence, or
the log names it as having no effect and says why.
"""

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

PROGRAM = "mongos"


class UsageError(Exception):
    """The command line or the file asks for something that is not an option, or not possible here (exit code 2)."""


class Kind(Enum):
    """What value an option takes."""

    FLAG = "flag"
    INTEGER = "integer"
    TEXT = "text"


@dataclass(frozen=True)
class Option:
    """One option: its name on the command line, its path in the file, and why it has no effect or is refused."""

    flag: str
    path: str
    kind: Kind
    help: str = ""
    no_effect: str = ""
    refused: str = ""


_ONE_MACHINE = "the embedded mongos serves one machine over loopback"
_NO_SOCKET = "the embedded mongos never listens on a unix socket"
_F, _I, _T = Kind.FLAG, Kind.INTEGER, Kind.TEXT

OPTIONS: tuple[Option, ...] = (
    Option("configdb", "sharding.configDB", _T, "Config servers: replicaSet/host:port[,host:port...]"),
    Option("port", "net.port", _I, "Port to listen on - 27017 by default"),
    Option("bind_ip", "net.bindIp", _T, "Loopback addresses to listen on - localhost by default"),
    Option("bind_ip_all", "net.bindIpAll", _F, "Refused: only loopback", refused=_ONE_MACHINE),
    Option("ipv6", "net.ipv6", _F, "Listen on ::1 too when localhost is bound"),
    Option("maxConns", "net.maxIncomingConnections", _I, "Most client connections at the same time"),
    Option("listenBacklog", "net.listenBacklog", _I, "Backlog of the listening socket"),
    Option("networkMessageCompressors", "net.compression.compressors", _T, "snappy,zstd,zlib: zlib towards clients"),
    Option("nounixsocket", "", _F, "There is none"),
    Option("unixSocketPrefix", "net.unixDomainSocket.pathPrefix", _T, "No effect", no_effect=_NO_SOCKET),
    Option("filePermissions", "net.unixDomainSocket.filePermissions", _T, "No effect", no_effect=_NO_SOCKET),
    Option("", "net.unixDomainSocket.enabled", _F),
    Option("", "net.wireObjectCheck", _F, no_effect="the router mongod always checks"),
    Option("", "net.tls.mode", _T),
    Option("tlsMode", "", _T, "disabled or requireTLS"),
    Option("config", "", _T, "File with options in YAML"),
    Option("logpath", "systemLog.path", _T, "File to log to, else standard output"),
    Option("logappend", "systemLog.logAppend", _F, "Append to the log file"),
    Option("logRotate", "systemLog.logRotate", _T, "rename or reopen"),
    Option("", "systemLog.destination", _T),
    Option("", "systemLog.verbosity", _I),
    Option("quiet", "systemLog.quiet", _F, "Do not log connections"),
    Option("syslog", "", _F, "Refused: log to a file", refused="the embedded mongos logs to a file or standard output"),
    Option("timeStampFormat", "systemLog.timeStampFormat", _T, "iso8601-local"),
    Option("", "systemLog.traceAllExceptions", _F, no_effect="the embedded mongos logs every exception it meets"),
    Option("fork", "processManagement.fork", _F, "Run in the background once ready"),
    Option("pidfilepath", "processManagement.pidFilePath", _T, "File to write the process id to"),
    Option("timeZoneInfo", "processManagement.timeZoneInfo", _T, "Handed to the router mongod"),
    Option("localThreshold", "replication.localPingThresholdMs", _I, "No effect",
           no_effect="every member is on this machine, none is nearer"),
    Option("slowms", "operationProfiling.slowOpThresholdMs", _I, "No effect",
           no_effect="the embedded mongos logs no slow operations; the shards do"),
    Option("keyFile", "security.keyFile", _T, "Clients log in, the mongods know this mongos by its key"),
    Option("clusterAuthMode", "security.clusterAuthMode", _T, "Refused", refused=_ONE_MACHINE),
    Option("", "security.authorization", _T, refused="mongos has no such option; it belongs to mongod"),
    Option("tlsCertificateKeyFile", "net.tls.certificateKeyFile", _T, "Key and certificate towards clients"),
    Option("tlsCAFile", "net.tls.CAFile", _T, "Whom the mongods' certificates must be from"),
    Option("tlsAllowConnectionsWithoutCertificates", "net.tls.allowConnectionsWithoutCertificates", _F,
           "Clients need no certificate of their own; they never do here"),
    Option("transitionToAuth", "security.transitionToAuth", _F, "Refused", refused=_ONE_MACHINE),
    Option("noscripting", "", _F, "Handed to the router mongod"),
    Option("", "security.javascriptEnabled", _F),
)  # fmt: skip

_BY_FLAG = {option.flag: option for option in OPTIONS if option.flag}
_BY_PATH = {option.path: option for option in OPTIONS if option.path}
_SHORT = {"f": "config"}
ROUTER_PATH = "microshardRouterPath"
MONGOD_PATH = "microshardMongod"


@dataclass
class Options:
    """What was asked for. `given` maps option paths to values as getCmdLineOpts shows them."""

    config_servers: str = ""
    port: int = 27017
    hosts: tuple[str, ...] = ("127.0.0.1",)
    max_connections: int = 1_000_000
    backlog: int = 4096
    compressors: str | None = None
    log_path: Path | None = None
    log_append: bool = False
    log_reopen: bool = False
    verbosity: int = 0
    quiet: bool = False
    fork: bool = False
    pid_file: Path | None = None
    router_path: Path | None = None
    mongod: Path | None = None
    key_file: Path | None = None
    certificate: Path | None = None
    ca_file: Path | None = None
    router_arguments: tuple[str, ...] = ()
    set_parameters: dict[str, str] = field(default_factory=dict)
    without_effect: list[tuple[str, str]] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    argv: list[str] = field(default_factory=list)
    action: str = "run"  # run | version | help


def help_text() -> str:
    """What --help prints: an option a line, as programs that read mongos's help expect it."""
    lines = ["Options of the embedded mongos:", "  -h [ --help ]", "  --version", "  -f [ --config ] arg"]
    lines += [
        f"  --{option.flag}{'' if option.kind is Kind.FLAG else ' arg'}".ljust(42) + option.help
        for option in OPTIONS
        if option.flag and option.flag != "config"
    ]
    return "\n".join([*lines, "  -v [ --verbose ]", "  --setParameter arg".ljust(42) + "name=value"])


def parse(argv: Sequence[str]) -> Options:
    """Options from a command line (without the program's name) and the file it names. UsageError."""
    options = Options(argv=[PROGRAM, *argv])
    values: dict[str, Any] = {}
    waiting = list(argv)
    while waiting:
        _take(waiting, values, options)
    if "config" in values:
        from_file = _read_file(Path(values.pop("config")), options)
        values = {**from_file, **values}
    if options.action == "run":
        _apply(values, options)
    return options


def _take(waiting: list[str], values: dict[str, Any], options: Options) -> None:
    argument = waiting.pop(0)
    if argument in ("--version", "--help", "-h"):
        options.action = "version" if argument == "--version" else "help"
    elif re.fullmatch(r"-v+|--verbose(=v*)?", argument):
        options.verbosity = max(argument.count("v") - (2 if "=" in argument else 0), 1)
        if argument.startswith("--verbose"):
            options.verbosity = max(argument.partition("=")[2].count("v"), 1)
        options.given["systemLog.verbosity"] = options.verbosity
    else:
        _take_named(argument, waiting, values, options)


def _take_named(argument: str, waiting: list[str], values: dict[str, Any], options: Options) -> None:
    if argument.startswith("--"):
        name, equals, inline = argument[2:].partition("=")
    elif re.match(r"-\w", argument):
        name, equals, inline = _SHORT.get(argument[1], argument[1:]), argument[2:], argument[2:]
    else:
        raise UsageError(f"too many positional options have been specified on the command line: {argument}")
    option = _BY_FLAG.get(name)
    if option is None and name != "setParameter":
        raise UsageError(f"unrecognised option '{argument}'")
    if option is not None and option.kind is Kind.FLAG:
        if equals:
            raise UsageError(f"option '--{name}' does not take any arguments")
        values[name] = True
        return
    if not equals:
        if not waiting:
            raise UsageError(f"the required argument for option '--{name}' is missing")
        inline = waiting.pop(0)
    if option is None:
        _set_parameter(inline, options)
        return
    values[name] = _typed(option, inline, f"--{name}")


def _set_parameter(text: str, options: Options) -> None:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"setParameter takes name=value, not '{text}'")
    options.set_parameters[name] = value


def _typed(option: Option, value: Any, name: str) -> Any:
    if option.kind is Kind.INTEGER:
        try:
            if isinstance(value, bool):
                raise ValueError
            return int(value)
        except (TypeError, ValueError):
            raise UsageError(f"the argument ('{value}') for option '{name}' is invalid") from None
    if option.kind is Kind.FLAG:
        if not isinstance(value, bool):
            raise UsageError(f"the argument ('{value}') for option '{name}' is invalid: true or false")
        return value
    if isinstance(value, (dict, list)) or value is None:
        raise UsageError(f"the argument for option '{name}' is invalid: a single value is needed")
    return str(value)


def _read_file(path: Path, options: Options) -> dict[str, Any]:
    # Read only when a file is named: a quarter of the start-up time goes into the YAML library.
    from ruamel.yaml import YAML  # noqa: PLC0415
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    try:
        tree = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"Error reading config file {path}: {error.strerror}") from error
    except YAMLError as error:
        raise UsageError(f"Error parsing YAML config file {path}: {error}") from error
    values: dict[str, Any] = {}
    for dotted, value in _flatten(tree or {}):
        if dotted.startswith("setParameter."):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            options.set_parameters.setdefault(dotted.removeprefix("setParameter."), text)
            continue
        option = _BY_PATH.get(dotted)
        if option is None and dotted.startswith("systemLog.component."):
            options.without_effect.append((dotted, "the embedded mongos has one verbosity for all components"))
            continue
        if option is None:
            raise UsageError(f"Unrecognized option: {dotted}")
        values[option.flag or dotted] = _typed(option, value, dotted)
    options.given["config"] = str(path)
    return values


def _flatten(tree: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(tree, Mapping):
        raise UsageError("the config file holds no options: section: {option: value} is its form")
    pairs: list[tuple[str, Any]] = []
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and path not in _BY_PATH:
            pairs += _flatten(value, f"{path}.")
        else:
            pairs.append((path, value))
    return pairs


def _apply(values: dict[str, Any], options: Options) -> None:
    for name, value in values.items():
        option = _BY_FLAG.get(name) or _BY_PATH[name]
        if option.refused and value is not False:
            raise UsageError(f"{name}: {option.refused}")
        if option.no_effect:
            options.without_effect.append((name, option.no_effect))
        options.given[option.path or name] = value
    if not values.get("configdb"):
        raise UsageError("no args for --configdb")
    options.config_servers = values["configdb"]
    _check_config_servers(options.config_servers)
    _apply_network(values, options)
    _apply_log(values, options)
    _apply_process(values, options)


def _apply_network(values: dict[str, Any], options: Options) -> None:
    options.port = values.get("port", options.port)
    if not 0 < options.port < 65536:
        raise UsageError(f"port {options.port} is outside 1..65535")
    options.hosts = _loopback(values.get("bind_ip", "localhost"), ipv6=values.get("ipv6", False))
    options.max_connections = values.get("maxConns", options.max_connections)
    options.backlog = values.get("listenBacklog", options.backlog)
    if options.max_connections < 5 or options.backlog < 1:
        raise UsageError("maxConns is at least 5, listenBacklog at least 1")
    options.compressors = values.get("networkMessageCompressors")
    if values.get("net.unixDomainSocket.enabled"):
        options.without_effect.append(("net.unixDomainSocket.enabled", _NO_SOCKET))
    _apply_security(values, options)


def _apply_security(values: dict[str, Any], options: Options) -> None:
    mode = values.get("tlsMode", values.get("net.tls.mode", "disabled"))
    if mode not in {"disabled", "requireTLS"}:
        raise UsageError(f"tlsMode: the embedded mongos knows disabled and requireTLS, not {mode}")
    if "keyFile" in values:
        options.key_file = Path(values["keyFile"]).absolute()
        options.router_arguments += ("--keyFile", str(options.key_file))
    given = [name for name in values if name.startswith("tls") and name != "tlsMode"]
    if mode == "disabled" and given:
        raise UsageError(f"{given[0]} goes with tlsMode requireTLS")
    if mode == "requireTLS":
        missing = [name for name in ("tlsCertificateKeyFile", "tlsCAFile") if name not in values]
        if missing:
            raise UsageError(f"tlsMode requireTLS needs --{missing[0]}")
        options.certificate = Path(values["tlsCertificateKeyFile"]).absolute()
        options.ca_file = Path(values["tlsCAFile"]).absolute()
        options.router_arguments += (
            *("--tlsMode", "requireTLS", "--tlsAllowConnectionsWithoutCertificates"),
            *("--tlsCertificateKeyFile", str(options.certificate), "--tlsCAFile", str(options.ca_file)),
        )


def _apply_process(values: dict[str, Any], options: Options) -> None:
    options.fork = values.get("fork", False)
    if options.fork and options.log_path is None:
        raise UsageError("--fork has to be used with --logpath")
    if "pidfilepath" in values:
        options.pid_file = Path(values["pidfilepath"]).absolute()
    if "timeZoneInfo" in values:
        options.router_arguments += ("--timeZoneInfo", values["timeZoneInfo"])
    if values.get("noscripting") or values.get("security.javascriptEnabled") is False:
        options.router_arguments += ("--noscripting",)
    if own := options.set_parameters.pop(ROUTER_PATH, None):
        options.router_path = Path(own).absolute()
    if own := options.set_parameters.pop(MONGOD_PATH, None):
        options.mongod = Path(own).absolute()


def _apply_log(values: dict[str, Any], options: Options) -> None:
    destination = values.get("systemLog.destination")
    if destination not in (None, "file"):
        raise UsageError("systemLog.destination: the embedded mongos logs to a file or standard output")
    if (destination == "file") != ("logpath" in values) and destination is not None:
        raise UsageError("systemLog.destination: file needs systemLog.path")
    if "logpath" in values:
        options.log_path = Path(values["logpath"]).absolute()
        if options.log_path.is_dir():
            raise UsageError(f'logpath "{options.log_path}" should name a file, not a directory.')
    options.log_append = values.get("logappend", False)
    if values.get("timeStampFormat", "iso8601-local") != "iso8601-local":
        raise UsageError("timeStampFormat: the embedded mongos logs iso8601-local")
    rotation = values.get("logRotate", "rename")
    if rotation not in ("rename", "reopen"):
        raise UsageError(f"unknown value for --logRotate: {rotation}")
    options.log_reopen = rotation == "reopen"
    if options.log_reopen and not options.log_append:
        raise UsageError("logRotate reopen needs logAppend")
    options.verbosity = max(options.verbosity, values.get("systemLog.verbosity", 0))
    if not 0 <= options.verbosity <= 5:
        raise UsageError("systemLog.verbosity is 0 to 5")
    options.quiet = values.get("quiet", False)


def _check_config_servers(text: str) -> None:
    name, slash, hosts = text.partition("/")
    if not slash or not name:
        raise UsageError(f"sharding configDB must be a replica set connection string: name/host:port, not '{text}'")
    for host in hosts.split(","):
        if not re.fullmatch(r".+:\d{1,5}", host):
            raise UsageError(f"sharding configDB names '{host}', which is not host:port")


def _loopback(text: str, *, ipv6: bool) -> tuple[str, ...]:
    """The addresses behind --bind_ip. UsageError when one of them can be reached from outside."""
    addresses: list[str] = []
    for host in filter(None, (part.strip() for part in text.split(","))):
        if host == "localhost":
            addresses += ["127.0.0.1", "::1"] if ipv6 else ["127.0.0.1"]
            continue
        try:
            found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        except OSError as error:
            raise UsageError(f"bind_ip {host}: {error.strerror}") from error
        outside = [address for address in found if not ipaddress.ip_address(address).is_loopback]
        if outside:
            raise UsageError(f"bind_ip {host} is refused: {_ONE_MACHINE}. Use 127.0.0.1, or a real mongos")
        addresses += sorted(found)
    if not addresses:
        raise UsageError("bind_ip names no address")
    return tuple(dict.fromkeys(addresses))

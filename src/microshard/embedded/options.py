"""The options of mongos, from its command line and its YAML file, with mongos's names and error messages.

Every option of mongos 6.0 is in the table: it takes effect, or it is refused with a reason, or the log says why it has
no effect.
"""

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class UsageError(Exception):
    """The command line or the file has something that is not an option, or not possible here (exit code 2)."""


@dataclass(frozen=True)
class Option:
    """One option: its name on the command line, its path in the file, its type, and the field of `Options` it sets."""

    flag: str
    path: str
    type: type
    help: str = ""
    field: str = ""
    no_effect: str = ""  # why it has none
    refused: str = ""  # why


_ONE_MACHINE = "the embedded mongos serves one machine over loopback"
_NO_SOCKET = "the embedded mongos never listens on a unix socket"

OPTIONS: tuple[Option, ...] = (
    Option("configdb", "sharding.configDB", str, "replicaSet/host:port[,host:port...]", field="config_servers"),
    Option("port", "net.port", int, "Port to listen on - 27017 by default", field="port"),
    Option("bind_ip", "net.bindIp", str, "Loopback addresses to listen on - localhost by default"),
    Option("bind_ip_all", "net.bindIpAll", bool, "Refused: only loopback", refused=_ONE_MACHINE),
    Option("ipv6", "net.ipv6", bool, "Listen on ::1 too when localhost is bound"),
    Option("maxConns", "net.maxIncomingConnections", int, "Most client connections at a time", field="max_connections"),
    Option("listenBacklog", "net.listenBacklog", int, "Backlog of the listening socket", field="backlog"),
    Option("networkMessageCompressors", "net.compression.compressors", str, "snappy,zstd,zlib",
           field="compressors"),
    Option("nounixsocket", "", bool, "There is none"),
    Option("unixSocketPrefix", "net.unixDomainSocket.pathPrefix", str, "No effect", no_effect=_NO_SOCKET),
    Option("filePermissions", "net.unixDomainSocket.filePermissions", str, "No effect", no_effect=_NO_SOCKET),
    Option("", "net.unixDomainSocket.enabled", bool),
    Option("", "net.wireObjectCheck", bool, no_effect="the router mongod always checks"),
    Option("", "net.tls.mode", str),
    Option("tlsMode", "", str, "disabled or requireTLS"),
    Option("config", "", str, "File with options in YAML"),
    Option("logpath", "systemLog.path", Path, "File to log to, else standard output", field="log_path"),
    Option("logappend", "systemLog.logAppend", bool, "Append to the log file", field="log_append"),
    Option("logRotate", "systemLog.logRotate", str, "rename or reopen"),
    Option("", "systemLog.destination", str),
    Option("", "systemLog.verbosity", int),
    Option("quiet", "systemLog.quiet", bool, "Do not log connections", field="quiet"),
    Option("syslog", "", bool, "Refused: log to a file", refused="it logs to a file or standard output"),
    Option("timeStampFormat", "systemLog.timeStampFormat", str, "iso8601-local"),
    Option("", "systemLog.traceAllExceptions", bool, no_effect="the embedded mongos logs every exception it meets"),
    Option("fork", "processManagement.fork", bool, "Run in the background once ready", field="fork"),
    Option("pidfilepath", "processManagement.pidFilePath", Path, "File to write the process id to", field="pid_file"),
    Option("timeZoneInfo", "processManagement.timeZoneInfo", str, "Handed to the router mongod"),
    Option("localThreshold", "replication.localPingThresholdMs", int, "No effect",
           no_effect="every member is on this machine, none is nearer"),
    Option("slowms", "operationProfiling.slowOpThresholdMs", int, "No effect",
           no_effect="the embedded mongos logs no slow operations; the shards do"),
    Option("keyFile", "security.keyFile", Path, "Key of the cluster; clients log in", field="key_file"),
    Option("clusterAuthMode", "security.clusterAuthMode", str, "Refused", refused=_ONE_MACHINE),
    Option("", "security.authorization", str, refused="mongos has no such option; it belongs to mongod"),
    Option("tlsCertificateKeyFile", "net.tls.certificateKeyFile", Path, "Key and certificate",
           field="certificate"),
    Option("tlsCAFile", "net.tls.CAFile", Path, "Whom the mongods' certificates must be from", field="ca_file"),
    Option("tlsAllowConnectionsWithoutCertificates", "net.tls.allowConnectionsWithoutCertificates", bool,
           "Clients need no certificate; they never do here"),
    Option("transitionToAuth", "security.transitionToAuth", bool, "Refused", refused=_ONE_MACHINE),
    Option("noscripting", "", bool, "Handed to the router mongod"),
    Option("", "security.javascriptEnabled", bool),
)  # fmt: skip

_SWITCHES = {"true": True, "1": True, "false": False, "0": False}
_BY_FLAG = {option.flag: option for option in OPTIONS if option.flag}
_BY_PATH = {option.path: option for option in OPTIONS if option.path}


@dataclass
class Options:
    """The chosen options. `given` maps option paths to values as getCmdLineOpts shows them."""

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
    targeting: bool = True  # point operations go straight to their shard
    api_version_required: bool = False  # the parameter requireApiVersion
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
    """The text of --help: an option a line, as programs that read mongos's help expect it."""
    lines = ["Options of the embedded mongos:", "  -h [ --help ]", "  --version", "  -f [ --config ] arg"]
    lines += [
        f"  --{option.flag}{'' if option.type is bool else ' arg'}".ljust(42) + option.help
        for option in OPTIONS
        if option.flag and option.flag != "config"
    ]
    return "\n".join([*lines, "  -v [ --verbose ]", "  --setParameter arg".ljust(42) + "name=value"])


def parse(argv: Sequence[str]) -> Options:
    """Options from a command line (without the program's name) and the file it names. UsageError."""
    options = Options(argv=["mongos", *argv])
    values = _read_command_line(argv, options)
    if "config" in values:
        values = {**_read_file(Path(values.pop("config")), options), **values}
    if options.action == "run":
        _apply(values, options)
    return options


def _read_command_line(argv: Sequence[str], options: Options) -> dict[str, Any]:
    values: dict[str, Any] = {}
    arguments = iter(argv)
    for argument in arguments:
        if argument in ("--version", "--help", "-h"):
            options.action = "version" if argument == "--version" else "help"
        elif verbose := re.fullmatch(r"-(v+)|--verbose(?:=(v*))?", argument):
            options.verbosity = max(len(verbose[1] or verbose[2] or ""), 1)
            options.given["systemLog.verbosity"] = options.verbosity
        else:
            name, value = _split(argument)
            option = _BY_FLAG.get(name)
            if option is None and name != "setParameter":
                raise UsageError(f"unrecognised option '{argument}'")
            if option is not None and option.type is bool:
                if value is not None:
                    raise UsageError(f"option '--{name}' does not take any arguments")
                values[name] = True
                continue
            if value is None and (value := next(arguments, None)) is None:
                raise UsageError(f"the required argument for option '--{name}' is missing")
            if option is not None:
                values[name] = _typed(option, value, f"--{name}")
            else:
                parameter, equals, setting = value.partition("=")
                if not equals or not parameter:
                    raise UsageError(f"setParameter takes name=value, not '{value}'")
                options.set_parameters[parameter] = setting
    return values


def _split(argument: str) -> tuple[str, str | None]:
    """Name and value of an argument `--name`, `--name=value` or `-fvalue`."""
    if argument.startswith("--"):
        name, equals, value = argument[2:].partition("=")
        return name, value if equals else None
    if re.match(r"-\w", argument):
        return {"f": "config"}.get(argument[1], argument[1:]), argument[2:] or None
    raise UsageError(f"too many positional options have been specified on the command line: {argument}")


def _typed(option: Option, value: Any, name: str) -> Any:
    if isinstance(value, (dict, list)) or value is None:
        raise UsageError(f"the argument for option '{name}' is invalid: a single value is needed")
    if option.type is bool:
        if not isinstance(value, bool):
            raise UsageError(f"the argument ('{value}') for option '{name}' is invalid: true or false")
        return value
    if option.type is int:
        try:
            if isinstance(value, bool):
                raise ValueError
            return int(value)
        except ValueError:
            raise UsageError(f"the argument ('{value}') for option '{name}' is invalid") from None
    return str(value)


def _read_file(path: Path, options: Options) -> dict[str, Any]:
    # Imported only when a file is named: otherwise it would be a quarter of the start-up time.
    from ruamel.yaml import YAML  # noqa: PLC0415 - see above
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - see above

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
        elif option := _BY_PATH.get(dotted):
            values[option.flag or dotted] = _typed(option, value, dotted)
        elif dotted.startswith("systemLog.component."):
            options.without_effect.append((dotted, "the embedded mongos has one verbosity for all components"))
        else:
            raise UsageError(f"Unrecognized option: {dotted}")
    options.given["config"] = str(path)
    return values


def _flatten(tree: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(tree, Mapping):
        raise UsageError("the config file holds no options: section: {option: value} is its form")
    pairs: list[tuple[str, Any]] = []
    for key, value in tree.items():
        path = f"{prefix}{key}"
        pairs += _flatten(value, f"{path}.") if isinstance(value, Mapping) and path not in _BY_PATH else [(path, value)]
    return pairs


def _apply(values: dict[str, Any], options: Options) -> None:
    for name, value in values.items():
        option = _BY_FLAG.get(name) or _BY_PATH[name]
        if option.refused and value is not False:
            raise UsageError(f"{name}: {option.refused}")
        if option.no_effect:
            options.without_effect.append((name, option.no_effect))
        if option.field:
            setattr(options, option.field, Path(value).absolute() if option.type is Path else value)
        options.given[option.path or name] = value
    if not options.config_servers:
        raise UsageError("no args for --configdb")
    _apply_network(values, options)
    _apply_security(values, options)
    _apply_log(values, options)
    _apply_process(values, options)


def _apply_network(values: dict[str, Any], options: Options) -> None:
    name, slash, hosts = options.config_servers.partition("/")
    if not slash or not name:
        raise UsageError("sharding configDB must be a replica set connection string: name/host:port, "
                         f"not '{options.config_servers}'")  # fmt: skip
    for host in hosts.split(","):
        if not (port := re.fullmatch(r".+:(\d{1,5})", host)) or not 0 < int(port[1]) < 65536:
            raise UsageError(f"sharding configDB names '{host}', which is not host:port")
    if not 0 < options.port < 65536:
        raise UsageError(f"port {options.port} is outside 1..65535")
    options.hosts = _loopback(values.get("bind_ip", "localhost"), ipv6=values.get("ipv6", False))
    if options.max_connections < 5 or options.backlog < 1:
        raise UsageError("maxConns is at least 5, listenBacklog at least 1")
    if values.get("net.unixDomainSocket.enabled"):
        options.without_effect.append(("net.unixDomainSocket.enabled", _NO_SOCKET))


def _loopback(text: str, *, ipv6: bool) -> tuple[str, ...]:
    """The addresses of --bind_ip. UsageError when one of them can be reached from outside."""
    addresses: list[str] = []
    for host in filter(None, (part.strip() for part in text.split(","))):
        if host == "localhost":
            addresses += ["127.0.0.1", "::1"] if ipv6 else ["127.0.0.1"]
            continue
        try:
            found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        except OSError as error:
            raise UsageError(f"bind_ip {host}: {error.strerror}") from error
        if not all(ipaddress.ip_address(address).is_loopback for address in found):
            raise UsageError(f"bind_ip {host} is refused: {_ONE_MACHINE}. Use 127.0.0.1, or a real mongos")
        addresses += sorted(found)
    if not addresses:
        raise UsageError("bind_ip names no address")
    return tuple(dict.fromkeys(addresses))


def _apply_security(values: dict[str, Any], options: Options) -> None:
    if options.key_file:
        options.router_arguments += ("--keyFile", str(options.key_file))
    mode = values.get("tlsMode", values.get("net.tls.mode", "disabled"))
    if mode not in {"disabled", "requireTLS"}:
        raise UsageError(f"tlsMode: the embedded mongos knows disabled and requireTLS, not {mode}")
    given = [name for name in values if name.startswith("tls") and name != "tlsMode"]
    if mode == "disabled" and given:
        raise UsageError(f"{given[0]} goes with tlsMode requireTLS")
    if mode == "requireTLS":
        for name in ("tlsCertificateKeyFile", "tlsCAFile"):
            if name not in values:
                raise UsageError(f"tlsMode requireTLS needs --{name}")
        options.router_arguments += (
            *("--tlsMode", "requireTLS", "--tlsAllowConnectionsWithoutCertificates"),
            *("--tlsCertificateKeyFile", str(options.certificate), "--tlsCAFile", str(options.ca_file)),
        )


def _apply_log(values: dict[str, Any], options: Options) -> None:
    destination = values.get("systemLog.destination")
    if destination not in (None, "file"):
        raise UsageError("systemLog.destination: the embedded mongos logs to a file or standard output")
    if destination == "file" and options.log_path is None:
        raise UsageError("systemLog.destination: file needs systemLog.path")
    if options.log_path is not None and options.log_path.is_dir():
        raise UsageError(f'logpath "{options.log_path}" should name a file, not a directory.')
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


def _apply_process(values: dict[str, Any], options: Options) -> None:
    if options.fork and options.log_path is None:
        raise UsageError("--fork has to be used with --logpath")
    if "timeZoneInfo" in values:
        options.router_arguments += ("--timeZoneInfo", values["timeZoneInfo"])
    if values.get("noscripting") or values.get("security.javascriptEnabled") is False:
        options.router_arguments += ("--noscripting",)
    # Parameters of the embedded mongos only: the router mongod's folder, its program, and whether point
    # operations go straight to their shard.
    if folder := options.set_parameters.pop("microshardRouterPath", None):
        options.router_path = Path(folder).absolute()
    if mongod := options.set_parameters.pop("microshardMongod", None):
        options.mongod = Path(mongod).absolute()
    options.targeting = _switch(options, "microshardTargeting", default="true")
    # Not for the router mongod: a shard does not start with it.
    options.api_version_required = _switch(options, "requireApiVersion", default="false")


def _switch(options: Options, name: str, default: str) -> bool:
    """Take a parameter that is true or false. UsageError."""
    value = options.set_parameters.pop(name, default)
    if value not in _SWITCHES:
        raise UsageError(f"{name} is true or false, not {value}")
    return _SWITCHES[value]

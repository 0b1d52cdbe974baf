"""The properties of each YCSB client, from the keys of a phase."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from microshard.model.phases.ycsb import GROWING, YcsbParameters
from microshard.workloads.streams import cut

# Nothing is retried, as in every engine: one latency must not cover two tries. Servers that have ended become errors.
URL_OPTIONS = {
    "serverSelectionTimeoutMS": "15000",
    "connectTimeoutMS": "10000",
    "retryReads": "false",
    "retryWrites": "false",
}
KEYS_A_CLIENT = 10**15  # new keys of a client's inserts lie apart from those of all others
KEYS_A_SECOND = 10**6  # and from those it inserted in an earlier phase: a phase begins at another second
EPOCH = 1_700_000_000
UNBOUNDED = 2**31 - 1  # operationcount is an int; 0 would start no thread at all
GRACE_SECONDS = 60  # after which a client that nobody stops ends


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """One YCSB process of this host."""

    number: int  # from 1, over all hosts
    threads: int
    rungs: tuple[int, ...]  # of this client; empty without a ladder
    url: str
    first: int  # record of a load
    count: int
    operations: int | None
    target: int | None
    ca_file: str | None = None  # PEM file of the authority that signed the servers' certificates


def _share(total: int | None, parts: int, index: int) -> int | None:
    """The share of one of `parts` of a total; the shares differ by one at most."""
    return None if total is None else total // parts + (index < total % parts)


def client_url(connection_string: str, endpoints: Sequence[str]) -> str:
    """The connection string with these endpoints, if any, and with those of URL_OPTIONS that it does not have.

    Without tlsCAFile, which Java's driver does not know: it is a property of the binding.
    """
    match = re.fullmatch(r"(mongodb://(?:[^@/]*@)?)([^/?]+)(/[^?]*)?(?:\?(.*))?", connection_string)
    if match is None:
        raise ValueError("not a connection string of the form mongodb://HOST:PORT/")
    scheme, hosts, path, query = match.groups()
    given = {name: value for name, value in _options(query) if name.lower() != "tlscafile"}
    known = {name.lower() for name in given}
    options = given | {name: value for name, value in URL_OPTIONS.items() if name.lower() not in known}
    text = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{scheme}{','.join(endpoints) or hosts}{path or '/'}?{text}"


def _options(query: str | None) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (part.partition("=") for part in (query or "").split("&") if part)]


def divide(
    keys: YcsbParameters, connection_string: str, mongos: Sequence[str], *, index: int, of: int
) -> list[ClientSpec]:
    """The clients of host `index` of `of`: threads, key ranges, rates and routers divided among all clients."""
    total = keys.clients
    ranges = cut(keys.records, total)
    options = _options(connection_string.partition("?")[2])
    ca_file = next((unquote(value) for name, value in options if name.lower() == "tlscafile"), None)
    found = []
    for client in range(index, total, of):
        rungs = tuple(_share(n, total, client) or 0 for n in keys.ladder.rungs()) if keys.threads == "ladder" else ()
        endpoints = [mongos[client % len(mongos)]] if mongos and keys.mongos == "own" else []
        found.append(
            ClientSpec(
                number=client + 1,
                threads=rungs[-1] if keys.threads == "ladder" else _share(keys.threads, total, client) or 0,
                rungs=rungs,
                url=client_url(connection_string, endpoints),
                first=ranges[client][0],
                count=ranges[client][1],
                operations=_share(keys.operations, total, client),
                target=_share(keys.rate, total, client),
                ca_file=ca_file,
            )
        )
    return found


def properties(
    keys: YcsbParameters, client: ClientSpec, *, load: bool, start: str, seconds: float, prefix: str
) -> dict[str, str]:
    """YCSB's properties of one client.

    `start` is the binding's property `mongodb.startat`, `seconds` the planned time from now on, `prefix` that of the
    files it writes.
    """
    database, _, table = keys.namespace.partition(".")
    found: dict[str, Any] = {
        "workload": "site.ycsb.workloads.CoreWorkload",
        "db": "site.ycsb.db.MongoDbClient",
        "table": table,
        "threadcount": client.threads,
        "fieldcount": keys.fields,
        "fieldlength": keys.field_bytes,
        "insertorder": keys.insert_order,
        "measurementtype": "hdrhistogram",
        "measurement.interval": "op" if keys.rate is None else "both",
        "hdrhistogram.fileoutput": "true",
        "hdrhistogram.output.path": f"{prefix}-",
        "status.interval": 1,
        "mongodb.url": client.url,
        "mongodb.database": database,
        "mongodb.writeConcern": keys.write_concern,
        "mongodb.readPreference": keys.read_preference,
        "mongodb.report": f"{prefix}-report.json",
        "mongodb.startat": start,
    }
    if load:
        found |= {
            "recordcount": keys.records,
            "insertstart": client.first,
            "insertcount": client.count,
            "mongodb.batchsize": keys.batch_size,
        }
    else:
        found |= _run(keys, client, seconds)
    if client.ca_file is not None:
        found["mongodb.tlsCAFile"] = client.ca_file
    if client.target is not None:
        found["target"] = client.target
    found |= keys.properties
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()}


def _run(keys: YcsbParameters, client: ClientSpec, seconds: float) -> dict[str, Any]:
    mix = keys.proportions
    found: dict[str, Any] = {
        "recordcount": keys.records,
        # Readers stay within the records of the load, whatever is inserted meanwhile.
        "insertstart": 0,
        "insertcount": keys.records,
        "requestdistribution": keys.distribution,
        "readproportion": mix.get("read", 0),
        "updateproportion": mix.get("update", 0),
        "insertproportion": mix.get("insert", 0),
        "scanproportion": mix.get("scan", 0),
        "readmodifywriteproportion": mix.get("read_modify_write", 0),
        "readallfields": keys.read_all_fields,
        "writeallfields": keys.write_all_fields,
        "maxscanlength": keys.max_scan,
        "operationcount": client.operations or UNBOUNDED,
    }
    if mix.get("insert", 0) and keys.distribution not in GROWING:
        # YCSB gives new records the numbers from recordcount on, every client the same ones.
        apart = (client.number - 1) * KEYS_A_CLIENT + max(0, int(time.time()) - EPOCH) * KEYS_A_SECOND
        found["recordcount"] = keys.records + apart
    if client.operations is None:
        found["maxexecutiontime"] = round(seconds) + GRACE_SECONDS
    if client.rungs:
        found["mongodb.rungs"] = ",".join(map(str, client.rungs))
        found["mongodb.rungseconds"] = keys.ladder.step_seconds
    return found


def properties_file(found: Mapping[str, str]) -> str:
    """The text of a Java properties file: backslashes and what is not ASCII are escaped."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in found.items())


def _escaped(value: str) -> str:
    return "".join("\\\\" if c == "\\" else c if " " <= c <= "~" else f"\\u{ord(c):04x}" for c in value)

"""The program `mongos`: options, the router mongod, the server for clients, and their end."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from errno import EADDRINUSE
from pathlib import Path
from typing import Any

import uvloop

from microshard.embedded import binary, catalog_commands, data_commands, options, server_commands, sharding_commands
from microshard.embedded.client_protocol import ClientProtocol
from microshard.embedded.cluster import Cluster
from microshard.embedded.compression import COMPRESSORS, DEFAULT, INSTALL
from microshard.embedded.errors import CommandError
from microshard.embedded.mongod_connections import NotSentError, ReplicaSetClient, read_credentials
from microshard.embedded.options import Options, UsageError
from microshard.embedded.router_mongod import RouterMongod, RouterStartError, remove_leftovers
from microshard.embedded.server import DESCRIPTION, PACKAGE_VERSION, Command, MongosServer
from microshard.embedded.server_log import ServerLog

# The server's exit codes.
EXIT_CLEAN, EXIT_BAD_OPTIONS, EXIT_NET_ERROR, EXIT_ABRUPT = 0, 2, 48, 14
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
CONFIG_WAIT = 60.0  # s a config server may take to become primary before each further line in the log
_LOWER_CASE_ALIASES = (
    "addShard", "buildInfo", "collStats", "dataSize", "dbStats", "enableSharding", "findAndModify", "listShards",
    "moveChunk", "movePrimary", "removeShard", "shardCollection",
)  # fmt: skip


def command_table() -> dict[str, Command]:
    """Every command that is not forwarded, by name."""
    table = {
        **server_commands.COMMANDS,
        **data_commands.COMMANDS,
        **catalog_commands.COMMANDS,
        **sharding_commands.COMMANDS,
    }
    return {**table, **{name.lower(): table[name] for name in _LOWER_CASE_ALIASES}}


def main(argv: Sequence[str] | None = None) -> int:
    """Run mongos with a command line (without the program's name); returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        chosen = options.parse(arguments)
        if chosen.action == "help":
            print(options.help_text())
            return EXIT_CLEAN
        mongod = binary.find_mongod(chosen.mongod.parent if chosen.mongod else None)
        if chosen.action == "version":
            print(_version(mongod))
            return EXIT_CLEAN
    except UsageError as error:
        print(f"Error parsing command line: {error}\ntry 'mongos --help' for more information", file=sys.stderr)
        return EXIT_BAD_OPTIONS
    except binary.BinaryError as error:
        print(f"mongos: {error}", file=sys.stderr)
        return EXIT_ABRUPT
    fork = _Fork() if chosen.fork else None
    if fork is not None and (code := fork.wait()) is not None:
        return code
    return _serve(chosen, mongod, fork)


def _version(mongod: Path) -> str:
    # The first line is what programs read; the rest says that this is not MongoDB's mongos.
    text = binary.version(mongod).text
    build = json.dumps({"version": text, "microshard": PACKAGE_VERSION, "what": DESCRIPTION}, indent=4)
    return f"mongos version v{text}\nBuild Info: {build}"


class _Fork:
    """The server's --fork: the first process waits until the second is ready, then reports and ends."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        print("about to fork child process, waiting until server is ready for connections.", flush=True)
        self._child = os.fork()

    def wait(self) -> int | None:
        """In the first process: its exit code, once the second is ready or has failed. In the second: None."""
        if not self._child:
            os.close(self._read)
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.close(null)
            return None
        os.close(self._write)
        print(f"forked process: {self._child}", flush=True)
        if os.read(self._read, 1):
            print("child process started successfully, parent exiting", flush=True)
            return EXIT_CLEAN
        _, status = os.waitpid(self._child, 0)
        code = os.waitstatus_to_exitcode(status)
        print(f"ERROR: child process failed, exited with {code}\nTo see additional information in this output, start "
              "without the \"--fork\" option.", flush=True)  # fmt: skip
        return code

    def ready(self) -> None:
        """In the second process: let the first end."""
        os.write(self._write, b"+")
        os.close(self._write)


def _serve(chosen: Options, mongod: Path, fork: _Fork | None) -> int:
    try:
        log = ServerLog(chosen.log_path, append=chosen.log_append, verbosity=chosen.verbosity)
    except OSError as error:
        print(f"mongos: cannot write the log {chosen.log_path}: {error.strerror}", file=sys.stderr)
        return EXIT_ABRUPT
    log.info(f"MongoDB starting : {DESCRIPTION}", pid=os.getpid(), port=chosen.port,
             host=os.uname().nodename,
             microshard=PACKAGE_VERSION, mongod=str(mongod), options=chosen.given)  # fmt: skip
    for name, why in chosen.without_effect:
        log.warning("This option has no effect", option=name, reason=why)
    if missing := set((chosen.compressors or "").split(",")) & set(DEFAULT.split(",")) - COMPRESSORS.keys():
        log.warning("These compressors are used towards the shards only; for clients a package is missing",
                    component="NETWORK", compressors=sorted(missing), remedy=INSTALL)  # fmt: skip

    def failed(event: str, reason: str) -> int:
        log.error(event, error=reason)
        print(f"mongos: {event[0].lower()}{event[1:]}: {reason}", file=sys.stderr)
        return EXIT_ABRUPT

    try:
        credentials = read_credentials(chosen.key_file, chosen.certificate, chosen.ca_file)
    except OSError as error:
        return failed("A key or certificate cannot be used", str(error))
    rights = "every user who has logged in may do everything" if credentials.key else "no authentication"
    log.startup_warning(f"This is the embedded mongos of microshard: {rights}, one machine, no sessions")
    base = chosen.router_path or (chosen.log_path.parent if chosen.log_path else Path(tempfile.gettempdir()))
    remove_leftovers(base, log)
    router = RouterMongod(mongod, base, chosen, credentials, log)
    code = EXIT_ABRUPT
    # A signal must not leave the router mongod's folder behind: it waits until the event loop has its handlers.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        # Before the event loop: the mongod's start is the longest part, and the loop's start can overlap it.
        router.spawn()
        uvloop.run(_run(chosen, log, Cluster(ReplicaSetClient(chosen.config_servers, credentials), router), fork))
        code = EXIT_CLEAN
    except RouterStartError as error:
        failed("The router mongod does not start", str(error))
    except OSError as error:
        failed("Cannot start", str(error))
        code = EXIT_NET_ERROR if error.errno == EADDRINUSE else EXIT_ABRUPT
    finally:
        router.remove()
        if chosen.pid_file:
            chosen.pid_file.unlink(missing_ok=True)
        log.info("Shutting down", exitCode=code)
    return code


async def _run(chosen: Options, log: ServerLog, cluster: Cluster, fork: _Fork | None) -> None:
    """Serve until a signal or the command shutdown."""
    server = MongosServer(chosen, log, cluster, command_table())
    for number in _STOP_SIGNALS:
        server.loop.add_signal_handler(number, server.stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    server.loop.add_signal_handler(signal.SIGUSR1, lambda: log.rotate(reopen=chosen.log_reopen))
    serving = asyncio.create_task(_serve_clients(server, fork))
    stopped = asyncio.create_task(server.stop.wait())
    try:
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving  # raises what ended it
        log.info("Received a signal or the command shutdown; leaving")
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)  # a second signal must not interrupt the cleaning up
        server.close()
        serving.cancel()
        stopped.cancel()
        cluster.close()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def _serve_clients(server: MongosServer, fork: _Fork | None) -> None:
    chosen, router = server.options, server.router
    # The router mongod starts while the config servers may still be electing.
    pool, cluster_id = await asyncio.gather(router.become_primary(), _cluster_id(server))
    await server.follow_cluster()
    await router.start_routing(pool, cluster_id, chosen.config_servers)
    await server.read_versions(pool)
    await server.listen(ClientProtocol)
    if chosen.pid_file:
        chosen.pid_file.write_text(f"{os.getpid()}\n", encoding="ascii")
    server.log.info(
        "Waiting for connections", component="NETWORK", port=chosen.port, hosts=chosen.hosts, routerMongod=router.pid
    )
    if fork is not None:
        fork.ready()
    await asyncio.gather(router.keep_running(cluster_id, chosen.config_servers), server.ping_config_servers())


async def _cluster_id(server: MongosServer) -> Any:
    """The cluster's id, once a config server is primary and has written it. Waits as long as that takes."""
    while True:
        try:
            await server.cluster.config.primary(deadline=CONFIG_WAIT)
            for document in await server.cluster.config_documents("version", {}):
                if "clusterId" in document:
                    return document["clusterId"]
        except NotSentError:
            pass
        except CommandError as error:
            server.log.warning("Waiting for the config server", component="SHARDING", error=str(error))
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())

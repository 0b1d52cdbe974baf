"""The program `mongos`: options, the router mongod, the front, and their end."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from microshard import __version__
from microshard.embedded import about, access, binary, options
from microshard.embedded.cluster import Cluster
from microshard.embedded.errors import CommandError
from microshard.embedded.front import Front
from microshard.embedded.log import ServerLog
from microshard.embedded.nodes import NotSentError, ReplicaSet
from microshard.embedded.options import Options, UsageError
from microshard.embedded.router_mongod import RouterMongod, RouterOptions, RouterStartError, clean_up

# The server's exit codes.
EXIT_CLEAN, EXIT_BAD_OPTIONS, EXIT_NET_ERROR, EXIT_ABRUPT = 0, 2, 48, 14
_ENDING = (signal.SIGTERM, signal.SIGINT)
CONFIG_WAIT = 60.0  # s a config server may take to become primary before each further line in the log


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
    ready = _Fork() if chosen.fork else None
    if ready is not None and (code := ready.wait()) is not None:
        return code
    return _serve(chosen, mongod, ready)


def _version(mongod: Path) -> str:
    found = binary.version(mongod)
    # The first line is what programs read; the rest says that this is no mongos of MongoDB's.
    build = json.dumps({"version": found.text, "microshard": __version__, "what": about.WHAT}, indent=4)
    return f"mongos version v{found.text}\nBuild Info: {build}"


class _Fork:
    """The --fork of the server: the first process waits until the second is ready, then says so and ends."""

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
        """In the second process: let the first go."""
        os.write(self._write, b"+")
        os.close(self._write)


def _serve(chosen: Options, mongod: Path, ready: _Fork | None) -> int:
    try:
        log = ServerLog(chosen.log_path, append=chosen.log_append, verbosity=chosen.verbosity)
    except OSError as error:
        print(f"mongos: cannot write the log {chosen.log_path}: {error.strerror}", file=sys.stderr)
        return EXIT_ABRUPT
    base = chosen.router_path or (chosen.log_path.parent if chosen.log_path else Path(tempfile.gettempdir()))
    log.note("CONTROL", f"MongoDB starting : {about.WHAT}", pid=os.getpid(), port=chosen.port, host=os.uname().nodename,
             microshard=__version__, mongod=str(mongod), options=chosen.given)  # fmt: skip
    for name, why in chosen.without_effect:
        log.alert("CONTROL", "This option has no effect", option=name, reason=why)
    if chosen.compressors is not None and (other := set(chosen.compressors.split(",")) - {"zlib"}):
        log.alert("NETWORK", "These compressors are used towards the shards; clients are offered zlib only",
                 compressors=sorted(other))  # fmt: skip
    try:
        known_by = access.of_options(chosen)
    except OSError as error:
        log.fail("CONTROL", "A key or certificate cannot be used", error=str(error))
        print(f"mongos: a key or certificate cannot be used: {error}", file=sys.stderr)
        return EXIT_ABRUPT
    logins = "who has logged in may do everything" if known_by.key else "no authentication"
    log.startup_warning(f"This is the embedded mongos of microshard: {logins}, one machine, no sessions")
    clean_up(base, log)
    how = RouterOptions(
        mongod=mongod, base=base, front_port=chosen.port, set_parameters=chosen.set_parameters,
        arguments=chosen.router_arguments, compressors=chosen.compressors, verbosity=chosen.verbosity,
        access=known_by,
    )  # fmt: skip
    router = RouterMongod(how, log)
    code = EXIT_ABRUPT
    # A signal must not leave the router mongod's folder behind: it waits until the event loop has its handlers.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        # Before the event loop: the mongod's start is the longest part, and the loop's own start can overlap it.
        router.spawn()
        code = uvloop.run(_run(chosen, log, router, ready, known_by))
    except RouterStartError as error:
        log.fail("CONTROL", "The router mongod does not start", error=str(error))
        print(f"mongos: {error}", file=sys.stderr)
    except OSError as error:
        log.fail("CONTROL", "Cannot start", error=str(error))
        print(f"mongos: {error}", file=sys.stderr)
        code = EXIT_NET_ERROR if error.errno == 98 else EXIT_ABRUPT
    finally:
        router.remove()
        if chosen.pid_file:
            chosen.pid_file.unlink(missing_ok=True)
        log.note("CONTROL", "Shutting down", exitCode=code)
    return code


async def _run(
    chosen: Options, log: ServerLog, router: RouterMongod, ready: _Fork | None, known_by: access.Access
) -> int:
    cluster = Cluster(ReplicaSet(chosen.config_servers, known_by), router)
    front = Front(chosen, log, router, cluster)
    for number in _ENDING:
        front.loop.add_signal_handler(number, front.stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    front.loop.add_signal_handler(signal.SIGUSR1, lambda: log.rotate(reopen=chosen.log_reopen))
    serving = asyncio.create_task(_serve_until_cancelled(front, ready))
    stopped = asyncio.create_task(front.stop.wait())
    try:
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving  # raises what ended it
        log.note("CONTROL", "Received a signal or the command shutdown; leaving")
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # a second signal must not interrupt the cleaning up
        front.close()
        serving.cancel()
        stopped.cancel()
        cluster.close()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    return EXIT_CLEAN


async def _serve_until_cancelled(front: Front, ready: _Fork | None) -> None:
    chosen, router = front.options, front.router
    # The router mongod starts while the config servers may still be electing.
    pool, cluster_id = await asyncio.gather(router.become_primary(), _cluster_id(front))
    await router.identify(pool, cluster_id, chosen.config_servers)
    await asyncio.gather(front.learn(pool), front.learn_defaults())
    await front.listen()
    if chosen.pid_file:
        chosen.pid_file.write_text(f"{os.getpid()}\n", encoding="ascii")
    front.log.note("NETWORK", "Waiting for connections", port=chosen.port, hosts=chosen.hosts, routerMongod=router.pid)
    if ready is not None:
        ready.ready()
    await asyncio.gather(router.run(cluster_id, chosen.config_servers), front.show_signs_of_life())


async def _cluster_id(front: Front) -> Any:
    """The cluster's id, once a config server is primary and has written it. Waits as long as that takes."""
    while True:
        try:
            await front.cluster.config.primary(deadline=CONFIG_WAIT)
            for document in await front.cluster.config_documents("version", {}):
                if "clusterId" in document:
                    return document["clusterId"]
        except NotSentError:
            pass
        except CommandError as error:
            front.log.alert("SHARDING", "Waiting for the config server", error=str(error))
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())

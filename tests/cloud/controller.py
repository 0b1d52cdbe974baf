"""A controller for tests: each line of standard input is a fleet to make and remove in a process that may be killed.

The process of a line is a fork of this one, so that the half second boto3 takes to load is spent once.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from microshard.backends.ec2 import api as api_module
from microshard.backends.ec2.api import Api, RetryPolicy
from microshard.backends.ec2.fleet import provision
from microshard.backends.ec2.spec import from_mapping
from microshard.backends.ec2.teardown import teardown
from microshard.records.run_folder import Ledger

Invoke = Callable[[Any, str, dict[str, Any]], dict[str, Any]]


def killing(after: int, real: Invoke) -> Invoke:
    """The way to AWS, on which this process dies as soon as call number `after` has been answered."""
    calls = 0

    def call(client: Any, action: str, parameters: dict[str, Any]) -> dict[str, Any]:
        nonlocal calls
        try:
            return real(client, action, parameters)
        finally:
            calls += 1
            if calls == after:
                os.kill(os.getpid(), signal.SIGKILL)

    return call


def main() -> None:
    """Serve lines until standard input is closed."""
    options = json.loads(sys.argv[1])
    if not options["endpoint"].startswith("http://127.0.0.1:"):
        raise SystemExit("only a simulation on this machine is spoken to")
    api = Api(options["region"], endpoint=options["endpoint"], retry=RetryPolicy(**options["retry"]))
    real = api_module.invoke
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            vars(api_module)["invoke"] = killing(order["kill_after"], real)
            folder = Path(order["folder"])
            ledger = Ledger(folder / "ledger.jsonl")
            spec = from_mapping(order["spec"])
            provision(api, spec, ledger, folder / "ssh")
            os._exit(0 if teardown(api, spec.run, ledger).clean else 3)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            print("killed", flush=True)
        else:
            print("done" if os.waitstatus_to_exitcode(status) == 0 else f"exit {status}", flush=True)


if __name__ == "__main__":
    main()

"""The playbooks prepare and deploy once more on what a run has up: seconds, and how many tasks changed anything.

`python -m bench.hosts_again RUN`, a helper of bench/hosts.py: it is started inside the network of the hosts.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from microshard.cli.backends import of_run
from microshard.records.run_folder import RunFolder


def main() -> int:
    """Print {"seconds", "changed"} as JSON."""
    run = RunFolder.open(Path(sys.argv[1]))
    backend = of_run(run)
    (variables,) = run.path.glob("points/*/vars.json")
    changed: list[str] = []

    def listen(event: dict[str, Any]) -> None:
        if event.get("status") == "changed":
            changed.append(str(event.get("task")))

    (run.path / "tmp").mkdir(exist_ok=True)
    playbooks = backend.playbooks(run, listen)
    began = time.perf_counter()
    with playbooks.kept():
        for name in ("prepare", "deploy"):
            playbooks.run(name, variables)
    print(json.dumps({"seconds": time.perf_counter() - began, "changed": len(changed), "tasks": changed}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

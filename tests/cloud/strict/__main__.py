"""`python -m tests.cloud.strict`: the simulation in a process of its own; it prints its address."""

import argparse
import sys

from . import Simulation, Timing


def main() -> None:
    """Serve until standard input is closed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--pending", type=float, default=0.0, help="seconds until an instance runs")
    parser.add_argument("--terminating", type=float, default=0.0, help="seconds until an instance is gone")
    parser.add_argument("--consistency", type=float, default=0.0, help="seconds until a new resource is visible")
    options = parser.parse_args()
    timing = Timing(options.pending, options.terminating, options.consistency)
    with Simulation(timing=timing).serving(options.port) as simulation:
        print(simulation.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()

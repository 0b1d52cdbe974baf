"""A bed by hand: `python -m tests.hosts.bed up 3`, `status`, `down [NAME…]`."""

import argparse
import shlex
import sys

from tests.hosts.bed.lab import Bed, BedError, beds, lacking, make


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.hosts.bed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="make a bed that stays until `down`")
    up.add_argument("count", type=int, nargs="?", default=3)
    commands.add_parser("status", help="which beds there are")
    down = commands.add_parser("down", help="remove beds; without names those that were made with `up`")
    down.add_argument("names", nargs="*")
    chosen = parser.parse_args()
    missing = lacking()
    if missing:
        print(missing, file=sys.stderr)
        return 4
    try:
        if chosen.command == "up":
            _tell(make(chosen.count, owner=None))
        elif chosen.command == "status":
            for one in beds():
                _tell(one)
        else:
            for one in beds():
                if one.name in chosen.names or (not chosen.names and one.owner is None):
                    one.down()
                    print(f"{one.name} is gone")
    except BedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _tell(one: Bed) -> None:
    print(f"{one.name}: {', '.join(f'{m.name} {m.address}' for m in one.machines)}")
    print(f"  inventory  {one.inventory}")
    print(f"  on its network  {shlex.join(one.inside(['COMMAND']))}")
    print(f"  ssh  {shlex.join(one.inside(['ssh', *one.ssh_options, f'lab@{one.machines[0].address}']))}")
    print(f"  down  python -m tests.hosts.bed down {one.name}")


if __name__ == "__main__":
    sys.exit(main())

"""`python3 -m setup`: turn away Pythons that are too old or incomplete before they meet a line they cannot read."""

import sys

from setup.python_version import installed_candidates, too_old

problem = too_old(sys.version_info[:2], installed_candidates())
if problem:
    sys.exit("set-up stopped: " + problem)

try:
    from setup.command import main
except ModuleNotFoundError as error:
    sys.exit(
        "set-up stopped: " + sys.executable + " lacks the standard module " + str(error.name) + ".\n"
        "  Install the whole of Python (Debian, Ubuntu: `apt install python3 python3-venv`)."
    )

sys.exit(main())

"""What happens where a machine lacks what these tests need."""

import os

import pytest

REQUIRED = "MICROSHARD_TEST_HOSTS"  # set to `required` by .ci/run


def need(missing: str) -> None:
    """Go on when nothing is missing; else skip with the reason, or fail where all is required: root can mend it."""
    if not missing:
        return
    if os.environ.get(REQUIRED) == "required" and os.geteuid() == 0:
        pytest.fail(f"{REQUIRED}=required, and {missing}")
    pytest.skip(missing)

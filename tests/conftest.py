"""For all tests: the end of a run says in one line what this machine could not run, and why."""

import re
from collections import Counter

import pytest

DESELECTED = pytest.StashKey[int]()


def pytest_deselected(items: list[pytest.Item]) -> None:
    if items:
        stash = items[0].config.stash
        stash[DESELECTED] = stash.get(DESELECTED, 0) + len(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons = Counter(skip_reason(report) for report in terminalreporter.stats.get("skipped", []))
    left_out = config.stash.get(DESELECTED, 0)
    line = not_run(reasons, left_out, config.getoption("-m"))
    if line:
        terminalreporter.write_line(line)


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    # pytest keeps (file, line, "Skipped: reason") of a skipped test
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return re.sub(r"^Skipped: ", "", text).strip().splitlines()[0]


def not_run(reasons: Counter[str], left_out: int, selection: str) -> str:
    parts = [f"{count} because {reason}" for reason, count in reasons.most_common()]
    if left_out:
        parts.append(f"{left_out} slow (make test-slow)" if selection == "not slow" else f"{left_out} not selected")
    return f"Not run: {'; '.join(parts)}." if parts else ""

"""Execute a prepared run, and report how it ended."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from microshard.errors import EXIT_FAILED, EXIT_OK
from microshard.experiment.errors import Problem
from microshard.model.plan import Plan
from microshard.plan.wording import duration
from microshard.records.run_folder import RunFolder
from microshard.report import NotWrittenError, build, write
from microshard.report.format import count
from microshard.report.table import final
from microshard.run.outcome import Meter, Outcome
from microshard.run.prepare import PreparedRun, write_run
from microshard.run.progress import Progress
from microshard.run.runner import Runner


def execute(ready: PreparedRun, runs: Path, console: Console) -> int:
    """Run a plan and print its results. Returns the exit code.

    Raises MicroshardError for what keeps the run from starting at all.
    """
    plan = ready.plan
    ready.backend.check_room(plan)
    binaries = ready.backend.binaries(plan)
    folder = RunFolder.create(runs, plan.name)
    with folder.lock():
        try:
            write_run(folder, ready, binaries)
            announce(plan, [*ready.loaded.warnings, *ready.backend.remarks()], folder, console)
        except BaseException:
            for name in ("deployments", "tmp", "secrets"):  # nothing runs yet
                shutil.rmtree(folder / name, ignore_errors=True)
            raise
        with Progress(folder, plan, console) as progress:
            hours = ready.loaded.experiment.budget.max_hours
            runner = Runner(folder, plan, binaries, progress, backend=ready.backend, meter=Meter(hours))
            outcome = runner.run()
        report(folder, outcome, console)
    return outcome.exit_code


def announce(plan: Plan, warnings: Sequence[Problem | str], folder: RunFolder, console: Console) -> None:
    """Print the size of the plan, warnings, and differences from the experiment's lock."""
    console.print(f"[bold]{plan.title}[/bold]")
    console.print(
        f"{count(len(plan.points), 'point')} × {count(plan.repetitions, 'repetition')}, "
        f"about {duration(plan.estimate_seconds)}, "
        f"{plan.memory_mib:,} MiB of RAM and {plan.disk_bytes / 1e9:.1f} GB of disk at most; in {folder.path}",
        highlight=False,
        soft_wrap=True,
    )
    for warning in (*map(str, warnings), *plan.warnings):
        console.print(f"[yellow]note:[/yellow] {warning}", highlight=False)
    for change in folder.run_lock().differs_from_lock:
        console.print(f"[yellow]not as in the lock:[/yellow] {change}", highlight=False, soft_wrap=True)


def report(folder: RunFolder, outcome: Outcome, console: Console) -> None:
    """Write the report and print how the run ended.

    Raises NotWrittenError when that is the only thing, or the worst one, that went wrong; after the rest is printed.
    """
    not_written = _write_report(folder, console) if outcome.done else None
    _print_failures(outcome, console)
    if outcome.unprepared:
        word = "aborted" if outcome.done else "not prepared"
        console.print(f"[red]{word}:[/red] {outcome.unprepared}", highlight=False, soft_wrap=True)
    if outcome.over_budget:
        console.print(f"[yellow]{outcome.over_budget}[/yellow]: the remaining measurements were skipped")
    if outcome.stopped_by is not None:
        console.print(f"Stopped by signal {outcome.stopped_by}; everything that was started is stopped.")
    for point, connection in outcome.kept.items():
        console.print(f"{point} is still running: {connection}", highlight=False, soft_wrap=True)
    if outcome.kept:
        console.print(f"Stop with: microshard down {folder.run_id}", highlight=False, soft_wrap=True)
    for item in outcome.left:
        console.print(f"[red]left behind:[/red] {item}", highlight=False)
    share = outcome.orchestration / outcome.seconds if outcome.seconds else 0.0
    console.print(
        f"[dim]{duration(outcome.seconds)}: loading {duration(outcome.loading)}, "
        f"measuring {duration(outcome.measuring)}, overhead {duration(outcome.orchestration)} ({share:.0%}). "
        f"Logs and results: {folder.path}[/dim]",
        highlight=False,
        soft_wrap=True,
    )
    if not_written and outcome.exit_code in {EXIT_OK, EXIT_FAILED}:
        raise not_written
    if not_written:
        console.print(f"[red]{not_written}[/red]", highlight=False, soft_wrap=True)


def _write_report(folder: RunFolder, console: Console) -> NotWrittenError | None:
    """Print the table and write the report. Returns the error when it cannot be written."""
    console.print(final(build(folder.path), width=console.width))
    try:
        console.print(f"Report: {write(folder.path)}", soft_wrap=True, highlight=False)
    except NotWrittenError as error:
        return error
    return None


def _print_failures(outcome: Outcome, console: Console) -> None:
    for point, message in outcome.wrong.items():
        console.print(f"[red]{point} is not valid:[/red] {message}", highlight=False)
    for step, reason in outcome.invalid.items():
        if step.partition(" ")[0] not in outcome.wrong:
            console.print(f"[red]{step} stayed invalid:[/red] {reason}", highlight=False)
    if outcome.failed and not outcome.unprepared:
        console.print(f"[red]{len(outcome.failed)} point(s) failed[/red]: {', '.join(outcome.failed)}", highlight=False)

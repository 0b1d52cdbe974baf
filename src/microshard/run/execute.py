"""Execute a prepared run, and report how it ended."""

import dataclasses
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from microshard.analysis.advice import over_others, price
from microshard.errors import EXIT_FAILED, EXIT_OK
from microshard.experiment.errors import Problem
from microshard.model.advice import Advice, SearchRequest
from microshard.model.plan import Plan
from microshard.plan.render import count, duration
from microshard.records.run_folder import RunFolder
from microshard.report import NotWrittenError, build, write
from microshard.report.table import final
from microshard.run.backend import Binaries
from microshard.run.completed_steps import RunProgress
from microshard.run.data_images import data_sentences, refuse_missing_images
from microshard.run.outcome import Meter, Outcome
from microshard.run.prepare import PreparedRun, write_run
from microshard.run.progress import Progress
from microshard.run.runner import Runner
from microshard.run.search_steps import SearchSteps


def execute(ready: PreparedRun, runs: Path, console: Console) -> int:
    """Run a plan and print its results. Returns the exit code.

    Raises MicroshardError for what keeps the run from starting at all.
    """
    plan = ready.plan
    ready.backend.check_room(plan)
    binaries = ready.backend.binaries(plan)
    refuse_missing_images(plan, binaries, runs)
    folder = RunFolder.create(runs, plan.name)
    with folder.lock():
        try:
            write_run(folder, ready, binaries)
            announce(plan, [*ready.loaded.warnings, *ready.backend.remarks()], folder, console, ready.request.search)
            for sentence in data_sentences(plan, binaries, runs):
                console.print(sentence, highlight=False, soft_wrap=True)
        except BaseException:
            for name in ("deployments", "tmp", "secrets"):  # nothing runs yet
                shutil.rmtree(folder / name, ignore_errors=True)
            raise
        return execute_steps(folder, ready, binaries, RunProgress((), plan.steps), console)


def execute_steps(
    folder: RunFolder, ready: PreparedRun, binaries: Mapping[str, Binaries], done: RunProgress, console: Console
) -> int:
    """Execute the remaining steps of a plan, and report on all. Returns the exit code."""
    plan = ready.plan
    request = ready.request.search
    search = SearchSteps(request, plan, done.completed) if request else None
    with Progress(folder, search.shown() if search else plan, console) as progress:
        meter = search.meter if search else Meter(ready.loaded.experiment.budget.max_hours)
        rest = dataclasses.replace(plan, steps=done.remaining)
        runner = Runner(folder, rest, binaries, progress, backend=ready.backend, meter=meter, source=search)
        runner.outcome.add_completed([done])
        runner.recorder.restore(done.completed, len(plan.steps) - len(done.remaining))
        for item in done.completed:
            progress.step_done(item.step, item.result)
        outcome = runner.run()
    advice = search.conclude(folder) if search else None
    report(folder, outcome, console)
    if search:
        return tell(search, advice, console) or outcome.exit_code
    return outcome.exit_code


def tell(search: SearchSteps, advice: Advice | None, console: Console) -> int:
    """Print the answer of a search, its price, what would change it, and the sweep that checks it.

    Returns the exit code: not 0 where the search is at its end without an answer.
    """
    say = partial(console.print, highlight=False, soft_wrap=True, markup=False)
    console.print()
    if advice is None:
        if search.ended is None:
            return EXIT_OK  # it was interrupted
        say(f"No recommendation: {search.ended.reason}.", style="bold")
        for name, message in search.left_out().items():
            say(f"Left out: {name}: {message}", style="yellow")
        return EXIT_FAILED
    say(f"{advice.sentence}; {price(advice, duration(advice.seconds))}.", style="bold")
    for reason in advice.reasons:
        say(f"Why: {reason}.")
    for change in advice.changes:
        say(f"What would change it: {change}.")
    for sentence in over_others(advice):
        say(f"{sentence}.")
    for name, message in advice.excluded.items():
        say(f"Left out: {name}: {message}", style="yellow")
    say("The sweep that checks it, with the rest of the experiment as it is:")
    say(advice.check, style="dim", end="")
    return EXIT_OK


def announce(
    plan: Plan,
    warnings: Sequence[Problem | str],
    folder: RunFolder,
    console: Console,
    search: SearchRequest | None = None,
) -> None:
    """Print the size of the plan or search, warnings, and differences from the experiment's lock."""
    say = partial(console.print, highlight=False, soft_wrap=True)
    say(f"[bold]{plan.title}[/bold]")
    needs = f"{plan.memory_mib:,} MiB of RAM and {plan.disk_bytes / 1e9:.1f} GB of disk at most; in {folder.path}"
    if search:
        share = 1.0 if plan.backend == "ec2" else search.most / len(plan.steps)  # there the estimate is the search's
        most, counts = count(search.most, "measurement"), count(len(search.counts), "shard count")
        say(
            f"Search over {counts}{_settings(search)}: at most {most} of the {search.grid} of the full grid, "
            f"about {duration(plan.estimate_seconds * share)}, {needs}"
        )
    else:
        sizes = f"{count(len(plan.points), 'point')} × {count(plan.repetitions, 'repetition')}"
        say(f"{sizes}, about {duration(plan.estimate_seconds)}, {needs}")
    for warning in (*map(str, warnings), *plan.warnings):
        say(f"[yellow]note:[/yellow] {warning}")
    for change in folder.run_lock().differs_from_lock:
        say(f"[yellow]not as in the lock:[/yellow] {change}")


def _settings(search: SearchRequest) -> str:
    return f" with each of {count(len(search.settings), 'setting')}" if len(search.settings) > 1 else ""


def report(folder: RunFolder, outcome: Outcome, console: Console) -> None:
    """Write the report and print how the run ended.

    Raises NotWrittenError when that is the only thing, or the worst one, that went wrong; after the rest is printed.
    """
    say = partial(console.print, highlight=False, soft_wrap=True)
    not_written = _write_report(folder, console) if outcome.done else None
    for line in (*_failures(outcome), *_ending(folder, outcome)):
        say(line)
    share = outcome.orchestration / (outcome.fleet_seconds or outcome.seconds or 1.0)
    say(
        f"[dim]{duration(outcome.seconds)}: loading {duration(outcome.loading)}, "
        f"measuring {duration(outcome.measuring)}, overhead {duration(outcome.orchestration)} ({share:.0%}). "
        f"Logs and results: {folder.path}[/dim]"
    )
    if not_written and outcome.exit_code in {EXIT_OK, EXIT_FAILED}:
        raise not_written
    if not_written:
        say(f"[red]{not_written}[/red]")


def _write_report(folder: RunFolder, console: Console) -> NotWrittenError | None:
    """Print the table and write the report. Returns the error when it cannot be written."""
    console.print(final(build(folder.path), width=console.width))
    try:
        console.print(f"Report: {write(folder.path)}", highlight=False, soft_wrap=True)
    except NotWrittenError as error:
        return error
    return None


def _failures(outcome: Outcome) -> Iterator[str]:
    for point, message in outcome.wrong.items():
        yield f"[red]{point} is not valid:[/red] {message}"
    for step, reason in outcome.invalid.items():
        if step.partition(" ")[0] not in outcome.wrong:
            yield f"[red]{step} stayed invalid:[/red] {reason}"
    if outcome.failed and not outcome.unprepared:
        yield f"[red]{count(len(outcome.failed), 'point')} failed[/red]: {', '.join(outcome.failed)}"


def _ending(folder: RunFolder, outcome: Outcome) -> Iterator[str]:
    if outcome.unprepared:
        word = "aborted" if outcome.done else "not prepared"
        yield f"[red]{word}:[/red] {outcome.unprepared}"
    if outcome.over_budget:
        yield f"[yellow]{outcome.over_budget}[/yellow]: the remaining measurements were skipped"
    if outcome.stopped_by is not None:
        word = "Interrupted" if outcome.stopped_by == signal.SIGINT else signal.Signals(outcome.stopped_by).name
        yield f"{word}; everything that was started is stopped. Continue: microshard resume {folder.named}"
    for point, connection in outcome.kept.items():
        yield f"{point} is still running: {connection}"
    if outcome.kept:
        yield f"Stop with: microshard down {folder.named}"
    for item in outcome.left:
        yield f"[red]left behind:[/red] {item}"

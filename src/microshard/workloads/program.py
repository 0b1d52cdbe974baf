"""`python -m microshard.workloads --job JOB --out RESULT [--progress FILE]`: run the phases of a job.

Exit codes: 0 all phases done; 3 a phase failed (the result says why) or the result cannot be written (standard error
says why); 2 the job is wrong (no result is written); 143 ended by SIGTERM (130 by SIGINT), the result then holds the
error and what was finished before.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import pymongo
from pymongo.errors import PyMongoError

from microshard.hostlib.proc import Terminated
from microshard.model.job import Job, JobError
from microshard.model.result import PhaseFailure, PhaseResult, StepResult
from microshard.records.run_folder import DiskError, write_json
from microshard.workloads import several_hosts
from microshard.workloads.base import Context, Engine, PhaseError, ProgressFile, cpu_seconds
from microshard.workloads.connections import read_job
from microshard.workloads.rate_search import engine_of
from microshard.workloads.servers import latencies_between, operation_times, operations_by_way

FAILED = 3
BAD_JOB = 2


def run_phase(engine: Engine[Any]) -> tuple[PhaseResult, BaseException | None]:
    """Run one engine to its end; errors are in its result, and returned."""
    job = engine.context.job
    processes, names = job.point.processes, _namespaces(engine)
    times = operation_times(processes, names)  # before the clock is read: it is no part of the phase
    began, clock, cpu = time.time(), time.monotonic(), cpu_seconds()
    failure: BaseException | None = None
    routed = operations_by_way(processes)
    try:
        try:
            if job.after:
                engine.verify()
            elif job.part.of > 1 or engine.phase.kind == "measure":
                _run_watched(engine)
            else:
                engine.prepare()
                engine.run()
        finally:
            engine.close()
    except (PhaseError, PyMongoError, OSError) as error:
        failure = error
    except Terminated as signal:
        failure = signal
        engine.close()  # the signal may have interrupted close itself; further signals are ignored
    result = engine.result()
    result.started = result.started or began
    result.ended = result.ended or time.time()
    result.seconds = time.monotonic() - clock
    if not result.client_cpu_seconds:
        result.client_cpu_seconds = cpu_seconds() - cpu
    if routed and failure is None:
        after = operations_by_way(processes)
        result.details = {**result.details, "routing": {way: after.get(way, 0) - n for way, n in routed.items()}}
    if times and failure is None:
        result.server_latency = latencies_between(times, operation_times(processes, names), len(names))
    if failure is not None:
        kind = failure.kind if isinstance(failure, PhaseError) else type(failure).__name__
        text = f"ended by {failure}" if isinstance(failure, Terminated) else str(failure)
        result.error = PhaseFailure(kind, text)
    return result, failure


def _run_watched(engine: Engine[Any]) -> None:
    """A measurement, or this host's part of what several do together: void where the host stood still meanwhile."""
    watch = several_hosts.HostWatch()
    watch.start()
    engine.prepare()
    if engine.context.job.start_at is not None and not engine.starts_itself:
        engine.outcome.details["clock_offset"] = several_hosts.begin_together(engine.context, engine.phase.name)
    engine.run()
    watch.stop()


def _namespaces(engine: Engine[Any]) -> list[str]:
    """The collections whose latencies in the servers are read before and after a measured phase.

    Not with several client hosts: each would report what the servers did for all of them.
    """
    job = engine.context.job
    if engine.phase.kind != "measure" or job.part.of > 1 or job.after:
        return []
    own = getattr(engine.keys, "namespace", None)
    return sorted({*(c.namespace for c in job.point.collections), *([own] if own else [])})


def run_job(job: Job, progress: ProgressFile, folder: Path | None = None) -> tuple[StepResult, int]:
    """Run the phases until one fails; the result and the exit code. Raises JobError before any is run."""
    context = Context(job, progress, folder)
    # All parameters are read before the first phase begins: a mistake in the last one must not cost a load.
    engines = [engine_of(phase, context) for phase in job.phases]
    results: list[PhaseResult] = []
    code = 0
    for engine in engines:
        result, failure = run_phase(engine)
        results.append(result)
        if failure is not None:
            code = failure.exit_code if isinstance(failure, Terminated) else FAILED
            break
    problems = [f"{r.name}: {r.error.type}: {r.error.message}" for r in results if r.error]
    return StepResult(
        point=job.point.id,
        axes=dict(job.point.axes),
        step=job.step.name,
        purpose=job.step.purpose,
        valid=not problems,
        problems=problems,
        phases=results,
        driver=f"PyMongo {pymongo.version}",
    ), code


def main(arguments: list[str] | None = None) -> int:
    """Read the job, run it, write the result; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m microshard.workloads", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--job", type=Path, required=True, help="what to run: JSON, see docs/contracts.md")
    parser.add_argument("--out", type=Path, required=True, help="where the result is written")
    parser.add_argument("--progress", type=Path, help="JSON lines are appended here while it runs")
    options = parser.parse_args(arguments)
    progress: ProgressFile | None = None
    try:
        try:
            data = json.loads(options.job.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise JobError(f"cannot read the job {options.job}: {error}") from None
        progress = ProgressFile(options.progress)
        result, code = run_job(read_job(data), progress, options.out.with_suffix("").absolute())
    except JobError as error:
        print(f"microshard.workloads: {error}", file=sys.stderr)
        return BAD_JOB
    except Terminated as signal:  # between two phases
        code = signal.exit_code
        result = StepResult(valid=False, problems=[f"ended by {signal}"])
    except OSError as error:
        print(f"microshard.workloads: {error.filename or options.progress}: {error.strerror or error}", file=sys.stderr)
        return FAILED
    finally:
        if progress is not None:
            progress.close()
    try:
        write_json(options.out, result)
    except DiskError as error:
        print(f"microshard.workloads: {error}", file=sys.stderr)
        return FAILED
    for problem in result.problems:
        print(f"microshard.workloads: {problem}", file=sys.stderr)
    return code

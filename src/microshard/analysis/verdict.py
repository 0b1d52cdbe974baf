"""The verdict on a phase: its bottleneck, the figures that rests on, and the resource that came second."""

from collections.abc import Callable, Sequence

from microshard.analysis.bottleneck_rules import Candidate, busiest_host, candidates, skewed
from microshard.analysis.evidence import Evidence, gather
from microshard.analysis.telemetry import StepTelemetry, summarise
from microshard.model.ec2_facts import EbsOfInstance
from microshard.model.plan import Point
from microshard.model.result import RunnerUp, StepResult, Verdict

FEWEST_RECORDS = 1  # whole records of each host in the phase
NEAR = 0.5  # a runner-up is at least half-way to its threshold
ALWAYS_ON_A_CPU = 0.8  # of the operations in flight: more of them is what would use more cores


def judge(evidence: Evidence) -> Verdict:
    """The bottleneck by the rules; "none" when nothing was at its limit, "unknown" without enough telemetry."""
    if evidence.records < FEWEST_RECORDS:
        reason = f"the phase of {evidence.seconds:.1f} s is shorter than the sampling interval; measure longer"
        return Verdict("unknown", reason, {"seconds": evidence.seconds, "records": float(evidence.records)})
    found = candidates(evidence)
    if found and found[0].holds:
        if (skew := skewed(found[0], evidence.shard_of)) is not None:
            return _verdict(skew, found[0])
        return _verdict(found[0], found[1] if len(found) > 1 and found[1].score >= NEAR else None)
    host = busiest_host(evidence)
    levels = {} if host is None else {"busy": host.busy, "cores": host.cores}
    nearest = found[0] if found and found[0].score >= NEAR else None
    return _verdict(Candidate("none", 0.0, _nothing(evidence), levels), nearest)


def _verdict(first: Candidate, second: Candidate | None) -> Verdict:
    runner_up = None
    if second is not None:
        score = float(f"{second.score:.4g}")
        runner_up = RunnerUp(second.name, second.sentence, _rounded(second), score, second.holds)
    return Verdict(first.name, first.sentence, _rounded(first), runner_up)


def _rounded(candidate: Candidate) -> dict[str, float]:
    return {key: float(f"{value:.4g}") for key, value in candidate.figures.items()}


def _nothing(evidence: Evidence) -> str:
    host = busiest_host(evidence)
    busy = f"; the cores of {host.place} were {host.busy:.0%} busy".replace("%", " %") if host else ""
    used = sum(sum(h.roles.values()) - h.roles.get("others", 0.0) for h in evidence.hosts)
    if evidence.concurrency and used / evidence.concurrency >= ALWAYS_ON_A_CPU:
        return (
            f"nothing was at its limit{busy}, and each of the {evidence.concurrency} operations in flight was always "
            "on a CPU: more operations at a time would do more"
        )
    return f"nothing was at its limit{busy}"


def attach(
    result: StepResult,
    telemetry: StepTelemetry,
    point: Point,
    ebs_of: Callable[[str], EbsOfInstance | None] = lambda _: None,
) -> None:
    """Add a verdict to each phase of a result that has an interval and did not fail.

    `ebs_of`: instance type → what its EBS volumes may do together.
    """
    types = {host: str(known.get("instance_type", "")) for host, known in result.environment.items()}
    for phase in result.phases:
        if phase.interval is not None and phase.error is None:
            summary = summarise(telemetry.hosts, telemetry.servers, *phase.interval, whole=True)
            phase.verdict = judge(gather(phase, summary, point, types, ebs_of))
            for loop in phase.open_loop.values():
                if not loop.reached:
                    phase.verdict.sentence += f"; {loop.sentence}"


def main_bottleneck(result: StepResult) -> str:
    """The bottleneck of a result's first measured phase; empty when it has none."""
    return next((p.verdict.name for p in result.phases if p.kind == "measure" and p.verdict is not None), "")


def most_frequent(names: Sequence[str]) -> str:
    """The most frequent verdict of several measurements, of two equally frequent ones the earlier; "" of none."""
    return max(dict.fromkeys(names), key=names.count, default="")

"""The verdict on a phase: the named bottleneck, the figures it rests on, and what came next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from microshard.analysis.bottleneck_rules import Bottleneck, Finding, busiest_host, findings, skewed
from microshard.analysis.evidence import Evidence, gather
from microshard.analysis.telemetry import Telemetry, summarise

FEWEST_RECORDS = 1  # whole records of each host in the phase
NEAR = 0.5  # a runner-up is at least half-way to its threshold
ALWAYS_ON_A_CPU = 0.8  # of the operations in flight: more of them is what would use more cores


@dataclass(frozen=True, slots=True)
class Verdict:
    """The bottleneck of one phase of one step."""

    name: Bottleneck
    sentence: str
    figures: Mapping[str, float]
    runner_up: Finding | None = None

    def as_json(self) -> dict[str, Any]:
        """As it stands in a result file."""
        second = self.runner_up
        return {
            "name": self.name,
            "sentence": self.sentence,
            "figures": {key: _short(value) for key, value in self.figures.items()},
            "runner_up": None
            if second is None
            else {
                "name": second.name,
                "sentence": second.sentence,
                "figures": {key: _short(value) for key, value in second.figures.items()},
                "score": _short(second.score),
                "holds": second.holds,
            },
        }


def judge(evidence: Evidence) -> Verdict:
    """The bottleneck by the rules; "none" when nothing was at its limit, "unknown" without enough telemetry."""
    if evidence.records < FEWEST_RECORDS:
        length = f"{evidence.seconds:.1f} s"
        reason = f"no whole record of a host lies in this phase of {length}; measure longer"
        return Verdict("unknown", reason, {"seconds": evidence.seconds, "records": float(evidence.records)})
    found = findings(evidence)
    if found and found[0].holds:
        skew = skewed(found[0])
        if skew is not None:
            return Verdict("skew", skew.sentence, skew.figures, found[0])
        rest = found[1] if len(found) > 1 and found[1].score >= NEAR else None
        return Verdict(found[0].name, found[0].sentence, found[0].figures, rest)
    nearest = found[0] if found and found[0].score >= NEAR else None
    return Verdict("none", _nothing(evidence), _levels(evidence), nearest)


def _nothing(evidence: Evidence) -> str:
    host = busiest_host(evidence)
    busy = f"; the cores of {host.name} were {host.busy:.0%} busy".replace("%", " %") if host else ""
    used = sum(sum(h.roles.values()) - h.roles.get("others", 0.0) for h in evidence.hosts)
    if evidence.concurrency and used / evidence.concurrency >= ALWAYS_ON_A_CPU:
        return (
            f"nothing was at its limit{busy}, and each of the {evidence.concurrency} operations in flight was always "
            "on a CPU somewhere: more of them at a time would do more"
        )
    return f"nothing was at its limit{busy}"


def _levels(evidence: Evidence) -> dict[str, float]:
    host = busiest_host(evidence)
    return {} if host is None else {"busy": host.busy, "cores": host.cores}


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def attach(result: dict[str, Any], telemetry: Telemetry, point: Mapping[str, Any]) -> None:
    """Put `verdict` beside each phase of a result that has an interval. `point` is the plan's point as JSON."""
    for phase in result.get("phases", []):
        started, ended = phase.get("started"), phase.get("ended")
        if not started or not ended or phase.get("error"):
            continue
        summary = summarise(telemetry.hosts, telemetry.servers, float(started), float(ended), whole=True)
        phase["verdict"] = judge(gather(phase, summary, point)).as_json()


def main_name(result: Mapping[str, Any]) -> str:
    """The bottleneck of a result's first measured phase; empty when it has none."""
    phases: Sequence[Mapping[str, Any]] = result.get("phases", [])
    return next(
        (
            str(p["verdict"]["name"])
            for p in phases
            if p.get("kind") == "measure" and isinstance(p.get("verdict"), dict)
        ),
        "",
    )


def most_frequent(names: Sequence[str]) -> str:
    """The verdict of several measurements of one point: what most say, of two as frequent the earlier; "" of none."""
    return max(dict.fromkeys(names), key=names.count, default="")

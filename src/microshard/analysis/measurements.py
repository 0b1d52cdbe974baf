"""From result files to measurements."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from microshard.analysis.evidence import ROLES
from microshard.analysis.phase_details import further, parts_of
from microshard.analysis.read_run import items, mapping, number, text
from microshard.analysis.report_model import CpuSplit, Measurement, PhaseFigures, Storage, Verdict
from microshard.analysis.statistics import Better, median_estimate
from microshard.analysis.verdict import most_frequent


def measurements(
    point: Mapping[str, Any], step: str, order: int, result: Mapping[str, Any], fallback: Sequence[Mapping[str, Any]]
) -> list[Measurement]:
    """All phases of one result file. `fallback` are the point's phases in the plan, for kinds a result lacks."""
    kinds = {text(phase.get("name")): text(phase.get("kind")) for phase in fallback}
    questions = {text(phase.get("name")): _question(fallback, phase) for phase in fallback}
    roles = {text(process.get("name")): text(process.get("role")) for process in items(point.get("processes"))}
    return [
        _measurement(text(point.get("id")), step, order, result, phase, kinds, questions, roles)
        for phase in items(result.get("phases"))
        if isinstance(phase, dict)
    ]


def _question(phases: Sequence[Mapping[str, Any]], phase: Mapping[str, Any]) -> str:
    """What decides an answer: the data loaded and the query. The topology never does.

    The plan says both; a plan without is read by the parameters of the engines that have always been there.
    """
    if phase.get("question") is not None:
        data: list[Any] = [p["data"] for p in phases if p.get("data") is not None]
        return json.dumps([data, phase.get("name"), phase["question"]], sort_keys=True, default=str)
    data = [_chosen(p, "dataset", "namespace", "documents", "seed") for p in phases if p.get("kind") == "load"]
    return json.dumps([data, phase.get("name"), _chosen(phase, "namespace", "pipeline", "pipeline_name")], default=str)


def _chosen(phase: Mapping[str, Any], *names: str) -> dict[str, Any]:
    parameters = mapping(phase.get("parameters"))
    return {name: parameters.get(name) for name in names}


def _measurement(
    point: str,
    step: str,
    order: int,
    result: Mapping[str, Any],
    phase: Mapping[str, Any],
    kinds: Mapping[str, str],
    questions: Mapping[str, str],
    roles: Mapping[str, str],
) -> Measurement:
    name = text(phase.get("name")) or "measure"
    metric = mapping(phase.get("metric"))
    samples = tuple(v for v in map(number, items(phase.get("samples"))) if v is not None)
    value = number(metric.get("value"))
    if value is None and samples:
        value = statistics.median(samples)
    error = mapping(phase.get("error"))
    problems = [text(problem) for problem in items(result.get("problems"))]
    if error:
        problems.append(f"{name}: {text(error.get('message')) or text(error.get('type'))}")
    better: Better = "higher" if metric.get("better") == "higher" else "lower"
    telemetry = mapping(phase.get("telemetry"))
    cpu, processes = _cpu(mapping(telemetry.get("cpu"))), mapping(telemetry.get("processes"))
    return Measurement(
        point=point,
        step=step,
        purpose=text(result.get("purpose")) or ("drift" if step.startswith("drift") else "measure"),
        order=order,
        phase=name,
        kind=text(phase.get("kind")) or kinds.get(name, "measure"),
        metric=text(metric.get("name")) or name,
        unit=text(metric.get("unit")),
        better=better,
        value=None if error else value,
        valid=result.get("valid") is not False and not error,
        problems=tuple(dict.fromkeys(problems)),
        started=number(phase.get("started")),
        ended=number(phase.get("ended")),
        samples=samples,
        client_cpu_seconds=number(phase.get("client_cpu_seconds")),
        errors=number(mapping(phase.get("counters")).get("errors")) or 0.0,
        question=questions.get(name, name),
        answer=text(phase.get("answer_sha256")) or None,
        cpu=cpu,
        roles={**_roles(processes, roles), **_others(cpu, processes, mapping(telemetry.get("hosts")))},
        storage=_storage(mapping(phase.get("storage")), telemetry),
        notes=mapping(phase.get("notes")),
        verdict=_verdict(mapping(phase.get("verdict"))),
        parts=parts_of(phase),
        limited=text(mapping(phase.get("details")).get("limited")),
    )


def _verdict(told: Mapping[str, Any]) -> Verdict | None:
    """The verdict in a result file; None where a phase was not judged."""
    if not text(told.get("name")):
        return None
    second = mapping(told.get("runner_up"))
    return Verdict(
        name=text(told["name"]),
        sentence=text(told.get("sentence")),
        figures={key: v for key, value in mapping(told.get("figures")).items() if (v := number(value)) is not None},
        runner_up=text(second.get("name")),
        runner_up_sentence=text(second.get("sentence")),
        runner_up_holds=second.get("holds") is True,
    )


def common_verdict(found: Sequence[Measurement]) -> Verdict | None:
    """What most measurements say, of two as frequent the earlier; the witness is the one of them in the middle."""
    judged = [m.verdict for m in found if m.verdict is not None]
    name = most_frequent([verdict.name for verdict in judged])
    same = [verdict for verdict in judged if verdict.name == name]
    return replace(same[(len(same) - 1) // 2], votes=len(same), of=len(judged)) if same else None


def _cpu(cpu: Mapping[str, Any]) -> CpuSplit | None:
    """Shares 0 to 1; None unless all four are there."""
    user, system, iowait, idle = (number(cpu.get(name)) for name in ("user", "sys", "iowait", "idle"))
    if user is None or system is None or iowait is None or idle is None:
        return None
    return CpuSplit(user, system, iowait, idle, number(cpu.get("steal")) or 0.0)


def _roles(processes: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, float]:
    """Mean cores by role, summed over its processes."""
    sums: dict[str, float] = {}
    for name, usage in processes.items():
        cores = number(mapping(usage).get("cpu_mean"))
        owner = name.split("/", 1)[0]
        role = ROLES.get("client" if owner == "client" else roles.get(owner, ""))
        if cores is not None and role is not None:
            sums[role] = sums.get(role, 0.0) + cores
    return sums


def _others(cpu: CpuSplit | None, processes: Mapping[str, Any], hosts: Mapping[str, Any]) -> dict[str, float]:
    """Mean cores that none of the run's processes used: other programs, and the kernel's own work."""
    cores = sum(number(mapping(host).get("cores")) or 0.0 for host in hosts.values())
    if cpu is None or not cores or not processes:
        return {}
    ours = sum(number(mapping(usage).get("cpu_mean")) or 0.0 for usage in processes.values())
    return {"others": max(0.0, cpu.busy * cores - ours)}


def _storage(storage: Mapping[str, Any], telemetry: Mapping[str, Any]) -> Storage | None:
    data, index = number(storage.get("data_bytes")), number(storage.get("index_bytes"))
    db_path = number(storage.get("db_path_bytes"))
    if db_path is None:
        db_path = _total(telemetry.get("db_path_bytes"))
    if data is None:
        return None  # telemetry alone knows the folders' size, not what is in them
    documents = {
        text(shard): count
        for shard, figures in mapping(storage.get("by_shard")).items()
        if (count := number(mapping(figures).get("documents"))) is not None
    }
    return Storage(data, index or 0.0, db_path, documents)


def _total(value: object) -> float | None:
    """A number, or the sum of an object's numbers."""
    if isinstance(value, dict):
        numbers = [v for v in map(number, value.values()) if v is not None]
        return sum(numbers) if numbers else None
    return number(value)


def _apart(found: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Measurements that say nothing about the servers are left out where others of the same point do."""
    servers = any(m.counts and not m.limited for m in found)
    return tuple(replace(m, left_out=servers and bool(m.limited)) for m in found)


def phase_figures(found: Sequence[Measurement]) -> PhaseFigures:
    """One phase of one point over its measurements, of which there is at least one."""
    ordered = _apart(sorted(found, key=lambda m: m.order))
    named = next((m for m in ordered if m.counts), ordered[0])
    good = [m for m in ordered if m.counts]
    values = [m.value for m in good if m.value is not None]
    return PhaseFigures(
        phase=named.phase,
        kind=named.kind,
        metric=named.metric,
        unit=named.unit,
        better=named.better,
        measurements=ordered,
        estimate=median_estimate(values) if values else None,
        seconds=_median(m.seconds for m in good),
        cpu=median_cpu(m.cpu for m in good),
        roles={
            role: cores
            for role in ("client", "router", "shards", "config", "others")
            if (cores := _median(m.roles.get(role) for m in good)) is not None
        },
        client_cores=_median(m.client_cores for m in good),
        verdict=common_verdict(good),
        further=further(good),
    )


def median_cpu(splits: Iterable[CpuSplit | None]) -> CpuSplit | None:
    """The median of each share, scaled so that the shares add up to what they did (medians alone need not)."""
    known = [split for split in splits if split is not None]
    if not known:
        return None
    columns = [
        statistics.median(getattr(split, name) for split in known)
        for name in ("user", "sys", "iowait", "idle", "steal")
    ]
    total = statistics.median(s.user + s.sys + s.iowait + s.idle + s.steal for s in known)
    factor = total / sum(columns) if sum(columns) > 0 else 1.0
    return CpuSplit(*(column * factor for column in columns))


def median_storage(storages: Iterable[Storage | None]) -> Storage | None:
    """The storage with the median of documents and indexes; one that was, not a mixture of several."""
    known = sorted((s for s in storages if s is not None), key=lambda s: s.total)
    return known[(len(known) - 1) // 2] if known else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None

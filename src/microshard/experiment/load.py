"""From an experiment file to a typed experiment: read, scale, override, check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from microshard.experiment import overlay
from microshard.experiment import source as files
from microshard.experiment.check import Checker, nearest
from microshard.experiment.errors import COMMAND_LINE, DefinitionError, Problem, printable
from microshard.experiment.rules import findings, matrix_findings
from microshard.experiment.source import Source, SourcePosition
from microshard.model.experiment import Experiment

_NOT_SCALED = ("microshard", "scales")


@dataclass(frozen=True, slots=True)
class LoadedExperiment:
    """An experiment that can be planned, and where everything in it stands."""

    experiment: Experiment
    """With every default explicit."""
    source: Source
    """The file; its spots are those of `data`."""
    data: dict[str, Any]
    """What was given: the file with its scale and overrides applied, without defaults."""
    warnings: tuple[Problem, ...] = ()
    """What is doubtful but runs."""


def load(path: Path, scale: str | None = None, overrides: Mapping[str, Any] | None = None) -> LoadedExperiment:
    """The experiment in a file.

    `scale` names one of the file's `scales`; `overrides` are dotted key → value, applied last (`--set`).
    Raises DefinitionError with all problems of the file.
    """
    return build(*files.read(path), scale=scale, overrides=overrides)


def build(
    data: dict[str, Any],
    source: Source,
    problems: list[Problem],
    *,
    scale: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> LoadedExperiment:
    """As `load`, from a file that has been read."""
    data, spot = _long_form(data, source.spot)
    problems = [*problems]
    layers = [*_scale(Checker(source, data, spot), scale, problems), *_command_line(overrides or {})]
    base_data, base_spot = data, spot
    for layer in layers:
        data, spot = _apply(layer, data, spot, source, problems)
    result = examine(source, data, spot)
    problems += result.errors
    if scale is None and result.experiment is not None:
        # A scale nobody asked for now is wrong all the same.
        for name in _scale_names(base_data):
            problems += _broken_scale(source, base_data, base_spot, name)
    if problems or result.experiment is None:
        raise DefinitionError(problems)
    return LoadedExperiment(result.experiment, replace(source, spot=spot), data, tuple(result.warnings))


@dataclass(slots=True)
class Examined:
    """What came of checking data."""

    experiment: Experiment | None
    """None where the types do not fit."""
    errors: list[Problem]
    warnings: list[Problem]


def examine(source: Source, data: dict[str, Any], spot: SourcePosition) -> Examined:
    """Checks data against types and rules; every problem stands at its place."""
    checker = Checker(source, data, spot)
    try:
        experiment = Experiment.model_validate(data)
    except ValidationError as error:
        return Examined(None, [*checker.problems(error), *checker.misread()], [])
    errors = checker.misread()
    warnings: list[Problem] = []
    for finding in [*findings(experiment), *matrix_findings(experiment)]:
        problem = checker.at_value(finding.path, finding.message, severity=finding.severity)
        (errors if finding.severity == "error" else warnings).append(problem)
    return Examined(experiment, errors, warnings)


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """`KEY=VALUE` of the command line, the value in YAML. Raises DefinitionError."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            problems.append(_on_command_line(key, "write it as KEY=VALUE, for example topology.shards.count=4"))
            continue
        if len(value.splitlines()) > 1:
            problems.append(_on_command_line(key, "write the value on one line"))
            continue
        try:
            data, _, found = files.parse(COMMAND_LINE, f"value: {value}")
            problems += [_on_command_line(key, p.message) for p in found]
            values[key.strip()] = data.get("value")
        except DefinitionError as error:
            problems += [_on_command_line(key, p.message) for p in error.problems]
    if problems:
        raise DefinitionError(problems)
    return values


@dataclass(frozen=True, slots=True)
class _Layer:
    """One dotted key and what to put there."""

    key: str
    value: Any
    key_at: tuple[int, int]
    spot: SourcePosition


def _scale_names(data: Mapping[str, Any]) -> list[str]:
    scales = data.get("scales")
    return [n for n, changes in scales.items() if isinstance(changes, dict)] if isinstance(scales, dict) else []


def _scale(checker: Checker, name: str | None, problems: list[Problem]) -> list[_Layer]:
    if name is None:
        return []
    names = _scale_names(checker.data)
    if name not in names:
        near = nearest(name, names)
        there = f"the file has {', '.join(names)}" if names else "the file has no scales"
        guess = f"; did you mean `{near}`?" if near else ""
        message = f"no scale {printable(name)}: {there}{guess}"
        problems.append(
            checker.at_key(("scales",), message, found=printable(name), allowed=", ".join(names), nearest=near)
        )
        return []
    spot = checker.spot.items["scales"].items[name]
    changes: dict[str, Any] = checker.data["scales"][name]
    return [_Layer(k, v, spot.keys[k], spot.items[k]) for k, v in changes.items()]


def _command_line(overrides: Mapping[str, Any]) -> list[_Layer]:
    return [
        _Layer(k, v, (0, 0), SourcePosition(0, 0, raw=str(v), plain=not isinstance(v, str)))
        for k, v in overrides.items()
    ]


def _on_command_line(key: str, message: str) -> Problem:
    return Problem(COMMAND_LINE, 0, 0, printable(key), message)


def _apply(
    layer: _Layer, data: dict[str, Any], spot: SourcePosition, source: Source, problems: list[Problem]
) -> tuple[dict[str, Any], SourcePosition]:
    try:
        path = overlay.split(layer.key)
        if path[0] in _NOT_SCALED:
            raise overlay.NoSuchPlaceError(f"{path[0]} belongs to the file and cannot be changed here")
        data, spot = overlay.put(data, spot, path, layer.value, layer.spot, layer.key_at)
    except overlay.NoSuchPlaceError as error:
        problems.append(source.problem(layer.key_at, printable(layer.key, 200), str(error)))
    return _long_form(data, spot)


def _broken_scale(source: Source, data: dict[str, Any], spot: SourcePosition, name: str) -> list[Problem]:
    problems: list[Problem] = []
    for layer in _scale(Checker(source, data, spot), name, problems):
        data, spot = _apply(layer, data, spot, source, problems)
    return [*problems, *examine(source, data, spot).errors]


def _long_form(data: dict[str, Any], spot: SourcePosition) -> tuple[dict[str, Any], SourcePosition]:
    """`matrix: {topology.shards.count: […]}` as `matrix: {axes: {…}}`, so that places and keys are the models'."""
    matrix = data.get("matrix")
    if not isinstance(matrix, dict) or "axes" in matrix:
        return data, spot
    axes = {k: v for k, v in matrix.items() if "." in k}
    if not axes:
        return data, spot
    inside = spot.items.get("matrix", spot)
    moved = SourcePosition(
        inside.line, inside.column, keys=inside.keys, items={k: s for k, s in inside.items.items() if k in axes}
    )
    long = replace(inside, items={**{k: s for k, s in inside.items.items() if k not in axes}, "axes": moved})
    matrix = {"axes": axes, **{k: v for k, v in matrix.items() if k not in axes}}
    return {**data, "matrix": matrix}, replace(spot, items={**spot.items, "matrix": long})

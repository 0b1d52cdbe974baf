"""Loads an experiment file: read it, apply scale and overrides, check types and rules."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from microshard.experiment import yaml_reader
from microshard.experiment.check import Checker
from microshard.experiment.document import Document, KeyPath, NoSuchKeyError, SourcePosition, split_key
from microshard.experiment.errors import COMMAND_LINE, DefinitionError, Problem, nearest_name, printable
from microshard.experiment.rules import all_violations
from microshard.model.experiment import Experiment

_FIXED_SECTIONS = ("microshard", "scales")


# Without --scale the place chooses, where the file has its scale: this machine laptop, EC2 today.
PLACE_SCALES = {"local": "laptop", "ec2": "today"}
AS_WRITTEN = "as-written"  # --scale: none of the file's


def scale_for(path: Path, scale: str | None, place: str) -> tuple[str | None, str]:
    """Return the scale a command applies (None: the file as it is written), and a sentence that says why.

    `place` is the value of --on; a file that cannot be read has none, and loading it says what is wrong.
    """
    try:
        names = _scale_names(yaml_reader.read(path)[0])
    except DefinitionError:
        names = []
    chosen = PLACE_SCALES.get(place)
    if scale == AS_WRITTEN and scale not in names:
        return None, "Scale: none, the file as it is written (--scale as-written)."
    if scale is not None:
        return scale, f"Scale: {scale} (--scale)."
    others = ", ".join([*(name for name in names if name != chosen), AS_WRITTEN])
    if chosen in names:
        return chosen, f"Scale: {chosen}, the default of --on {place}; others by --scale: {others}."
    return None, f"Scale: none, the file as it is written; others by --scale: {', '.join(names)}." if names else ""


@dataclass(frozen=True, slots=True)
class LoadedExperiment:
    """An experiment that can be planned."""

    experiment: Experiment  # with every default explicit
    document: Document  # the file's data with scale and overrides applied, without defaults
    warnings: tuple[Problem, ...] = ()

    def error(self, problems: Iterable[tuple[str, str]]) -> DefinitionError:
        """The error for problems found after loading, given as (dotted key, sentence), at their places in the file."""
        paths = [(tuple(int(p) if p.isdigit() else p for p in key.split(".")), message) for key, message in problems]
        return DefinitionError([self.document.problem_at_value(path, message) for path, message in paths])


def load(path: Path, scale: str | None = None, overrides: Mapping[str, Any] | None = None) -> LoadedExperiment:
    """The experiment in a file.

    `scale` names one of the file's `scales`; `overrides` are dotted key → value, applied last (`--set`).
    Raises DefinitionError with all problems of the file.
    """
    return build(*yaml_reader.read(path), scale=scale, overrides=overrides)


def build(
    document: Document,
    problems: Iterable[Problem],
    *,
    scale: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> LoadedExperiment:
    """As `load`, from a file that has been read."""
    problems = [*problems]
    document = written = _with_axes(document)
    if scale is not None:
        document = _with_scale(document, scale, problems)
    for key, value in (overrides or {}).items():
        position = SourcePosition(0, 0, raw=str(value), plain=not isinstance(value, str))
        document = _with_value(document, key, value, position, problems)
    problems += _overridden_axes(document, overrides or {})
    experiment, errors, warnings = examine(document)
    own_matrix = any(key.split(".", maxsplit=1)[0] == "matrix" for key in overrides or {})
    if own_matrix and any(problem.key_path.startswith("question.") for problem in errors):
        # A matrix of the command line has other axes than the file's question is about.
        document = replace(document, data={k: v for k, v in document.data.items() if k != "question"})
        message = "the file's question is not about these axes and is left out; another one: --set 'question={…}'"
        left_out = Problem(COMMAND_LINE, 0, 0, "matrix", message, severity="warning")
        experiment, errors, others = examine(document)
        warnings = [left_out, *others]
    problems += errors
    if scale is None and experiment is not None:
        # A wrong scale is an error even when it is not used.
        for name in _scale_names(written):
            problems += examine(_with_scale(written, name, problems))[1]
    if problems or experiment is None:
        raise DefinitionError(problems)
    return LoadedExperiment(experiment, document, tuple(warnings))


def _overridden_axes(document: Document, overrides: Mapping[str, Any]) -> Iterator[Problem]:
    """Keys of the command line that every point would replace by its own value."""
    matrix = document.data.get("matrix")
    for name in ("axes", "zip"):
        axes = matrix.get(name) if isinstance(matrix, dict) else None
        for axis in axes if isinstance(axes, dict) else ():
            for key, value in overrides.items():
                if key == axis or key.startswith(f"{axis}."):
                    place = "matrix" if name == "axes" else "matrix.zip"
                    message = f"{axis} is an axis: every point sets it; write --set '{place}.{axis}=[{value}]'"
                    yield Problem(COMMAND_LINE, 0, 0, printable(key, 200), message)


def examine(document: Document) -> tuple[Experiment | None, list[Problem], list[Problem]]:
    """Check a document against types and rules: the experiment (None where types do not fit), errors and warnings."""
    checker = Checker(document)
    try:
        experiment = Experiment.model_validate(document.data)
    except ValidationError as error:
        return None, [*checker.problems(error), *checker.misread()], []
    found = [document.problem_at_value(v.path, v.message, severity=v.severity) for v in all_violations(experiment)]
    errors = [*checker.misread(), *(p for p in found if p.severity == "error")]
    return experiment, errors, [p for p in found if p.severity == "warning"]


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """`KEY=VALUE` of the command line, the value in YAML. Raises DefinitionError."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for text in texts:
        key, equals, value = text.partition("=")
        messages = []
        if not equals:
            messages.append("write it as KEY=VALUE, for example topology.shards.count=4")
        elif len(value.splitlines()) > 1:
            messages.append("write the value on one line")
        else:
            try:
                document, found = yaml_reader.parse(COMMAND_LINE, f"value: {value}")
                values[key.strip()] = document.data.get("value")
            except DefinitionError as error:
                found = error.problems
            messages += [p.message for p in found]
        problems += [Problem(COMMAND_LINE, 0, 0, printable(key), message) for message in messages]
    if problems:
        raise DefinitionError(problems)
    return values


def _scale_names(document: Document) -> list[str]:
    scales = document.data.get("scales")
    return [n for n, changes in scales.items() if isinstance(changes, dict)] if isinstance(scales, dict) else []


def _with_scale(document: Document, name: str, problems: list[Problem]) -> Document:
    names = _scale_names(document)
    if name not in names:
        near, shown = nearest_name(name, names), printable(name)
        known = f"the file has {', '.join(names)}" if names else "the file has no scales"
        message = f"no scale {shown}: {known}" + (f"; did you mean `{near}`?" if near else "")
        details = {"found": shown, "allowed": ", ".join(names), "nearest": near}
        problems.append(document.problem_at_key(("scales",), message, **details))
        return document
    for key, value in document.data["scales"][name].items():
        document = _with_value(document, key, value, ("scales", name, key), problems)
    return document


def _with_value(
    document: Document, key: str, value: Any, origin: KeyPath | SourcePosition, problems: list[Problem]
) -> Document:
    try:
        path = split_key(key)
        if path[0] in _FIXED_SECTIONS:
            raise NoSuchKeyError(f"{path[0]} belongs to the file and cannot be changed here")
        return _with_axes(document.put(path, value, origin))
    except NoSuchKeyError as error:
        if isinstance(origin, SourcePosition):
            problems.append(Problem(COMMAND_LINE, 0, 0, printable(key, 200), str(error)))
        else:
            problem = document.problem_at_key(origin, str(error))
            problems.append(replace(problem, key_path=printable(key, 200)))
        return document


def _with_axes(document: Document) -> Document:
    """The document with `matrix: {topology.shards.count: […]}` in its long form, `matrix: {axes: {…}}`."""
    matrix = document.data.get("matrix")
    if not isinstance(matrix, dict) or "axes" in matrix:
        return document
    axes = {k: v for k, v in matrix.items() if "." in k}
    if not axes:
        return document
    matrix = {"axes": axes, **{k: v for k, v in matrix.items() if k not in axes}}
    data = {**document.data, "matrix": matrix}
    return replace(document, data=data, moved=(*document.moved, (("matrix", "axes"), ("matrix",))))

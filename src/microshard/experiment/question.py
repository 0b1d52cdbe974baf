"""What an experiment asks: whether its question can be answered, and what its points are called."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from microshard.experiment.errors import nearest_name
from microshard.model.experiment import Experiment, Matrix, Question
from microshard.model.phase import PhaseKeys

SHARDS_AXIS = "topology.shards.count"
Wrong = tuple[tuple[str | int, ...], str]  # key, sentence
_MOST_LETTERS = 36  # of a mapping or list in a label


class QuestionKeys(Protocol):
    """What names need of a question, as the experiment file or a run's record has it."""

    @property
    def vary(self) -> Sequence[str]:
        """Keys whose values are compared."""
        ...

    @property
    def by(self) -> Sequence[str]:
        """Keys whose values are kept apart."""
        ...

    @property
    def names(self) -> Mapping[str, str]:
        """Value, or values joined by ", ", to words."""
        ...


def value_text(value: object, most: int | None = _MOST_LETTERS) -> str:
    """A value in a few words, for labels: `none`, `true`, `threads 2, batch_size 10 …`; whole where `most` is None."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        text = ", ".join(f"{key} {value_text(inner, most)}" for key, inner in value.items())
    elif isinstance(value, list):
        text = ", ".join(value_text(inner, most) for inner in value) or "none"
    else:
        return str(value)
    return text if most is None or len(text) <= most else f"{text[: most - 2].rstrip(' ,')} …"


def axis_label(axis: str | None) -> str:
    """The last part of an axis that says what it counts: "shards", "threads", "block compressor"."""
    if axis is None:
        return "point"
    parts = axis.split(".")
    name = parts[-2] if parts[-1] in {"count", "value"} and len(parts) > 1 else parts[-1]
    return name.replace("_", " ")


# names


def key_of(keys: Iterable[str], axes: Mapping[str, Any]) -> str:
    """The values of some axes as the question's `names` and `baseline` write them."""
    return ", ".join(value_text(axes.get(key), None) for key in keys)


def varied_name(question: QuestionKeys, axes: Mapping[str, Any]) -> str:
    """What the question calls the compared values of a point."""
    return question.names.get(key_of(question.vary, axes)) or _words(question, question.vary, axes)


def kept_name(question: QuestionKeys, axes: Mapping[str, Any], by: Sequence[str] | None = None) -> str:
    """What it calls the values that are kept apart, those of `by` where that is given; empty where there are none."""
    return _words(question, question.by if by is None else by, axes)


def kept_apart(question: QuestionKeys, points: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The question's `by`, and every other axis in which points differ that it would take for one."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for axes in points:
        alike.setdefault(key_of((*question.vary, *question.by), axes), []).append(axes)
    known, extra = {*question.vary, *question.by}, dict[str, None]()
    for group in alike.values():
        for key in group[0] if len(group) > 1 else ():
            if key not in known and any(repr(axes.get(key)) != repr(group[0][key]) for axes in group):
                extra[key] = None
    return (*question.by, *extra)


def _words(question: QuestionKeys, keys: Iterable[str], axes: Mapping[str, Any]) -> str:
    return ", ".join(filter(None, (_word(question, key, axes.get(key)) for key in keys)))


def _word(question: QuestionKeys, key: str, value: object) -> str:
    """A value: text by itself, other values with what they count; by its given name where it has one."""
    text = value_text(value, None)
    if key == SHARDS_AXIS:
        text = f"{value} shard{'' if value == 1 else 's'}"
    elif isinstance(value, bool | int | float):
        text = f"{axis_label(key)} {text}"
    return question.names.get(text, value_text(value) if isinstance(value, dict | list) else text)


def labels(experiment: Experiment, points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Labels of points, by the values of their axes: in the question's words where these tell them apart."""
    question = experiment.question
    if question is None:
        return [_label(axes, experiment) for axes in points]
    by, found = kept_apart(question, points), []
    for axes in points:
        swept = not set(question.vary) & axes.keys()  # the phase itself iterates over what is compared
        words = ("" if swept else varied_name(question, axes), kept_name(question, axes, by))
        name = ", ".join(filter(None, words))
        found.append(_label(axes, experiment) if not name or "topology.kind" in axes else name)
    return found


def _label(axes: Mapping[str, Any], experiment: Experiment) -> str:
    if not axes:
        topology = experiment.topology
        shards = topology.shards.count
        return f"{shards} shard{'' if shards == 1 else 's'}" if topology.kind == "sharded" else _spaced(topology.kind)
    parts = []
    unsharded = axes.get("topology.kind") not in {None, "sharded"}
    for key, value in axes.items():
        if key == "topology.kind":
            parts += [_spaced(value)] if unsharded else []
        elif key.startswith(("topology.shards.", "topology.mongos.", "topology.collections")) and unsharded:
            continue
        elif isinstance(value, dict | list) and "topology.kind" in axes:
            continue  # it follows from the kind, as its collections do
        elif key == SHARDS_AXIS:
            parts.append(f"{value} shard{'' if value == 1 else 's'}")
        else:
            parts.append(f"{key.rsplit('.', 1)[-1]} {value_text(value)}")
    return ", ".join(parts)


def _spaced(name: object) -> str:
    return str(name).replace("_", " ")


# whether it can be answered


def problems(experiment: Experiment) -> Iterator[Wrong]:
    """Key and sentence of everything the question names that there is not, with what there is."""
    question = experiment.question
    if question is None:
        return
    steps = {step.name or step.kind: step for step in experiment.workload}
    measured = [name for name, step in steps.items() if step.kind == "measure"]
    if question.phase is not None and question.phase not in measured:
        message = f"no measured phase is named {question.phase}; there is: {', '.join(measured)}"
        yield ("question", "phase"), message
        return
    if not measured:
        return
    phase = question.phase or measured[0]
    keys, matrix = steps[phase].phase, experiment.matrix
    swept = [f"workload.{list(steps).index(phase)}.measure.{key}" for key in keys.sweeps()]
    axes = [*dict.fromkeys((*matrix.axes, *matrix.zip, *(key for point in matrix.include for key in point)))]
    for name, given, known in (("vary", question.vary, [*axes, *swept]), ("by", question.by, axes)):
        for place, key in enumerate(given):
            if key not in known:
                yield ("question", name, place), f"{key} is no axis of the matrix; {_there_is(key, known)}"
    yield from _unknown_figures(question, phase, keys)
    values = _values(matrix, question.vary) if set(question.vary) <= set(axes) else []
    if question.baseline is not None and values and question.baseline not in values:
        yield ("question", "baseline"), f"no point has {question.baseline}; {_there_is(question.baseline, values)}"


def _unknown_figures(question: Question, phase: str, keys: PhaseKeys) -> Iterator[Wrong]:
    figures = keys.figures()
    for name, figure in (("figure", question.figure), ("cost", question.cost)):
        if figure is not None and figures is not None and figure not in figures:
            yield ("question", name), f"{phase} ({keys.engine}) reports no {figure}; {_there_is(figure, figures)}"


def _there_is(name: str, known: Iterable[str]) -> str:
    known = [*known]
    near = nearest_name(name, known)
    return f"there is: {', '.join(known) or 'none'}" + (f"; did you mean `{near}`?" if near else "")


def _values(matrix: Matrix, keys: Sequence[str]) -> list[str]:
    """What `keys` have together, as the baseline is written."""
    rows = [dict(zip(matrix.zip, row, strict=False)) for row in zip(*matrix.zip.values(), strict=False)] or [{}]
    axes = [[(key, value) for value in values] for key, values in matrix.axes.items() if key in keys]
    grid = [dict(values) | row for values in itertools.product(*axes) for row in rows]
    return [*dict.fromkeys(key_of(keys, point) for point in (*grid, *matrix.include) if set(keys) <= point.keys())]

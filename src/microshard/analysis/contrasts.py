"""What a question compares: every value of what it varies with its baseline, by points that may be compared.

A point counts when all its repetitions are there and held their gates, and no other program used the machine beside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from microshard.analysis.bootstrap import Estimate, ratio_estimate
from microshard.analysis.report_model import PhaseFigures, PointReport, ReportModel
from microshard.experiment.question import kept_name, key_of, varied_name

OTHERS = 0.25  # share of the host's cores used by what does not belong to the run


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A value of what is varied, in one group of what is kept apart."""

    key: str  # as the question's baseline is written
    name: str
    group: str  # values that are kept apart
    where: str  # the same in words
    point: PointReport
    values: tuple[float, ...]
    estimate: Estimate
    cost: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """A value against the baseline of its group."""

    base: Cell
    cell: Cell
    ratio: Estimate  # cell / base
    cost: float | None  # cell / base, of the question's second figure


def disturbed(model: ReportModel, point: PointReport) -> float:
    """Background CPU load in cores while a point was measured, where it is too high; else 0."""
    others = model.figures(point).roles.get("others", 0.0)
    return others if model.cores and others > OTHERS * model.cores else 0.0


def not_counted(model: ReportModel, point: PointReport) -> str:
    """Why no headline may rest on a point; empty where it may."""
    if point.state == "waiting":
        return "not measured"
    if point.state in {"partial", "failed"}:
        return "outside its gates" if any("(gates." in r for i in point.invalid for r in i.reasons) else point.state
    return "background CPU load" if disturbed(model, point) else ""


def counted(model: ReportModel, phase: str | None = None) -> list[tuple[PointReport, PhaseFigures, Estimate]]:
    """As `ReportModel.measured`, without the points that no headline may rest on."""
    return [row for row in model.measured(phase) if not not_counted(model, row[0])]


def cells(model: ReportModel) -> list[Cell]:
    """Everything the question compares, group by group in the order of the matrix."""
    question = model.definition.question
    if question is None:
        return []
    found: list[Cell] = []
    for point, figures, estimate in model.measured():
        group, where = key_of(question.by, point.axes), kept_name(question, point.axes)
        more = {one.name: one.range for one in figures.details.figures}
        prefix = f"{question.figure}, "
        parts = {name.removeprefix(prefix): of for name, of in more.items() if name.startswith(prefix)}
        if set(question.vary) <= point.axes.keys():
            cost = more.get(question.cost or "")
            key, name = key_of(question.vary, point.axes), varied_name(question, point.axes)
            found.append(Cell(key, name, group, where, point, figures.values, estimate, cost.value if cost else None))
        elif figures.metric != question.figure:  # the phase has measured several things one after the other
            for name, of in parts.items():
                shown = question.names.get(name, name)
                found.append(Cell(name, shown, group, where, point, (of.value,), Estimate(of.value, None, of.n)))
    order = {point.id: number for number, point in enumerate(model.points)}
    groups = [*dict.fromkeys(cell.group for cell in sorted(found, key=lambda cell: order[cell.point.id]))]
    return sorted(found, key=lambda cell: (groups.index(cell.group), order[cell.point.id]))


def contrasts(model: ReportModel, found: Sequence[Cell] | None = None) -> list[Contrast]:
    """Every cell that counts against the baseline of its group; the same queries only where there are answers."""
    question = model.definition.question
    every = cells(model) if found is None else found
    good = [cell for cell in every if not not_counted(model, cell.point)]
    result: list[Contrast] = []
    for group in dict.fromkeys(cell.group for cell in good):
        members = [cell for cell in good if cell.group == group]
        wanted = question.baseline if question else None
        # Of a group whose baseline does not count nothing is said.
        first = next(cell.key for cell in every if cell.group == group)
        base = next((cell for cell in members if cell.key == (wanted or first)), None)
        if base is not None:
            result += [_contrast(base, cell) for cell in members if cell is not base and _comparable(model, base, cell)]
    return result


def _comparable(model: ReportModel, one: Cell, other: Cell) -> bool:
    """Positive values, and answers to the same query where both have answers."""
    if min(one.values) <= 0 or min(other.values) <= 0:
        return False
    queries = [
        {m.question for m in model.figures(c.point).measurements if m.result.answer_sha256} for c in (one, other)
    ]
    return not all(queries) or queries[0] == queries[1]


def _contrast(base: Cell, cell: Cell) -> Contrast:
    cost = cell.cost / base.cost if cell.cost is not None and base.cost else None
    return Contrast(base, cell, ratio_estimate(cell.values, base.values), cost)


def by_value(found: Sequence[Contrast]) -> Iterator[tuple[str, list[Contrast]]]:
    """Contrasts of each varied value over the groups, in the order of the matrix."""
    for key in dict.fromkeys(contrast.cell.key for contrast in found):
        yield key, [contrast for contrast in found if contrast.cell.key == key]

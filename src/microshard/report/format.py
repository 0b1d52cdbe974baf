"""Numbers as people read them: three digits that mean something, units named beside them; and tables of them."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from microshard.analysis.bootstrap import Estimate
from microshard.plan import render as plan_render

MIB = 2**20
DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
NONE = DASH


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table of the page."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    id: str = ""
    title: str = ""
    note: str = ""

    @property
    def words(self) -> tuple[bool, ...]:
        """Of each column whether it holds words, which stand on the left, or numbers."""
        return tuple(any(row[n][:1].isalpha() for row in self.rows) for n in range(len(self.columns)))


def table(rows: Iterable[Sequence[Any]], columns: Mapping[str, Callable[..., str]], **named: str) -> PageTable:
    """A row for each tuple of `rows`; a column is its heading and a function that is called with the tuple's values.

    A column without any value is left out.
    """
    cells = tuple(tuple(cell(*row) for cell in columns.values()) for row in rows)
    return without_empty_columns(PageTable(tuple(columns), cells, **named))


def without_empty_columns(found: PageTable) -> PageTable:
    """A table without the columns in which there are dashes alone; its first column names the rows and stays."""
    kept = [n for n in range(len(found.columns)) if n == 0 or any(row[n] not in {NONE, ""} for row in found.rows)]
    rows = tuple(tuple(row[n] for n in kept) for row in found.rows)
    return replace(found, columns=tuple(found.columns[n] for n in kept), rows=rows)


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits and thousands separators; a dash for None."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:,.{decimals(value, digits)}f}"


def decimals(value: float, digits: int = 3) -> int:
    """Decimals that show `digits` significant digits of `value`, at most six."""
    if value == 0:
        return 0
    return min(6, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def span(value: float, low: float, high: float, digits: int = 3) -> str:
    """`value [low-high]`, all three with the decimals of the value; no brackets where the range has no width."""
    places = decimals(value, digits)
    between = "" if low == high else f" [{low:,.{places}f}{DASH}{high:,.{places}f}]"
    return f"{value:,.{places}f}{between}"


def spread(estimate: Estimate | None, factor: float = 1.0, digits: int = 3) -> str:
    """`median [low-high]`; no brackets without an interval."""
    if estimate is None:
        return NONE
    value, interval = estimate.value * factor, estimate.interval
    if interval is None or interval.low == interval.high:
        return span(value, value, value, digits)
    return span(value, interval.low * factor, interval.high * factor, digits)


def percent(share: float | None) -> str:
    """A share as a whole number of per cent, without the sign."""
    return NONE if share is None else f"{share * 100:.0f}"


def per_cent(share: float) -> str:
    """A share as a whole number of per cent, with the sign."""
    return f"{share * 100:.0f} %"


def factor(value: float | None) -> str:
    """A ratio with one decimal from ten on, else two."""
    if value is None:
        return NONE
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def times(value: float) -> str:
    """A ratio with two significant digits below ten, three from there on: 4.1, 0.31, 26,700."""
    places = decimals(value, 2 if value < 10 else 3)
    return f"{round(value, 2 - math.floor(math.log10(value))):,.0f}" if value >= 100 else f"{value:.{places}f}"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def mib(size: float | None) -> str:
    """Bytes as MiB."""
    return NONE if size is None else number(size / MIB)


def size(value: float | None) -> str:
    """Bytes in the unit that leaves one to four digits before the point."""
    if value is None:
        return NONE
    amount, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.0f} B" if unit == "B" else f"{number(amount)} {unit}"


def duration(seconds: float | None) -> str:
    """Seconds as `4.2 s`, `42 s`, `3 min 05 s` or `2 h 07 min`; none as a dash."""
    if seconds is None:
        return NONE
    if seconds < 10:
        return f"{seconds:.1f} s"
    return plan_render.duration(seconds)


def moment(epoch: float | None) -> str:
    """Epoch seconds as UTC to the minute."""
    return NONE if epoch is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(epoch))


def count(value: int, singular: str, plural: str | None = None) -> str:
    """`1 shard`, `2 shards`."""
    return plan_render.count(value, singular, plural)


def of_unit(name: str, unit: str, between: str = ", ") -> str:
    """A figure's name with its unit, where it has one."""
    return f"{name}{between}{unit}" if unit else name


def with_unit(value: float | None, unit: str) -> str:
    """`value` and its unit; bytes in the unit that suits their number."""
    return size(value) if unit == "bytes" else of_unit(number(value), unit, " ")


def distinguishing_labels(labels: list[str]) -> list[str]:
    """Labels without the words that all of them begin with; `true` and mere numbers keep the word before them."""
    words = [label.split(" ") for label in labels]
    same = 0
    while len(words) > 1 and all(len(w) > same + 1 and w[same] == words[0][same] for w in words):
        same += 1
    if same and any(len(w) == same + 1 and (w[same] in {"true", "false"} or w[same].isdigit()) for w in words):
        same -= 1
    return [" ".join(w[same:]) for w in words]

"""What a campaign of faults found: one row a kind of fault, and the two columns that must stay empty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table


@dataclass(slots=True)
class Row:
    """One kind of fault at one place."""

    fault: str
    where: str
    times: int = 0
    lost: list[str] = field(default_factory=list)  # what should be there and is not, or is wrong
    left: list[str] = field(default_factory=list)  # what should be gone and is there

    def add(self, other: Row) -> None:
        """Take over what another row has of the same fault."""
        self.where = ", ".join(dict.fromkeys(filter(None, (*self.where.split(", "), *other.where.split(", ")))))
        self.times += other.times
        self.lost += other.lost
        self.left += other.left

    @property
    def is_clean(self) -> bool:
        """Nothing lost, nothing left."""
        return not self.lost and not self.left


def traceback_in(said: str) -> Iterator[str]:
    """That there is a traceback in what a command said, with what stands around its beginning."""
    at = said.find("Traceback")
    if at >= 0:
        yield f"a traceback: {said[max(0, at - 800) : at + 2200]}"


def show(rows: Iterable[Row], console: Console) -> None:
    """Print the table, and below it everything that was lost or left."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right in (("fault", False), ("where", False), ("times", True), ("lost", True), ("left", True)):
        table.add_column(name, justify="right" if right else "left")
    found = list(rows)
    for row in found:
        style = "" if row.is_clean else "bold red"
        table.add_row(row.fault, row.where, f"{row.times:,}", _count(row.lost), _count(row.left), style=style)
    console.print(table)
    for row in found:
        for what, items in (("lost", row.lost), ("left", row.left)):
            for item in items[:20]:
                console.print(what, style="red", end=" ")
                console.print(f"{row.fault}, {row.where}: {item}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{sum(row.times for row in found):,} faults in all")


def _count(items: Sequence[str]) -> str:
    return f"{len(items):,}" if items else "–"

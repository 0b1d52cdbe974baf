"""Tables in the terminal that fit it: columns are left out by rank, and named below; a line is never broken.

Nothing is said by colour alone, and a terminal without Unicode gets ASCII.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement as Width
from rich.table import Table
from rich.text import Text

from microshard import standard_output

GAP = 2  # between columns


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column and what decides whether it stays."""

    header: str  # name and unit, on two lines
    cells: tuple[Text, ...]
    rank: int  # the lower, the longer it stays
    right: bool = True

    @property
    def width(self) -> int:
        """Letters of its widest cell or heading."""
        return max(text.cell_len for text in (*map(Text, self.header.split("\n")), *self.cells))


def texts(header: str, cells: Sequence[str], rank: int, *, right: bool = False, style: str = "") -> TextColumn:
    """A column whose cells have one style."""
    return TextColumn(header, tuple(Text(cell, style=style) for cell in cells), rank, right)


@dataclass(frozen=True, slots=True)
class FittingTable:
    """A table that leaves out columns until it fits the width it is given."""

    columns: Sequence[TextColumn]
    width: int | None
    title: str = ""
    below: str = ""
    compact: Sequence[TextColumn] = ()  # instead, where not all of `columns` fit
    least: int = 12  # letters of the first column that are never cut
    elsewhere: str = ""  # where columns that are left out can be seen

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Width:
        return Width(1, min(options.max_width, self.width or options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(self.width or options.max_width, options.max_width)
        first = _shortened(self.columns[0], max(self.least, width * 2 // 5))
        kept = _fit([first, *self.columns[1:]], width)
        columns: Sequence[TextColumn] = self.columns
        if len(kept) < len(columns) and self.compact:
            columns = self.compact
            kept = _fit([first, *columns[1:]], width)
        missing = [column.header.replace("-\n", "").replace("\n", " ") for column in columns[1:] if column not in kept]
        # one column of padding and one of the box's own divider: GAP
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for column in kept:
            table.add_column(
                column.header, justify="right" if column.right else "left", no_wrap=True, overflow="ellipsis",
                header_style="bold", vertical="bottom",
            )  # fmt: skip
        for row in range(len(self.columns[0].cells)):
            table.add_row(*(_plain(column.cells[row], options) for column in kept))
        if self.title:
            yield Text(in_ascii(self.title, options), style="bold", overflow="fold")
        yield table
        if missing:
            note = (
                f"not shown for want of width: {', '.join(missing)}{f' ({self.elsewhere})' if self.elsewhere else ''}"
            )
            yield Text(in_ascii(note, options), style="dim")
        if self.below:
            yield Text(in_ascii(self.below, options), style="dim")


def _fit(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """The columns that fit, in their order; columns of one rank come and go together, the first always stays."""
    by_rank: dict[int, list[int]] = {}
    for index, column in enumerate(columns):
        by_rank.setdefault(column.rank, []).append(index)
    chosen: set[int] = set()
    used = 0
    for _, group in sorted(by_rank.items()):
        need = sum(columns[index].width for index in group) + GAP * (len(group) if chosen else len(group) - 1)
        if used + need <= width or not chosen:
            chosen.update(group)
            used += need
    return [columns[index] for index in sorted(chosen)]


def _shortened(column: TextColumn, most: int) -> TextColumn:
    """The first column, with labels cut where they would leave no room for figures."""
    if column.width <= most:
        return column
    cells = []
    for cell in column.cells:
        cut = cell.copy()
        cut.truncate(most, overflow="ellipsis")
        cells.append(cut)
    return replace(column, cells=tuple(cells))


def in_ascii(text: str, options: ConsoleOptions) -> str:
    """The text as it is, or in ASCII where the terminal has no more."""
    if not options.ascii_only:
        return text
    return text.encode("ascii", standard_output.HANDLER).decode("ascii")


def _plain(text: Text, options: ConsoleOptions) -> Text:
    return Text(in_ascii(text.plain, options), style=text.style) if options.ascii_only else text

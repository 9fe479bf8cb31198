"""A console that shows tables whole, however narrow it is."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

_UNBOUNDED = 1_000_000  # cells; wider than any table
_SHORT = 24  # cells; a shorter number with its unit stays on one line
_SENTENCE = 72  # cells of a column of sentences, where no terminal says how wide it is


class TableConsole(Console):
    """Rich's console, except that it cuts nothing off a table.

    Columns of text wrap between words. Where that does not suffice, each row becomes a block with a
    line for each column. Where the output is no terminal and ``COLUMNS`` is not set, a table is
    as wide as what it holds; sentences wrap there, too.
    """

    def __init__(self, *, width: int | None = None, **options: Any) -> None:
        super().__init__(width=width, **options)
        self._width = width  # Rich keeps what COLUMNS was at this moment

    @property
    def is_bounded(self) -> bool:
        """Whether something says how wide the output is."""
        said = os.environ.get("COLUMNS", "").isdigit()
        return said or self._width is not None or self.file.isatty()

    def print(self, *objects: Any, **options: Any) -> None:
        """As Rich's, but a line that is wider than the console is not cropped."""
        super().print(*objects, **{"crop": False, **options})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As Rich's, with tables whole."""
        options = options or self.options
        if isinstance(renderable, Table):
            free = options.update(width=_UNBOUNDED)
            room = options.max_width if self.is_bounded else None
            return _trimmed(super().render(_fitting(self, free, renderable, room), free))
        return super().render(renderable, options)


def _trimmed(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Without blanks at the ends of lines, which a terminal may have no room for."""
    for line in Segment.split_lines(segments):
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            text, style, _ = line.pop()
            yield from (*line, Segment(text.rstrip(), style))
        yield Segment.line()


def _fitting(console: Console, free: ConsoleOptions, table: Table, width: int | None) -> Table:
    """The table at most ``width`` cells wide (None: as wide as it needs), by blocks if need be."""
    columns = [_Widths(console, free, table, each) for each in table.columns]
    if width is None:
        return _with_widths(table, [each.usual for each in columns])
    # What lines and padding take beside the columns' ones
    frame = Measurement.get(console, free, _with_widths(table, [1] * len(columns))).maximum
    room = width - (frame - len(columns))
    if sum(each.least for each in columns) <= room:
        return _with_widths(table, _shared(columns, room))
    blocks = _blocks(table)
    head, cell = (_Widths(console, free, blocks, each) for each in blocks.columns)
    taken = min(head.most, max(head.least, width // 2))
    rest = max(cell.least, width - taken - 4)  # beside the padding of both
    if not (table.title or table.caption):  # those are as wide as the table
        rest = min(rest, cell.most)
    return _with_widths(blocks, [taken, rest])


class _Widths:
    """How wide a column is, in cells, without padding.

    Attributes:
        most: without wrapping.
        least: with as much wrapping as cuts no word.
        usual: with sentences wrapped.
    """

    def __init__(
        self, console: Console, free: ConsoleOptions, table: Table, column: Column
    ) -> None:
        heads = [column.header] * table.show_header + [column.footer] * table.show_footer
        head = [Measurement.get(console, free, each) for each in heads]
        cells = [Measurement.get(console, free, each) for each in column.cells]
        is_number = column.justify == "right"
        least = [
            each.maximum
            if column.no_wrap or (is_number and each.maximum <= _SHORT)
            else each.minimum + _indent(cell)
            for each, cell in zip(cells, column.cells, strict=True)
        ]
        self.most = max((each.maximum for each in head + cells), default=1)
        self.least = max([*least, *(each.minimum for each in head)], default=1)
        self.usual = max(self.least, min(self.most, _SENTENCE))


def _indent(cell: RenderableType) -> int:
    """How many blanks a cell's text begins with; Rich keeps them with its first word."""
    text = str(cell) if isinstance(cell, str | Text) else ""
    return len(text) - len(text.lstrip(" "))


def _shared(columns: Sequence[_Widths], room: int) -> list[int]:
    """Widths whose sum fits: the widest columns that can wrap give up most."""
    widths = [each.most for each in columns]
    while sum(widths) > room:
        widest = max(
            (number for number, each in enumerate(columns) if widths[number] > each.least),
            key=widths.__getitem__,
        )
        widths[widest] -= 1
    return widths


def _with_widths(table: Table, widths: Sequence[int]) -> Table:
    """The same table with columns of these widths."""
    shown = copy.copy(table)
    shown.columns = [copy.copy(each) for each in table.columns]
    for column, width in zip(shown.columns, widths, strict=True):
        column.width, column.min_width, column.max_width = width, None, None
        column.no_wrap, column.overflow = False, "fold"
    shown.width, shown.expand = None, False
    return shown


def _blocks(table: Table) -> Table:
    """For each row, a block of lines: a column's head, then the cell. Empty cells are left out."""
    shown = Table(
        title=table.title,
        caption=table.caption,
        box=None,
        show_header=False,
        title_style=table.title_style,
        title_justify="left",
        caption_justify="left",
    )
    shown.add_column(style="dim")
    shown.add_column()
    heads = [str(each.header) if table.show_header else "" for each in table.columns]
    rows = [*zip(*(each.cells for each in table.columns), strict=True)]
    styles = [each.style for each in table.rows]
    if table.show_footer:
        rows.append(tuple(each.footer for each in table.columns))
        styles.append(None)
    for cells, style in zip(rows, styles, strict=True):
        if table.show_header:
            shown.add_row()
        for head, cell in zip(heads, cells, strict=True):
            if not isinstance(cell, str) or cell.strip():
                shown.add_row(" ".join(head.split()), cell, style=style)
    return shown

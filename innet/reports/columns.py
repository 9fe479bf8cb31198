"""Tables for the terminal from rows and descriptions of their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, Literal, TypeVar

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table.

    Attributes:
        head: what stands above it, in one or several lines.
        cell: what it says of a row.
        align: text stands at the left; numbers stand at the right, each in one line.
        no_wrap: text stays in one line, too.
    """

    head: str
    cell: Callable[[Row], str | Text]
    align: Literal["left", "right"] = "right"
    no_wrap: bool = False


def make_table(rows: Iterable[Row], columns: Sequence[Column[Row]], **options: Any) -> Table:
    """A table with a line for each row. ``options`` are those of ``rich.table.Table``."""
    usual = {"box": SIMPLE_HEAD, "title_style": "bold", "caption_justify": "left"}
    table = Table(**{**usual, **options})
    for each in columns:
        no_wrap = each.no_wrap or each.align == "right"
        table.add_column(each.head, justify=each.align, no_wrap=no_wrap)
    for row in rows:
        table.add_row(*(each.cell(row) for each in columns))
    return table


def ready_table(heads: Sequence[str], rows: Iterable[Sequence[str]], **options: Any) -> Table:
    """A table of written cells, text in the first column and numbers in the others."""
    columns: list[Column[Sequence[str]]] = [
        Column(head, itemgetter(number), "right" if number else "left")
        for number, head in enumerate(heads)
    ]
    return make_table(rows, columns, **options)


def pairs_table(pairs: Iterable[tuple[str, str]]) -> Table:
    """Names at the left and what each of them is at the right, without heads."""
    table = Table("", "", show_header=False, box=None)
    table.columns[1].justify = "right"
    for pair in pairs:
        table.add_row(*pair)
    return table

"""How every benchmark prints: ratios first, then what they are ratios of, then the machine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from innet.records import Machine


@dataclass(frozen=True, slots=True)
class Row:
    """One measured thing: its rate, the rate's unit, a remark, and the ratio that matters."""

    name: str
    rate: float
    unit: str
    remark: str
    ratio: float


def show(title: str, ratio: str, rows: list[Row], as_json: bool, note: str = "") -> None:
    """Print ``rows`` as a table, or as JSON. ``ratio`` heads the column of ratios."""
    machine = Machine.here().model_dump(mode="json")
    if as_json:
        document = {"title": title, "ratio": ratio, "rows": [asdict(row) for row in rows]}
        print(json.dumps({**document, "note": note, "machine": machine}, indent=2))
        return
    table = Table(title=title, box=None, title_justify="left")
    table.add_column(ratio, justify="right")
    table.add_column("")
    table.add_column("measured", justify="right")
    table.add_column("")
    for row in rows:
        table.add_row(f"{row.ratio:.3g} x", row.name, f"{row.rate:.3g} {row.unit}", row.remark)
    console = Console()
    console.print(table)
    if note:
        console.print(note, markup=False)
    console.print(", ".join(f"{key} {value}" for key, value in machine.items()), style="dim")

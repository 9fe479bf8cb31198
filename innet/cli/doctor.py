"""``innet doctor``: what is installed of all that innet can use, and how to get the rest."""

from __future__ import annotations

from innet.cli.options import JsonOption
from innet.cli.output import out, say_json


def doctor(
    as_json: JsonOption = False,
) -> None:
    """Say what is installed, what it is for, and how to install what is missing."""
    from rich.table import Table

    from innet.mininet.doctor import findings

    found = findings()
    if as_json:
        say_json([each.as_dict() for each in found])
        return
    table = Table(box=None)
    for column in ("", "what", "found", "for"):
        table.add_column(column, overflow="fold")
    for each in found:
        mark = "[green]✓[/]" if each.present else "[yellow]✗[/]"
        table.add_row(mark, each.name, each.detail, each.purpose)
    out.print(table)
    for each in found:
        if not each.present:
            out.print(f"{each.name}: {each.remedy}", highlight=False, markup=False)

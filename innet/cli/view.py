"""``innet view``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innet.cli.output import out


def view(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="What --record or a testbed's save() wrote.")
    ],
    *,
    page: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The page. [default: RUN.html]"),
    ] = None,
) -> None:
    """Make a page that plays a recorded run: packets on links, queues, losses, registers.

    It is one HTML file that needs nothing else; open it in a browser.
    """
    from innet.records import RECORDING, RecordingRecord
    from innet.reports.player import write_player

    target = run.with_suffix(".html") if page is None else page
    write_player(RecordingRecord.load(run, RECORDING), target)
    out.print(f"page: {target}", highlight=False, soft_wrap=True)

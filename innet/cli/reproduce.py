"""``innet reproduce``: what a codec's paper claims, and what is seen here."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from innet.cli.output import err, out, say_json
from innet.core.errors import InputError, MissingToolError


def reproduce(
    *,
    codec: Annotated[str | None, typer.Argument(help="A codec; --list names them.")] = None,
    every: Annotated[bool, typer.Option("--list", help="List the codecs with claims.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small and short, to see that it runs.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each training.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    out_dir: Annotated[Path, typer.Option("--out", "-o", help="Where record and plot go.")] = Path(
        "innet-out"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Measure what a codec's paper claims, as far as that is possible here.

    Prints each claim, the paper's numbers and ours, and says what was not tried, and why.
    """
    from innet.experiments.papers import papers

    if every:
        for name, paper in papers().items():
            out.print(f"{name:14}{len(paper.claims)} claims  {paper.paper}", highlight=False)
        return
    if codec is None:
        raise InputError(f"name a codec: {', '.join(papers())}; or use --list.")
    # Imported here, as they take longer to import than a mistake in an option should.
    from innet.experiments.plots import draw_reproduction
    from innet.experiments.progress import ProgressDisplay
    from innet.experiments.reproduce import Effort, run
    from innet.experiments.tables import reproduction_table

    with ProgressDisplay(err) as display:
        record, path = run(
            codec,
            out_dir,
            effort=Effort(seeds=seeds, seed=seed, quick=quick),
            created=datetime.now(UTC),
            watch=display,
        )
    plot = path.with_suffix(".png")
    try:
        draw_reproduction(record, plot)
    except MissingToolError as error:
        err.print(f"No plot was drawn: {error}", markup=False)
    if as_json:
        say_json(record.model_dump(mode="json"))
        return
    out.print(reproduction_table(record))
    for what, written in (("record", path), ("plot", plot)):
        if written.exists():
            out.print(f"{what}: {written}", highlight=False, soft_wrap=True)

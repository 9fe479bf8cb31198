"""``innet report``: a record of an earlier run, as table and plot."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from innet.cli.output import out, say_json


def report(
    record: Annotated[Path, typer.Argument(help="A record that a run wrote, e.g. demo.json.")],
    plot: Annotated[
        Path | None, typer.Option(help="Draw the plot into this file: .png, .pdf or .svg.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Show the record of an earlier run again."""
    from innet.records import REPRODUCE, TRAIN, ExperimentRecord, Reproduction, format_of
    from innet.records.files import THROUGHPUT
    from innet.records.throughput import ThroughputRecord
    from innet.report.plots import draw_demo, draw_training
    from innet.report.reproduction import draw_reproduction, reproduction_table
    from innet.report.tables import demo_table, training_table
    from innet.report.throughput import draw_throughput, throughput_table

    kind = format_of(record)
    loaded: ExperimentRecord | Reproduction | ThroughputRecord
    if kind == REPRODUCE:
        loaded = claims = Reproduction.load(record)
        table, draw = partial(reproduction_table, claims), partial(draw_reproduction, claims)
    elif kind == THROUGHPUT:
        loaded = sweep = ThroughputRecord.load(record)
        table, draw = partial(throughput_table, sweep), partial(draw_throughput, sweep)
    else:
        loaded = runs = ExperimentRecord.load(record)
        trained = kind == TRAIN
        table = partial(training_table if trained else demo_table, runs)
        draw = partial(draw_training if trained else draw_demo, runs)
    if plot is not None:
        draw(plot)
    if as_json:
        say_json(loaded.model_dump(mode="json"))
    else:
        out.print(table())

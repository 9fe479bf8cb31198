"""``innet report``: a record of an earlier run, as table, plot or JSON."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from innet.cli.output import out, say_json
from innet.core.errors import InputError


def report(
    record: Annotated[
        Path | None, typer.Argument(help="A record that a run wrote, e.g. demo.json.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the plot into this file: .png, .pdf or .svg.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of all records and reports.")
    ] = False,
) -> None:
    """Show the record of an earlier run again."""
    from innet.records import Record, ReproductionRecord, ThroughputRecord, TrainingRecord
    from innet.records import schema as record_schema

    if schema:
        say_json(record_schema())
        return
    if record is None:
        raise InputError("name a record, such as innet-out/demo.json; or use --schema.")
    from innet.experiments import plots, tables

    loaded = Record.load(record)
    match loaded:
        case ReproductionRecord():
            table = partial(tables.reproduction_table, loaded)
            draw = partial(plots.draw_reproduction, loaded)
        case ThroughputRecord():
            table, draw = (
                partial(tables.throughput_table, loaded),
                partial(plots.draw_throughput, loaded),
            )
        case TrainingRecord(format="innet.demo"):
            table, draw = partial(tables.demo_table, loaded), partial(plots.draw_demo, loaded)
        case TrainingRecord():
            table, draw = (
                partial(tables.training_table, loaded),
                partial(plots.draw_training, loaded),
            )
    if plot is not None:
        draw(plot)
    if as_json:
        say_json(loaded.model_dump(mode="json"))
    else:
        out.print(table())

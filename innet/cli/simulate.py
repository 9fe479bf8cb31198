"""``innet simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innet.cli.experiments import show
from innet.cli.options import JsonOption, with_settings
from innet.cli.output import err
from innet.core.settings import SimulateSettings


@with_settings(SimulateSettings)
def simulate(
    settings: SimulateSettings,
    *,
    record: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the record to this JSON file.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the plot into this file: .png, .pdf or .svg.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate an all-reduce, or a model's training iterations, packet by packet in time.

    The switches run the compiled P4 program. Without --model an iteration is one all-reduce of
    generated gradients.
    """
    from innet.experiments.outputs import check_writable
    from innet.experiments.plots import draw_simulation
    from innet.experiments.progress import SimulationDisplay
    from innet.experiments.simulate import simulate as run
    from innet.experiments.tables import simulation_table

    for path in (record, plot):
        if path is not None:
            check_writable(path)
    with SimulationDisplay(err) as display:
        result = run(**settings.model_dump(exclude_unset=True), watch=display)
    if record is not None:
        result.save(record)
    if plot is not None:
        draw_simulation(result, plot)
    show(result, simulation_table, {"record": record, "plot": plot}, as_json=as_json)

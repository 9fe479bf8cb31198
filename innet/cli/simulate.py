"""``innet simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innet.cli.experiments import say_failures, show
from innet.cli.options import JsonOption, with_settings
from innet.cli.output import err
from innet.core.errors import InputError
from innet.core.settings import SimulateSettings

_FAILED = 1  # exit status of a sweep with points that failed
_SWEEP = "Sweep"  # heading in --help


@with_settings(SimulateSettings)
def simulate(
    settings: SimulateSettings,
    *,
    record: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the record to this JSON file; with --sweep, records and a table into this "
            "folder. A sweep that is begun again takes from there what was done.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the plot into this file: .png, .pdf or .svg.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a time-line for Perfetto or chrome://tracing to this JSON file.",
        ),
    ] = None,
    axes: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="NAME=VALUE,...",
            help="Simulate at each of these values of a setting, or of a setting of the network. "
            "Repeatable: at each combination.",
            rich_help_panel=_SWEEP,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Points at the same time, each in a process; by default one for each core.",
            rich_help_panel=_SWEEP,
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run the points on the workers of this Dask scheduler.",
            rich_help_panel=_SWEEP,
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="What --plot draws of a sweep, such as seconds, goodput_gbps, dropped or "
            "retransmissions. Repeatable.",
            rich_help_panel=_SWEEP,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate an all-reduce, or a model's training iterations, packet by packet in time.

    The switches run the compiled P4 program. Without --model an iteration is one all-reduce of
    generated gradients.
    """
    if axes:
        if trace is not None:
            raise InputError("--trace is of one run; leave out --sweep, or --trace.")
        _sweep(
            settings,
            axes,
            folder=record,
            plot=plot,
            jobs=jobs,
            scheduler=scheduler,
            metrics=metrics or [],
            as_json=as_json,
        )
        return
    for option, given in (("jobs", jobs), ("scheduler", scheduler), ("metric", metrics)):
        if given:
            raise InputError(f"--{option} is for sweeps; add --sweep, such as workers=8,16.")
    from innet.experiments.outputs import check_writable
    from innet.experiments.plots import draw_simulation
    from innet.experiments.progress import SimulationDisplay
    from innet.experiments.simulate import simulate as run
    from innet.experiments.tables import simulation_table
    from innet.experiments.trace_events import write_trace

    for path in (record, plot, trace):
        if path is not None:
            check_writable(path)
    with SimulationDisplay(err) as display:
        result = run(**settings.model_dump(exclude_unset=True), watch=display)
    if record is not None:
        result.save(record)
    if trace is not None:
        write_trace(result, trace)
    if plot is not None:
        draw_simulation(result, plot)
    files = {"record": record, "trace": trace, "plot": plot}
    show(result, simulation_table, files, as_json=as_json)


def _sweep(
    settings: SimulateSettings,
    given: list[str],
    *,
    folder: Path | None,
    plot: Path | None,
    jobs: int | None,
    scheduler: str | None,
    metrics: list[str],
    as_json: bool,
) -> None:
    from innet.experiments.outputs import check_writable
    from innet.experiments.plots import draw_sweep
    from innet.experiments.progress import SweepDisplay
    from innet.experiments.sweeps import RECORD, TABLE, axis_of, sweep
    from innet.experiments.tables import sweep_table

    axes = {}
    for name, values in map(axis_of, given):
        if name in axes:
            raise InputError(f"--sweep {name} is given twice; give all its values at once.")
        axes[name] = values
    if plot is not None:
        check_writable(plot)
    with SweepDisplay(err) as display:
        result = sweep(
            settings.model_dump(exclude_unset=True),
            axes,
            out_dir=folder,
            jobs=jobs,
            scheduler=scheduler,
            watch=display,
        )
    files: dict[str, Path] = {}
    if folder is not None:
        files |= {"record": folder / RECORD, "table": folder / TABLE}
    try:
        if plot is not None and result.points:
            draw_sweep(result, plot, metrics)
            files["plot"] = plot
    finally:  # also where there is no such metric
        show(result, sweep_table, files, as_json=as_json)
    say_failures(result)
    if result.failures:
        raise typer.Exit(_FAILED)

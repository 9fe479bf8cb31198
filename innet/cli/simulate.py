"""``innet simulate``: runs, sweeps, jobs and traffic in simulated time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innet.cli.experiments import say_failures, show
from innet.cli.options import (
    JsonOption,
    RecordingOption,
    WatchOption,
    watches_of,
    with_settings,
)
from innet.cli.output import err
from innet.core.errors import InputError
from innet.core.settings import JobsSettings, SimulateSettings

_FAILED = 1  # exit status of a sweep with points that failed
_OF_TRAFFIC = ("program", "network", "seed")  # of the settings, what traffic goes by

app = typer.Typer(
    help="Simulate all-reduces, training iterations, jobs or traffic, packet by packet in time.\n\n"
    "Without a command: run.",
    rich_markup_mode="markdown",
)

RecordOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the record to this JSON file.")
]
PlotOption = Annotated[
    Path | None, typer.Option(help="Draw the plot into this file: .png, .pdf or .svg.")
]
SamplesOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write what was sampled over time to this CSV file."),
]
CapturesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Write a capture of each link in each direction into this folder."
    ),
]


@app.command("run")
@with_settings(SimulateSettings)
def run(
    settings: SimulateSettings,
    *,
    record: RecordOption = None,
    plot: PlotOption = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a time-line for Perfetto or chrome://tracing to this JSON file.",
        ),
    ] = None,
    csv: SamplesOption = None,
    pcap: CapturesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate an all-reduce, or a model's training iterations, packet by packet in time.

    The switches run the compiled P4 program. Without --model an iteration is one all-reduce of
    generated gradients. `innet simulate` without a command is this one.
    """
    from innet.reports.outputs import check_writable
    from innet.reports.progress import SimulationDisplay
    from innet.reports.registry import draw
    from innet.reports.samples_csv import write_samples
    from innet.reports.trace_events import write_trace
    from innet.scenarios.samples import USUAL
    from innet.scenarios.simulate import simulate

    for path in (record, plot, trace, csv):
        if path is not None:
            check_writable(path)
    chosen = settings.model_dump(exclude_unset=True)
    if csv is not None or plot is not None:
        chosen.setdefault("samples", USUAL)
    if csv is not None and not chosen["samples"]:
        raise InputError("--csv is of samples over time, but --samples is 0; leave one out.")
    with SimulationDisplay(err) as display:
        result = simulate(**chosen, watch=display, pcap=pcap)
    if record is not None:
        result.save(record)
    if trace is not None:
        write_trace(result, trace)
    if csv is not None:
        write_samples(result, csv)
    if plot is not None:
        draw(result, plot)
    files = {"record": record, "trace": trace, "samples": csv, "plot": plot, "captures": pcap}
    show(result, files, as_json=as_json)


@app.command("jobs")
@with_settings(JobsSettings)
def several(
    settings: JobsSettings,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="TOML with a table for each job, or CSV with a line for each."
        ),
    ],
    *,
    record: RecordOption = None,
    plot: PlotOption = None,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a line for each job to this CSV file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate several jobs, whose packets share switches, queues and links.

    What a job's table does not state is that of the options. With --hosts jobs come and go: each
    waits until hosts and slots are free, and leaves them to others when it ends.
    """
    from innet.reports.jobs_csv import write_jobs
    from innet.reports.outputs import check_writable
    from innet.reports.registry import draw
    from innet.scenarios.jobs import simulate_jobs

    for file in (record, plot, csv):
        if file is not None:
            check_writable(file)
    result = simulate_jobs(path, **settings.model_dump(exclude_unset=True))
    if record is not None:
        result.save(record)
    if csv is not None:
        write_jobs(result, csv)
    if plot is not None:
        draw(result, plot)
    show(result, {"record": record, "jobs": csv, "plot": plot}, as_json=as_json)


@app.command("traffic")
@with_settings(SimulateSettings, only=_OF_TRAFFIC)
def traffic(
    settings: SimulateSettings,
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="TOML with a topology and its flows.")
    ],
    *,
    commands: Annotated[
        Path | None,
        typer.Option(help="File of simple_switch_CLI's commands for the switches' tables."),
    ] = None,
    priority_queues: Annotated[
        int,
        typer.Option(min=1, max=32, help="Egress queues per port, one for each priority."),
    ] = 1,
    pcap: CapturesOption = None,
    recording: RecordingOption = None,
    watch: WatchOption = None,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate flows of packets through any compiled P4 program.

    Without --program switches forward by shortest paths.
    """
    from innet.reports.outputs import check_writable
    from innet.scenarios.traffic import simulate_traffic

    given = settings.model_dump(exclude_unset=True)
    if commands is not None and "program" not in given:
        raise InputError("--commands are for a program's tables; add --program.")
    for file in (record, recording):
        if file is not None:
            check_writable(file)
    result = simulate_traffic(
        path,
        commands=commands,
        priority_queues=priority_queues,
        pcap=pcap,
        recording=recording,
        watch=watches_of(watch or [], recording),
        **given,
    )
    if record is not None:
        result.save(record)
    files = {"record": record, "captures": pcap, "recording": recording}
    show(result, files, as_json=as_json)


@app.command("sweep")
@with_settings(SimulateSettings)
def sweep(
    settings: SimulateSettings,
    swept: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE,...",
            help="Values of a setting, or of a setting of the network. Several: at each "
            "combination.",
        ),
    ],
    *,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write records and a table into this folder. An interrupted sweep that is started "
            "again keeps its finished points.",
        ),
    ] = None,
    plot: PlotOption = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Points at the same time, each in a process; by default one for each core.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Run the points on the workers of this Dask scheduler."
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="What --plot draws, such as seconds, goodput_gbps, dropped or retransmissions. "
            "Repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate at each of several values of settings, such as workers=8,16 loss=0,1e-4."""
    from innet.reports.outputs import check_writable
    from innet.reports.progress import SweepDisplay
    from innet.reports.registry import draw
    from innet.scenarios.sweeps import RECORD, TABLE, axis_of, check_metrics
    from innet.scenarios.sweeps import sweep as run_sweep

    axes = {}
    for name, values in map(axis_of, swept):
        if name in axes:
            raise InputError(f"{name} is given twice; give all its values at once.")
        axes[name] = values
    check_metrics(metrics or [])
    if metrics and plot is None:
        raise InputError("--metric says what the plot draws; add --plot, or leave it out.")
    if plot is not None:
        check_writable(plot)
    with SweepDisplay(err) as display:
        result = run_sweep(
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
            draw(result, plot, metrics=metrics or [])
            files["plot"] = plot
    finally:  # also where there is no such metric
        show(result, files, as_json=as_json)
    say_failures(result)
    if result.failures:
        raise typer.Exit(_FAILED)

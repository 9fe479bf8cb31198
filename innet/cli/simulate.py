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
_TRAFFIC = "Traffic"  # likewise
_JOBS = "Several jobs"  # likewise
_OF_TRAFFIC = {"program", "network", "seed"}  # settings that --traffic goes by, too


@with_settings(SimulateSettings)
def simulate(  # noqa: PLR0912 - what does not go together is refused here
    settings: SimulateSettings,
    *,
    record: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the record to this JSON file; with --sweep, records and a table into this "
            "folder. An interrupted sweep that is started again keeps its finished points.",
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
    traffic: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Simulate the flows of packets that this TOML file describes. --program is then "
            "any compiled P4 program; without it switches forward by shortest paths.",
            rich_help_panel=_TRAFFIC,
        ),
    ] = None,
    commands: Annotated[
        Path | None,
        typer.Option(
            help="With --traffic: file of simple_switch_CLI's commands for the switches' tables.",
            rich_help_panel=_TRAFFIC,
        ),
    ] = None,
    priority_queues: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=32,
            help="With --traffic: egress queues per port, one for each priority.",
            rich_help_panel=_TRAFFIC,
        ),
    ] = None,
    job_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Simulate the jobs that this TOML file describes in tables [[job]], on one "
            "network; other settings are those of all.",
            rich_help_panel=_JOBS,
        ),
    ] = None,
    pcap: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write a capture of each link in each direction into this folder.",
            rich_help_panel=_TRAFFIC,
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
    generated gradients. With --traffic any P4 program runs, with flows of packets instead.
    """
    if job_file is not None:
        for option, value in (
            ("trace", trace), ("sweep", axes), ("jobs", jobs), ("scheduler", scheduler),
            ("metric", metrics), ("traffic", traffic), ("commands", commands), ("pcap", pcap),
            ("priority-queues", priority_queues),
        ):  # fmt: skip
            if value:
                raise InputError(f"--{option} is not for several jobs; leave it or --job-file out.")
        _several(settings, job_file, record=record, plot=plot, as_json=as_json)
        return
    if traffic is not None:
        for option, value in (
            ("plot", plot), ("trace", trace), ("sweep", axes), ("jobs", jobs),
            ("scheduler", scheduler), ("metric", metrics),
        ):  # fmt: skip
            if value:
                raise InputError(f"--{option} is for all-reduces; leave out --traffic, or it.")
        _traffic(
            settings,
            traffic,
            commands=commands,
            priority_queues=priority_queues or 1,
            pcap=pcap,
            record=record,
            as_json=as_json,
        )
        return
    if commands is not None or priority_queues is not None:
        raise InputError(
            "--commands and --priority-queues are for traffic; add --traffic with a file of flows."
        )
    if axes:
        if pcap is not None:
            raise InputError("--pcap is of one run; leave out --sweep, or --pcap.")
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
    from innet.reports.outputs import check_writable
    from innet.reports.progress import SimulationDisplay
    from innet.reports.registry import draw
    from innet.reports.trace_events import write_trace
    from innet.scenarios.samples import USUAL
    from innet.scenarios.simulate import simulate as run

    for path in (record, plot, trace):
        if path is not None:
            check_writable(path)
    chosen = settings.model_dump(exclude_unset=True)
    if plot is not None:
        chosen.setdefault("samples", USUAL)
    with SimulationDisplay(err) as display:
        result = run(**chosen, watch=display, pcap=pcap)
    if record is not None:
        result.save(record)
    if trace is not None:
        write_trace(result, trace)
    if plot is not None:
        draw(result, plot)
    files = {"record": record, "trace": trace, "plot": plot, "captures": pcap}
    show(result, files, as_json=as_json)


def _several(
    settings: SimulateSettings,
    path: Path,
    *,
    record: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    from innet.reports.outputs import check_writable
    from innet.reports.registry import draw
    from innet.scenarios.jobs import simulate_jobs

    for file in (record, plot):
        if file is not None:
            check_writable(file)
    result = simulate_jobs(path, **settings.model_dump(exclude_unset=True))
    if record is not None:
        result.save(record)
    if plot is not None:
        draw(result, plot)
    show(result, {"record": record, "plot": plot}, as_json=as_json)


def _traffic(
    settings: SimulateSettings,
    path: Path,
    *,
    commands: Path | None,
    priority_queues: int,
    pcap: Path | None,
    record: Path | None,
    as_json: bool,
) -> None:
    from innet.reports.outputs import check_writable
    from innet.scenarios.traffic import simulate_traffic

    given = settings.model_dump(exclude_unset=True)
    for name in given:
        if name == "faults":
            raise InputError(
                "faults of packets stand in the table [faults] of the file with flows; leave out "
                "--traffic, or the options of faults."
            )
        if name not in _OF_TRAFFIC:
            option = name.replace("_", "-")
            raise InputError(f"--{option} is for all-reduces; leave out --traffic, or --{option}.")
    if commands is not None and "program" not in given:
        raise InputError("--commands are for a program's tables; add --program.")
    if record is not None:
        check_writable(record)
    result = simulate_traffic(
        path, commands=commands, priority_queues=priority_queues, pcap=pcap, **given
    )
    if record is not None:
        result.save(record)
    show(result, {"record": record, "captures": pcap}, as_json=as_json)


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
    from innet.reports.outputs import check_writable
    from innet.reports.progress import SweepDisplay
    from innet.reports.registry import draw
    from innet.scenarios.sweeps import RECORD, TABLE, axis_of, check_metrics, sweep

    axes = {}
    for name, values in map(axis_of, given):
        if name in axes:
            raise InputError(f"--sweep {name} is given twice; give all its values at once.")
        axes[name] = values
    check_metrics(metrics)
    if metrics and plot is None:
        raise InputError("--metric says what a sweep's plot draws; add --plot, or leave it out.")
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
            draw(result, plot, metrics=metrics)
            files["plot"] = plot
    finally:  # also where there is no such metric
        show(result, files, as_json=as_json)
    say_failures(result)
    if result.failures:
        raise typer.Exit(_FAILED)

"""``innet demo``, ``train``, ``reproduce``, ``experiment`` and ``report``: runs that leave records.

What a command runs is imported within it: Numba takes longer to import than a mistake in an option
should take to be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from innet.cli.options import OUT_DIR, JsonOption, OutDirOption, completing, with_settings
from innet.cli.output import err, out, say_json
from innet.core.errors import InnetError, InputError, MissingToolError
from innet.core.settings import DemoSettings, ThroughputSettings, TrainSettings

if TYPE_CHECKING:
    from innet.experiments.throughput import Measure
    from innet.records import Point

experiment_app = typer.Typer(
    help="Experiments that sweep over settings.", no_args_is_help=True, rich_markup_mode="markdown"
)


@experiment_app.callback()
def _experiment() -> None:
    """Experiments that sweep over settings."""


@with_settings(DemoSettings)
def demo(
    settings: DemoSettings, *, out_dir: OutDirOption = OUT_DIR, as_json: JsonOption = False
) -> None:
    """Train a small CNN on handwritten digits, its gradients summed by a P4 program.

    Three times from the same start: plain float32 sums; every element as an integer through the
    switch (dense); the largest of each worker as a lossless homomorphic sketch (LHC).
    """
    from innet.experiments.demo import run
    from innet.experiments.plots import draw_demo
    from innet.experiments.progress import ProgressDisplay
    from innet.experiments.tables import demo_table

    with ProgressDisplay(err) as display:
        result = run(settings, out_dir, created=datetime.now(UTC), watch=display, draw=draw_demo)
    for note in result.notes:
        err.print(note, markup=False)
    files = {
        "record": result.record_path,
        "plot": result.plot_path,
        "packets of one round": result.capture_path,
    }
    show(result.record, demo_table, files, as_json=as_json)


@with_settings(TrainSettings)
def train(
    settings: TrainSettings, *, out_dir: OutDirOption = OUT_DIR, as_json: JsonOption = False
) -> None:
    """Train a small model with any codec, beside plain float32 sums.

    All runs of one seed start from the same weights and see the same batches. --set applies to
    every codec given; `--codec topk:ratio=0.05` changes one.
    """
    from innet.experiments.comparison import run
    from innet.experiments.plots import draw_training
    from innet.experiments.progress import ProgressDisplay
    from innet.experiments.tables import training_table

    try:
        with ProgressDisplay(err) as display:
            result = run(
                settings, out_dir, created=datetime.now(UTC), watch=display, draw=draw_training
            )
    except (KeyboardInterrupt, InnetError, MemoryError) as stop:
        for note in getattr(stop, "__notes__", ()):
            err.print(note, markup=False, soft_wrap=True)
        raise
    for note in result.notes:
        err.print(note, markup=False)
    files = {"record": result.record_path, "plot": result.plot_path}
    show(result.record, training_table, files, as_json=as_json)


def show(
    record: Any, table: Any, files: Mapping[str, Path | None] | None = None, *, as_json: bool
) -> None:
    """A record as its table, with the names of the files that were written; or as JSON."""
    if as_json:
        say_json(record.model_dump(mode="json"))
        return
    out.print(table(record))
    if getattr(record, "networks", ()):
        from innet.experiments.tables import simulated_table

        out.print(simulated_table(record))
    for what, path in (files or {}).items():
        if path is not None:
            out.print(f"{what}: {path}", highlight=False, soft_wrap=True)


def _papers() -> list[str]:
    from innet.experiments.papers import papers

    return list(papers())


def reproduce(
    *,
    codec: Annotated[
        str | None,
        typer.Argument(help="A codec; --list names them.", autocompletion=completing(_papers)),
    ] = None,
    every: Annotated[bool, typer.Option("--list", help="List the codecs with claims.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small, short run as a check.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each training.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    out_dir: OutDirOption = OUT_DIR,
    as_json: JsonOption = False,
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
    from innet.experiments.plots import draw_reproduction
    from innet.experiments.progress import ProgressDisplay
    from innet.experiments.reproduce import ReproduceOptions, run
    from innet.experiments.tables import reproduction_table

    with ProgressDisplay(err) as display:
        record, path = run(
            codec,
            out_dir,
            options=ReproduceOptions(seeds=seeds, seed=seed, quick=quick),
            created=datetime.now(UTC),
            watch=display,
        )
    plot = _drawn(partial(draw_reproduction, record), path.with_suffix(".png"))
    show(record, reproduction_table, {"record": path, "plot": plot}, as_json=as_json)


def _drawn(draw: Any, path: Path) -> Path | None:
    """``path`` once the plot is there; None, and a word about it, without Matplotlib."""
    try:
        draw(path)
    except MissingToolError as error:
        err.print(f"No plot was drawn: {error}", markup=False)
        return None
    return path


@experiment_app.command("throughput")
@with_settings(ThroughputSettings)
def throughput(
    settings: ThroughputSettings, *, out_dir: OutDirOption = OUT_DIR, as_json: JsonOption = False
) -> None:
    """Measure how fast sums come. Run again with the same --out, it measures what is missing."""
    from innet.experiments import throughput as experiment
    from innet.experiments.outputs import folder_for
    from innet.experiments.plots import draw_throughput
    from innet.experiments.tables import throughput_table

    measures: dict[str, Measure] = {"memory": experiment.in_memory}
    if set(settings.switches) - {"memory"}:
        from innet.mininet.network import require_root

        require_root("a Mininet network")
        from innet.bmv2.simple_switch import find_simple_switch
        from innet.mininet.allreduce import measure

        if "bmv2" in settings.switches:
            find_simple_switch()  # an error now, not when it is its turn

        measures |= {"builtin": measure, "bmv2": measure}
    folder = folder_for(out_dir, ("throughput.json", "throughput.png"))
    path = folder / "throughput.json"
    with err.status("") as status:

        def watch(number: int, of: int, point: Point) -> None:
            status.update(f"{number} of {of}: {point.workers} workers, {point.codec}, "
                          f"{point.values_per_packet} values, window {point.window}, "
                          f"{point.topology}, {point.switch} ...")  # fmt: skip

        record = experiment.run(
            settings, path, created=datetime.now(UTC), measures=measures, watch=watch
        )
    plot = _drawn(partial(draw_throughput, record), folder / "throughput.png")
    show(record, throughput_table, {"record": path, "plot": plot}, as_json=as_json)


def report(
    record: Annotated[Path | None, typer.Argument(help="Record of a run, e.g. demo.json.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the plot into this file: .png, .pdf or .svg.")
    ] = None,
    as_json: JsonOption = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of all records and reports.")
    ] = False,
) -> None:
    """Show the record of an earlier run again."""
    from innet.records import (
        Record,
        ReproductionRecord,
        SimulationRecord,
        SweepRecord,
        ThroughputRecord,
        TrainingRecord,
    )
    from innet.records import schema as record_schema

    if schema:
        say_json(record_schema())
        return
    if record is None:
        raise InputError("name a record, such as innet-out/demo.json; or use --schema.")
    from innet.experiments import plots, tables

    loaded = Record.load(record)
    table: Any
    draw: Any
    match loaded:
        case ReproductionRecord():
            table, draw = tables.reproduction_table, plots.draw_reproduction
        case ThroughputRecord():
            table, draw = tables.throughput_table, plots.draw_throughput
        case SimulationRecord():
            table, draw = tables.simulation_table, plots.draw_simulation
        case SweepRecord():
            table, draw = tables.sweep_table, plots.draw_sweep
        case TrainingRecord(format="innet.demo"):
            table, draw = tables.demo_table, plots.draw_demo
        case TrainingRecord():
            table, draw = tables.training_table, plots.draw_training
    if plot is not None:
        draw(loaded, plot)
    show(loaded, table, as_json=as_json)

"""``innet demo``, ``train``, ``reproduce``, ``experiment`` and ``report``: runs that leave records.

Each command imports what it runs inside its function. Numba takes long to import, and a mistake in
an option should be reported at once.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from innet.cli.options import (
    OUT_DIR,
    JsonOption,
    OutDirOption,
    command_line,
    completing,
    with_settings,
)
from innet.cli.output import err, out, say_json
from innet.core.errors import InnetError, InputError, MissingToolError
from innet.core.settings import (
    DemoSettings,
    EmulationSettings,
    SimulateSettings,
    ThroughputSettings,
    TrainSettings,
)

if TYPE_CHECKING:
    from innet.claims.claim import ReproduceOptions
    from innet.claims.reproduce import ClaimDone
    from innet.records import Point, Progress, Record, SweepRecord
    from innet.scenarios.throughput import Measure

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

    It trains three times from the same start: with plain float32 sums; with every element as an
    integer through the switch (dense); with each worker's largest elements as a lossless
    homomorphic sketch (LHC).
    """
    from innet.experiments.demo import run
    from innet.reports.progress import ProgressDisplay
    from innet.reports.registry import draw

    with ProgressDisplay(err) as display:
        result = run(settings, out_dir, created=datetime.now(UTC), watch=display, draw=draw)
    for note in result.notes:
        err.print(note, markup=False)
    files = {
        "record": result.record_path,
        "plot": result.plot_path,
        "packets of one round": result.capture_path,
        "page that plays an all-reduce": result.page_path,
    }
    show(result.record, files, as_json=as_json)


@with_settings(TrainSettings)
def train(
    settings: TrainSettings,
    *,
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="tensorboard|csv",
            help="Log each iteration, in the folder log of --out; may be given twice.",
        ),
    ] = None,
    out_dir: OutDirOption = OUT_DIR,
    as_json: JsonOption = False,
) -> None:
    """Train a small model with any codec, beside plain float32 sums.

    All runs of one seed start from the same weights and see the same batches. --set applies to
    every codec given; `--codec topk:ratio=0.05` changes one.
    """
    from innet.experiments.comparison import run
    from innet.reports.progress import ProgressDisplay
    from innet.reports.registry import draw
    from innet.reports.training_log import TrainingLog

    logged = TrainingLog(log or [], out_dir)
    try:
        with ProgressDisplay(err) as display, logged:

            def watch(event: Progress) -> None:
                display(event)
                logged(event)

            result = run(settings, out_dir, created=datetime.now(UTC), watch=watch, draw=draw)
    except (KeyboardInterrupt, InnetError, MemoryError) as stop:
        for note in getattr(stop, "__notes__", ()):
            err.print(note, markup=False, soft_wrap=True)
        raise
    for note in result.notes:
        err.print(note, markup=False)
    files = {"record": result.record_path, "plot": result.plot_path}
    files["log"] = logged.folder if log else None
    show(result.record, files, as_json=as_json)


def show(record: Any, files: Mapping[str, Path | None] | None = None, *, as_json: bool) -> None:
    """A record as its table, with the names of the files that were written; or as JSON."""
    if as_json:
        say_json(record.model_dump(mode="json"))
        return
    from innet.reports.registry import table_of

    out.print(table_of(record))
    for what, path in (files or {}).items():
        if path is not None:
            out.print(f"{what}: {path}", highlight=False, soft_wrap=True)


def _papers() -> list[str]:
    from innet.claims.papers import papers

    return list(papers())


def reproduce(
    *,
    codec: Annotated[
        str | None,
        typer.Argument(help="A codec; --list names them.", autocompletion=completing(_papers)),
    ] = None,
    every: Annotated[
        bool, typer.Option("--list", help="List the codecs with claims; of one, its claims.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="All codecs with claims, and an HTML page of all claims.")
    ] = False,
    about: Annotated[
        str, typer.Option("--claim", metavar="WORDS", help="Only claims with these words.")
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A small, short run as a check.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each training.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    out_dir: OutDirOption = OUT_DIR,
    as_json: JsonOption = False,
) -> None:
    """Measure what a codec's paper claims, as far as that is possible here.

    It prints each claim, the paper's numbers and ours, what was not tried, and why. It does not
    repeat measurements that an earlier run with the same options left in the folder.
    """
    from innet.claims.claim import ReproduceOptions
    from innet.claims.papers import paper_of, papers
    from innet.records.units import plural

    if every and codec is not None:
        for claim in paper_of(codec).claims:
            if about.casefold() in claim.claim.casefold():
                out.print(f"- {claim.claim}", highlight=False, markup=False)
        return
    if every:
        for name, paper in papers().items():
            claims = plural(len(paper.claims), "claim")
            out.print(f"{name:14}{claims:11}{paper.paper}", highlight=False)
        return
    if everything and (codec is not None or as_json or about):
        raise InputError("--all is of all claims; leave the codec's name, --claim and --json out.")
    if codec is None and not everything:
        raise InputError(f"name a codec: {', '.join(papers())}; or use --all, or --list.")
    options = ReproduceOptions(seeds=seeds, seed=seed, quick=quick)
    if codec is None:
        _reproduce_all(options, out_dir)
        return
    from innet.claims.reproduce import run
    from innet.reports.progress import ProgressDisplay

    with ProgressDisplay(err) as display:
        record, path = run(
            codec,
            out_dir,
            options=options,
            created=datetime.now(UTC),
            watch=display,
            tell=_say_claim,
            about=about,
        )
    plot = _drawn(record, path.with_suffix(".png"))
    show(record, {"record": path, "plot": plot}, as_json=as_json)


def _reproduce_all(options: ReproduceOptions, out_dir: Path) -> None:
    """All papers' claims: a line for each when it is done, their table, and an HTML page."""
    from innet.claims.papers import papers
    from innet.claims.reproduce import run_all
    from innet.reports.html_report import Entry, write_html
    from innet.reports.progress import ProgressDisplay
    from innet.reports.tables import claims_table

    try:
        with ProgressDisplay(err) as display:
            done, failed = run_all(
                papers(),
                out_dir,
                options=options,
                created=datetime.now(UTC),
                watch=display,
                tell=_say_claim,
            )
    except KeyboardInterrupt:
        err.print(f"What was measured is in {out_dir}; the same command goes on.", soft_wrap=True)
        raise
    for record, path in done:
        _drawn(record, path.with_suffix(".png"))
    if done:
        page = Path(out_dir) / "reproduce-all.html"
        write_html([Entry(path.name, record, _command(record)) for record, path in done], page)
        out.print(claims_table(record for record, _ in done))
        out.print(f"page: {page}", highlight=False, soft_wrap=True)
    if failed:
        said = "; ".join(f"{codec}: {error}" for codec, error in failed.items())
        raise InputError(f"{len(failed)} of {len(done) + len(failed)} were not measured. {said}")


def _say_claim(done: ClaimDone) -> None:
    """A line on standard error for a claim that is done."""
    from innet.records.units import rough_duration

    took = "kept" if done.kept else rough_duration(done.finding.seconds or 0.0)
    left = ""
    if done.seconds_left and done.number < done.of:
        left = f"; about {rough_duration(done.seconds_left)} left"
    err.print(
        f"{done.number} of {done.of}, {done.codec}: {done.finding.claim}: "
        f"{done.finding.verdict} ({took}){left}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _drawn(record: Record, path: Path) -> Path | None:
    """``path`` once the plot is there; None, and a word about it, without Matplotlib."""
    from innet.reports.registry import draw

    try:
        draw(record, path)
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
    from innet.reports.outputs import folder_for
    from innet.scenarios import throughput as experiment

    measures: dict[str, Measure] = {"memory": experiment.in_memory}
    if set(settings.switches) - {"memory"}:
        from innet.mininet.network import require_root

        require_root("a Mininet network")
        from innet.bmv2.build import find_simple_switch
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
    plot = _drawn(record, folder / "throughput.png")
    show(record, {"record": path, "plot": plot}, as_json=as_json)


def report(  # noqa: PLR0912 - a branch for each option
    records: Annotated[
        list[Path] | None, typer.Argument(help="Records of runs, e.g. demo.json.")
    ] = None,
    *,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the plot into this file: .png, .pdf or .svg.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="What --plot draws of a sweep. Repeatable."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a simulation's time-line for Perfetto to this JSON file."
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a simulation's samples over time to this CSV file."
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write tables, plots, settings and commands to this HTML file, which needs no "
            "other.",
        ),
    ] = None,
    as_json: JsonOption = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of all records and reports.")
    ] = False,
) -> None:
    """Show the records of earlier runs again."""
    from innet.records import SimulationRecord, SweepRecord
    from innet.records import schema as record_schema

    if schema:
        say_json(record_schema())
        return
    if not records:
        raise InputError("name a record, such as innet-out/demo.json; or use --schema.")
    if len(records) > 1 and (plot or trace or csv or as_json):
        raise InputError(
            "--plot, --trace, --csv and --json are of one record; name one, or use --html."
        )
    loaded = [_loaded(path) for path in records]
    first = loaded[0]
    for option, path in (("--trace", trace), ("--csv", csv)):
        if path is not None and not isinstance(first, SimulationRecord):
            raise InputError(
                f"{option} is of simulations; {records[0]} is of format {first.format}."
            )
    if metrics and not (isinstance(first, SweepRecord) and plot is not None):
        raise InputError("--metric is for --plot of a sweep's record; leave it out.")
    if plot is not None:
        from innet.reports.registry import draw

        options = {"metrics": metrics} if metrics else {}
        draw(first, plot, **options)
    if trace is not None:
        from innet.reports.trace_events import write_trace

        assert isinstance(first, SimulationRecord)
        write_trace(first, trace)
    if csv is not None:
        from innet.reports.samples_csv import write_samples

        assert isinstance(first, SimulationRecord)
        write_samples(first, csv)
    if page is not None:
        from innet.reports.html_report import Entry, write_html

        named = zip(records, loaded, strict=True)
        write_html([Entry(path.name, each, _command(each)) for path, each in named], page)
        out.print(f"page: {page}", highlight=False, soft_wrap=True)
        return
    for path, record in zip(records, loaded, strict=True):
        if len(records) > 1:
            out.print(f"{path.name}:", highlight=False, soft_wrap=True)
        show(record, as_json=as_json)
        if isinstance(record, SweepRecord):
            say_failures(record)


def say_failures(record: SweepRecord) -> None:
    """A line on standard error for each point of a sweep that failed."""
    from innet.reports.tables import failures

    for line in failures(record):
        err.print(line, markup=False, highlight=False, soft_wrap=True)


def _loaded(path: Path) -> Record:
    """The record at ``path``; of a sweep's point, the record of its run."""
    from innet.records import PointRecord, Record, SimulationRecord

    record = Record.load(path)
    if not isinstance(record, PointRecord):
        return record
    if record.record.get("format") not in SimulationRecord.formats:
        raise InputError(f"{path} is a point of a sweep of {record.function}; use --json of it.")
    return SimulationRecord.model_validate(record.record)


def _command(record: Record) -> str:
    """What makes a record like this one; the call in Python where options cannot say it."""
    from innet.records import (
        JobsRecord,
        ReproductionRecord,
        SimulationRecord,
        SweepRecord,
        TrafficRecord,
        TrainingRecord,
    )

    given = record.settings
    match record:
        case SimulationRecord():
            called = ", ".join(f"{name}={value!r}" for name, value in given.items())
            line = command_line("innet simulate", SimulateSettings, given)
            line = line or f"innet.simulate({called})"
        case SweepRecord():
            line = _sweep_command(record)
        case JobsRecord():
            called = ", ".join(f"{name}={value!r}" for name, value in given.items())
            line = f"innet.scenarios.jobs.simulate_jobs({called})"
        case TrafficRecord():
            stated = {name: value for name, value in given.items() if value is not None}
            file = shlex.quote(str(stated.pop("traffic")))
            line = " ".join(
                [f"innet simulate traffic {file}"]
                + [
                    f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
                    for name, value in stated.items()
                ]
            )
        case TrainingRecord(format="innet.demo"):
            line = command_line("innet demo", DemoSettings, given)
        case TrainingRecord() if "model" not in given:  # a script's own
            usual = EmulationSettings().model_dump(mode="json")
            own = {name: each for name, each in given.items() if each != usual.get(name, each)}
            called = ", ".join(f"{name}={each!r}" for name, each in own.items())
            line = f"innet.EmulatedTraining({called})"
        case TrainingRecord():
            line = command_line("innet train", TrainSettings, given)
        case ReproductionRecord():
            quick = " --quick" if record.quick else ""
            line = f"innet reproduce {record.codec} --seeds {given.get('seeds', 3)}{quick}"
        case _:
            line = None
    return line or ""


def _sweep_command(record: SweepRecord) -> str:
    axes = {axis.name: list(axis.values) for axis in record.axes}
    values = itertools.chain.from_iterable(axes.values())
    swept = " ".join(
        shlex.quote(f"{name}={','.join(map(str, each))}") for name, each in axes.items()
    )
    line = command_line(f"innet simulate sweep {swept}", SimulateSettings, record.settings)
    if line is None or any(isinstance(each, (dict, list)) for each in values):
        return f"innet.sweep({record.settings!r}, {axes!r})"
    return line

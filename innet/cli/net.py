"""``innet net``: real packets on a Mininet network."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from innet.cli.experiments import show
from innet.cli.options import (
    OUT_DIR,
    JsonOption,
    OutDirOption,
    OutputOption,
    declared,
    read_settings,
    with_settings,
)
from innet.cli.output import err, out, say_error, say_json
from innet.core.errors import InnetError, InputError
from innet.core.settings import MininetSettings, SwitchKind, TrainSettings
from innet.core.waiting import PATIENCE

if TYPE_CHECKING:
    from innet.mininet.allreduce import NetResult
    from innet.mininet.settings import NetSettings

# Settings without an option: a worker's own, and those of a command that none of its work has.
_OF_A_WORKER = ("job", "delay")
_OF_ONE_SUM = ("size", "density", "input", "rounds")
_BOTH = {"thrift_port", "log_level"}
_ONLY_BMV2 = {"simple_switch"}
# Settings that say something of a network for a program of one's own.
_OF_A_PROGRAM = (
    *("topology", "switch", "workers", "engine", "priority_queues", "pcap"),
    *sorted(_BOTH | _ONLY_BMV2),
)
_HOW_TO_LOOK = (
    "The network is up. `innet` lists ways to look into switches; `switch s1 show_tables` asks "
    "switch s1 in the words of simple_switch_CLI; `help` lists what else there is; `exit` takes "
    "the network down."
)

app = typer.Typer(
    help="Sum gradients, or run a program of your own, on a Mininet network (needs root).\n\n"
    "Without a command: allreduce.",
    rich_markup_mode="markdown",
)

CliOption = Annotated[
    bool, typer.Option("--cli", help="Leave Mininet's command line open afterwards.")
]


@app.command("allreduce")
@with_settings(MininetSettings, without=_OF_A_WORKER)
def allreduce(
    settings: MininetSettings,
    context: typer.Context,
    *,
    cli: CliOption = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sum gradients over a Mininet network (needs root), one process per worker.

    `innet net` without a command is this one.
    """
    _all_reduce(_network(settings, context), output, as_json=as_json, cli=cli)


@app.command("train")
@with_settings(MininetSettings, without=(*_OF_A_WORKER, *_OF_ONE_SUM))
def train(
    settings: MininetSettings,
    context: typer.Context,
    *,
    model: Annotated[str | None, declared("model", TrainSettings.model_fields["model"])] = None,
    epochs: Annotated[int | None, declared("epochs", TrainSettings.model_fields["epochs"])] = None,
    out_dir: OutDirOption = OUT_DIR,
    cli: CliOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model over a Mininet network (needs root), one process per worker."""
    network = _network(settings, context, jobs=1)
    chosen = read_settings(TrainSettings, None, {"model": model, "epochs": epochs})
    _train(network, chosen, out_dir, as_json=as_json, cli=cli)


@app.command("predict")
@with_settings(MininetSettings, without=_OF_A_WORKER)
def predict(
    settings: MininetSettings,
    context: typer.Context,
    *,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="RECORD",
            help="The record (--json) of a prediction in which the machine's cores were the limit. "
            "This prediction then includes the processor time of packets.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Sum gradients in Mininet and in simulated time, and compare; needs --rate and --queue."""
    from innet.scenarios.prediction import check_predictable

    if (settings.topology or "").endswith(".json"):
        raise InputError(
            f"--topology {settings.topology}: a prediction is of all-reduces, on a topology of "
            "innet's."
        )
    check_predictable(settings)
    _predict(_network(settings, context), calibration, as_json=as_json)


@app.command("draw")
@with_settings(MininetSettings, without=_OF_A_WORKER)
def draw(
    settings: MininetSettings,
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A .png, .pdf or .svg file.")],
) -> None:
    """Draw the network of an all-reduce, without starting it."""
    network = _network(settings, context, starts=False)
    from innet.reports.plots import draw_plan

    draw_plan(network.shared_plan(), path)
    err.print(f"The network is drawn in {path}.", highlight=False, soft_wrap=True)


@app.command("program")
@with_settings(MininetSettings, only=_OF_A_PROGRAM)
def program(
    settings: MininetSettings,
    context: typer.Context,
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="P4 or BMv2 JSON; not needed if the file of the topology names its own.",
        ),
    ] = None,
    *,
    rules: Annotated[
        Path | None,
        typer.Option(
            "--commands", help="File with simple_switch_CLI's commands for the control plane."
        ),
    ] = None,
) -> None:
    """Start a network with a program of your own, and Mininet's command line (needs root).

    --topology may be a file (.json) in the JSON of p4lang's tutorials.
    """
    topology = settings.topology or "star"
    file = Path(topology) if topology.endswith(".json") else None
    given = _given(context)
    if file is not None:
        _refuse(given, {"workers"}, "no effect, as the topology file says which hosts there are")
    elif topology != "star":
        raise InputError(
            f"--topology {topology}: a program of your own runs on a star, or on the network of a "
            "topology file (.json)."
        )
    elif path is None:
        raise InputError("which program? Give its file, or --topology with a file that names one.")
    _check_switch(given, settings.switch)
    from innet.mininet.network import require_root

    require_root("a Mininet network")
    _own_program(settings, path, topology=file, rules=rules)


def _network(
    settings: MininetSettings,
    context: typer.Context,
    *,
    jobs: int | None = None,
    starts: bool = True,
) -> NetSettings:
    """The network of an all-reduce.

    Args:
        settings: of the network and the workers.
        context: of the command, for what was given as options.
        jobs: how many, where that is not stated; by default the topology's number.
        starts: it will be started, which needs root.

    Raises:
        InputError: an option has no effect.
        InnetError: something is missing, or cannot be used.
    """
    if (settings.topology or "").endswith(".json"):
        raise InputError(
            f"--topology {settings.topology}: such a network is for a program of your own; see "
            "innet net program."
        )
    _check_switch(_given(context), settings.switch)
    if starts:
        from innet.mininet.network import require_root

        require_root("a Mininet network")
    from innet.mininet.settings import NetSettings
    from innet.topology import topology_of

    given = settings.model_dump(exclude_unset=True)
    given.setdefault("jobs", jobs or topology_of(settings.topology).jobs)
    return NetSettings.model_validate(given)


def _open_cli(network: Any) -> None:
    """Leave Mininet's command line to the user, until it is closed."""
    from innet.mininet.cli import SwitchCLI

    err.print(_HOW_TO_LOOK, highlight=False)
    SwitchCLI(network)


def _all_reduce(settings: NetSettings, output: Path | None, *, as_json: bool, cli: bool) -> None:
    """All-reduces of one or several jobs; their reports are printed.

    Args:
        settings: what to do.
        output: where the sum goes.
        as_json: print the report as JSON.
        cli: open the command line before the network is taken down, also after a failure.

    Raises:
        InnetError: something is missing, cannot be used, or failed.
        typer.Exit: the same, and the command line was open after it.
    """
    from innet.mininet.allreduce import run_jobs
    from innet.reports.outputs import check_writable, save_array
    from innet.reports.tables import report_table

    if output is not None:
        if settings.jobs > 1:
            raise InputError(f"--output takes the sum of one job; there are {settings.jobs}.")
        check_writable(output)

    def tell(results: list[NetResult]) -> None:
        for each in results:
            for worker, why in sorted(each.departed.items()):
                err.print(f"Without worker {worker}: {why}", markup=False, highlight=False)
        if as_json:
            reports = [each.report.model_dump(mode="json") for each in results]
            say_json(reports[0] if len(reports) == 1 else {"jobs": reports})
            return
        for number, each in enumerate(results, start=1):
            if len(results) > 1:
                out.print(f"Job {number} of {len(results)}", style="bold", highlight=False)
            out.print(report_table(each.report))

    with err.status("") as status:
        watch = _watching(status)

        def inspect(network: Any, results: list[NetResult]) -> None:
            status.stop()
            try:
                if output is not None:
                    save_array(output, results[0].sum)
            finally:  # also where the disk is full
                tell(results)
            if cli:
                _open_cli(network)

        def on_failure(network: Any, error: InnetError) -> None:
            status.stop()
            say_error(str(error))
            _open_cli(network)
            raise typer.Exit(1)  # it is said

        run_jobs(
            settings,
            watch=watch,
            inspect=inspect,
            on_failure=on_failure if cli else None,
        )


def _watching(status: Any) -> Callable[[str], None]:
    """What shows each step of a run in ``status``."""
    said = -math.inf

    def watch(what: str) -> None:
        nonlocal said
        status.update(f"{what} ...")
        # Without a terminal the status is not shown; not every round is worth a line.
        if not err.is_terminal and time.monotonic() > said + PATIENCE:
            said = time.monotonic()
            err.print(f"{what} ...", highlight=False)

    return watch


def _predict(settings: NetSettings, calibration: Path | None, *, as_json: bool) -> None:
    """The same all-reduces in Mininet and in simulated time; the record or its table is printed.

    Args:
        settings: what to do.
        calibration: record of what packets take of this machine's cores.
        as_json: print the record as JSON.

    Raises:
        InnetError: something is missing, cannot be used, or failed.
    """
    from innet.mininet.prediction import predict
    from innet.scenarios.prediction import calibration_of

    known = None if calibration is None else calibration_of(calibration)
    with err.status("") as status:
        record = predict(
            settings, created=datetime.now(UTC), watch=_watching(status), calibration=known
        )
    show(record, as_json=as_json)


def _train(
    settings: NetSettings, chosen: TrainSettings, out_dir: Path, *, as_json: bool, cli: bool
) -> None:
    """A training, of which record and plot are written and the table is printed.

    Args:
        settings: of the network and the codec.
        chosen: settings of the training.
        out_dir: where record and plot go.
        as_json: print the record as JSON.
        cli: open the command line before the network is taken down.

    Raises:
        InnetError: something is missing, cannot be used, or failed.
    """
    from innet.mininet import training
    from innet.reports.progress import ProgressDisplay
    from innet.reports.registry import draw

    with ProgressDisplay(err) as display:
        result = training.run(
            settings,
            chosen,
            out_dir,
            created=datetime.now(UTC),
            watch=display,
            draw=draw,
            inspect=_open_cli if cli else None,
        )
    for note in result.notes:
        err.print(note, markup=False)
    files = {"record": result.record_path, "plot": result.plot_path}
    show(result.record, files, as_json=as_json)
    if (links := result.record.runs[1].settings.get("links")) and not as_json:
        out.print(str(links), highlight=False)


def _own_program(
    settings: MininetSettings, program: Path | None, *, topology: Path | None, rules: Path | None
) -> None:
    """A network for a program of one's own, and its command line.

    Args:
        settings: switch, engine and so on; of a star also the workers, by default 2.
        program: P4 or BMv2 JSON; None if the topology names its own.
        topology: a file in the JSON of p4lang's tutorials; a star without one.
        rules: commands for all switches.

    Raises:
        InnetError: something is missing, cannot be used, or failed.
    """
    from innet.mininet.files import run
    from innet.mininet.network import make_folder

    options: Mapping[SwitchKind, set[str]] = {
        "builtin": {"engine", *_BOTH},
        "bmv2": {*_ONLY_BMV2, *_BOTH},
    }
    run(
        program,
        _open_cli,
        topology=topology,
        hosts=settings.workers if "workers" in settings.model_fields_set else 2,
        switch=settings.switch,
        rules=rules,
        switch_options={
            "pcap": None if settings.pcap is None else make_folder(settings.pcap),
            "priority_queues": settings.priority_queues,
            **settings.model_dump(include=options[settings.switch], exclude_unset=True),
        },
    )


# ----------------------------------------------------------------------------
# Options that have no effect are refused, before a network is built.


def _given(context: typer.Context) -> dict[str, str]:
    """Parameters that were given as options, and the options' names."""
    found = {}
    for each in context.command.params:
        source = context.get_parameter_source(each.name) if each.name else None
        if each.name and source is not None and source.name == "COMMANDLINE":
            found[each.name] = each.opts[0]
    return found


def _check_switch(given: Mapping[str, str], kind: str) -> None:
    """Raise InputError if an option of another kind of switch was given."""
    if kind == "bmv2":
        _refuse(given, {"engine"}, "no effect on simple_switch")
    else:
        _refuse(given, _ONLY_BMV2, "no effect without --switch bmv2")


def _refuse(given: Mapping[str, str], names: Collection[str], why: str) -> None:
    """Raise InputError if one of ``names`` was given."""
    if options := [option for name, option in given.items() if name in names]:
        raise InputError(f"{', '.join(options)}: {why}.")

"""What ``innet net`` does once it knows what is wanted: run, show, and open the command line."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from innet.cli.output import err, out, say_error, say_json
from innet.cli.settings import read_settings
from innet.core.errors import InnetError, InputError, UnknownNameError
from innet.core.waiting import PATIENCE

if TYPE_CHECKING:
    from innet.core.settings import SwitchKind
    from innet.mininet.allreduce import NetResult
    from innet.mininet.settings import NetSettings

_HOW_TO_LOOK = (
    "The network is up. `innet` lists ways to look into switches; `switch s1 show_tables` asks "
    "switch s1 in the words of simple_switch_CLI; `help` lists what else there is; `exit` takes "
    "the network down."
)


def open_cli(network: Any) -> None:
    """Leave Mininet's command line to the user, until it is closed."""
    from innet.mininet.cli import SwitchCLI

    err.print(_HOW_TO_LOOK, highlight=False)
    SwitchCLI(network)


def all_reduce(settings: NetSettings, output: Path | None, *, as_json: bool, cli: bool) -> None:
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
    from innet.experiments.outputs import check_writable, save_array
    from innet.experiments.tables import report_table
    from innet.mininet.allreduce import run_jobs

    if output is not None:
        if settings.jobs > 1:
            raise InputError(f"--output takes the sum of one job; there are {settings.jobs}.")
        check_writable(output)

    def tell(results: list[NetResult]) -> None:
        for each in results:
            for worker, why in sorted(each.left.items()):
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
        said = -math.inf

        def watch(what: str) -> None:
            nonlocal said
            status.update(f"{what} ...")
            # Without a terminal the status is not shown; not every round is worth a line.
            if not err.is_terminal and time.monotonic() > said + PATIENCE:
                said = time.monotonic()
                err.print(f"{what} ...", highlight=False)

        def inspect(network: Any, results: list[NetResult]) -> None:
            status.stop()
            try:
                if output is not None:
                    save_array(output, results[0].sum)
            finally:  # also where the disk is full
                tell(results)
            if cli:
                open_cli(network)

        def on_failure(network: Any, error: InnetError) -> None:
            status.stop()
            say_error(str(error))
            open_cli(network)
            raise typer.Exit(1)  # it is said

        run_jobs(
            settings,
            watch=watch,
            inspect=inspect,
            on_failure=on_failure if cli else None,
        )


def train(
    settings: NetSettings, given: Mapping[str, Any], out_dir: Path, *, as_json: bool, cli: bool
) -> None:
    """A training, of which record and plot are written and the table is printed.

    Args:
        settings: of the network and the codec.
        given: settings of the training.
        out_dir: where record and plot go.
        as_json: print the record as JSON.
        cli: open the command line before the network is taken down.

    Raises:
        InnetError: something is missing, cannot be used, or failed.
    """
    from innet.core.settings import TrainSettings
    from innet.experiments.plots import draw_training
    from innet.experiments.progress import ProgressDisplay
    from innet.experiments.tables import training_table
    from innet.mininet import training

    chosen = read_settings(TrainSettings, None, given)
    with ProgressDisplay(err) as display:
        result = training.run(
            settings,
            chosen,
            out_dir,
            created=datetime.now(UTC),
            watch=display,
            draw=draw_training,
            inspect=open_cli if cli else None,
        )
    for note in result.notes:
        err.print(note, markup=False)
    if as_json:
        say_json(result.record.model_dump(mode="json"))
        return
    out.print(training_table(result.record))
    if links := result.record.runs[1].settings.get("links"):
        out.print(str(links), highlight=False)
    for what, path in {"record": result.record_path, "plot": result.plot_path}.items():
        if path is not None:
            out.print(f"{what}: {path}", highlight=False, soft_wrap=True)


def own_program(
    program: Path | None,
    *,
    topology: Path | None,
    hosts: int | None,
    switch: str | None,
    rules: Path | None,
    pcap: Path | None,
    options: Mapping[str, Mapping[str, Any]],
) -> None:
    """A network for a program of one's own, and its command line.

    Args:
        program: P4 or BMv2 JSON; None if the topology names its own.
        topology: a file in the JSON of p4lang's tutorials; a star without one.
        hosts: of a star; by default 2.
        switch: which kind.
        rules: commands for all switches.
        pcap: folder for captures.
        options: arguments of the nodes, by kind of switch; None where the node is to choose.

    Raises:
        InnetError: something is missing, cannot be used, or failed.
    """
    from innet.mininet.files import run
    from innet.mininet.network import made

    kind = switch or "builtin"
    if kind not in options:
        raise UnknownNameError("kind of switch", kind, options)
    chosen = {name: value for name, value in options[kind].items() if value is not None}
    run(
        program,
        open_cli,
        topology=topology,
        hosts=2 if hosts is None else hosts,
        switch=cast("SwitchKind", kind),
        rules=rules,
        switch_options={"pcap": None if pcap is None else made(pcap), **chosen},
    )

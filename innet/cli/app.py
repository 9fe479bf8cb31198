"""The ``innet`` command: its sub-commands, and what an error looks like to a person."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from innet import __version__
from innet.cli import (
    allreduce,
    demo,
    doctor,
    experiment,
    folder_advice,
    net,
    p4,
    report,
    reproduce,
    switch,
    train,
)
from innet.cli.output import say_error
from innet.core.errors import InnetError

app = typer.Typer(
    name="innet",
    help="Gradients compressed by workers, summed by P4 switch programs, decoded by workers.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("reproduce")(reproduce.reproduce)
app.command("allreduce")(allreduce.allreduce)
app.command("net")(net.net)
app.command("codecs")(allreduce.codecs)
app.command("report")(report.report)
app.command("doctor")(doctor.doctor)
app.add_typer(experiment.app, name="experiment")
app.add_typer(p4.app, name="p4")
app.add_typer(switch.app, name="switch")


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Gradients compressed by workers, summed by P4 switch programs, decoded by workers."""


def run() -> int:
    """Run the command line on this process's arguments; its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a "×" must not fail on an ASCII terminal
    try:
        app()
    except InnetError as error:
        say_error(f"{error}\n{folder_advice()}".rstrip())
        return 1
    except MemoryError as error:
        say_error(f"the memory does not suffice ({str(error) or 'no more said'}); choose less.")
        return 1
    except SystemExit as stop:  # Typer's way to end, well or not
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0

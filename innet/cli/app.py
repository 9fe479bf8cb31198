"""The ``innet`` command: its sub-commands, and what an error looks like to a person."""

from __future__ import annotations

import io
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from innet import __version__
from innet.cli import (
    allreduce,
    codecs,
    doctor,
    drop_in,
    experiments,
    folder_advice,
    help_pages,
    net,
    p4,
    simulate,
    switch,
)
from innet.cli.output import TerminalNotice, say_error
from innet.core import own_code
from innet.core.errors import (
    CompositionError,
    DivergedError,
    InnetError,
    InputError,
    OutputError,
)
from innet.core.waiting import hooks

USAGE = 2  # exit status where what was typed cannot be used; as Typer has it
FAILED = 1

# For --help: commands to try, and a page of docs/.
_EXAMPLES: dict[str, tuple[str, str]] = {
    "demo": ("innet demo", "guide"),
    "train": ("innet train --codec topk:ratio=0.05 --codec qsgd --seeds 3", "training"),
    "reproduce": ("innet reproduce gtopk --quick", "results"),
    "allreduce": ("innet allreduce --codec lhc --density 0.01 --topology leaf-spine", "guide"),
    "simulate": ("innet simulate --network 100g --model resnet50 --iterations 3", "simulate"),
    "net": ("sudo innet net --topology fat-tree --switch bmv2", "mininet"),
    "simple-switch": ("sudo innet simple-switch slots-32", "simple-switch"),
    "simple-switch-grpc": ("sudo innet simple-switch-grpc slots-32", "p4runtime"),
    "link-tools": ("innet link-tools --into bin", "simple-switch"),
    "codecs": ("innet codecs --json", "codecs"),
    "report": ("innet report innet-out/demo.json --plot demo.pdf", "guide"),
    "doctor": ("innet doctor", "guide"),
    "help": ("innet help slots", "shell"),
    "experiment throughput": ("innet experiment throughput -w 2 -w 8 -c dense -c lhc", "measured"),
    "p4 list": ("innet p4 list", "slots"),
    "p4 export": ("innet p4 export slots-64 -o slots.json", "slots"),
    "p4 example": ("innet p4 example forward", "switch"),
    "p4 compile": ("innet p4 compile mine.p4 -D VALUES=64", "extending"),
    "p4 check": ("innet p4 check slots-64 --stages", "check"),
    "switch stf": ("innet switch stf slots-32 p4/examples/two-workers.stf", "switch"),
    "switch replay": ("innet switch replay mine.json p0_in.pcap --out replayed", "switch"),
    "switch bench": ("innet switch bench slots-64", "switch"),
    "switch explain": ("innet switch explain slots-32", "switch"),
    "switch cli": ("innet switch cli --thrift-port 9090", "simple-switch"),
    "switch serve": ("innet switch serve --listen 10.0.0.1:48879 --key-file key", "service"),
    "switch top": ("innet switch top 10.0.0.1:48879 --key-file key", "service"),
}


class _PlainFlags:
    """Of commands whose ``--help`` says no type behind flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc] # of Typer's class
        for each in params:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return params


class _Command(_PlainFlags, TyperCommand):
    """A command that does something."""


class _Group(_PlainFlags, TyperGroup):
    """A command that has others."""


app = typer.Typer(
    name="innet",
    cls=_Group,
    help="Gradients compressed by workers, summed by P4 switch programs, decoded by workers.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(experiments.demo)
app.command("train")(experiments.train)
app.command("reproduce")(experiments.reproduce)
app.command("allreduce")(allreduce.allreduce)
app.command("simulate")(simulate.simulate)
app.command("net")(net.net)
app.command(
    "simple-switch",
    add_help_option=False,
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)(drop_in.simple_switch)
app.command(
    "simple-switch-grpc",
    add_help_option=False,
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)(drop_in.simple_switch_grpc)
app.command("link-tools")(drop_in.link_tools)
app.command("codecs")(codecs.codecs)
app.command("report")(experiments.report)
app.command("doctor")(doctor.doctor)
app.command("help")(help_pages.help_topic)
app.add_typer(experiments.experiment_app, name="experiment", cls=_Group)
app.add_typer(p4.app, name="p4", cls=_Group)
app.add_typer(switch.app, name="switch", cls=_Group)


def _completed(commands: list[Any], prefix: str = "") -> None:
    """Every command gets its class and its examples."""
    for each in commands:
        name = each.name or each.callback.__name__
        example, page = _EXAMPLES[prefix + name]
        each.cls = _Command
        each.epilog = f"Example: `{example}`\n\nMore: docs/{page}.md"


_completed(app.registered_commands)
for _each in app.registered_groups:
    assert _each.typer_instance is not None
    _completed(_each.typer_instance.registered_commands, f"{_each.name} ")


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    own: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="FILE",
            help="A Python file or module with codecs, topologies or models of your own; may be "
            "repeated. Or $INNET_IMPORT.",
        ),
    ] = None,
) -> None:
    """Gradients compressed by workers, summed by P4 switch programs, decoded by workers."""
    del show  # it has ended the command
    own_code.add(*(own or []))


def run() -> int:
    """Run the command line on this process's arguments; its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a "×" must not fail on an ASCII terminal
    hooks.compiling = TerminalNotice()
    try:
        app()
    except InnetError as error:
        say_error(f"{error}\n{folder_advice()}".rstrip())
        return status_of(error)
    except MemoryError as error:
        say_error(f"the memory does not suffice ({str(error) or 'no more said'}); choose less.")
        return FAILED
    except SystemExit as stop:  # Typer's way to end, well or not
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def status_of(error: InnetError) -> int:
    """The exit status: 2 where what was typed cannot be used, 1 where a run failed."""
    if isinstance(error, DivergedError | OutputError):
        return FAILED
    return USAGE if isinstance(error, InputError | CompositionError) else FAILED

"""The ``innet`` command: its sub-commands, and what an error looks like to a person."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from innet._version import __version__
from innet.cli import folder_advice
from innet.cli.output import TerminalNotice, say_error
from innet.core import user_modules
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


class _Entry(NamedTuple):
    """A command, without its module.

    Attributes:
        module: in ``innet.cli``; imported when the command is used, as settings and options of
            all commands take longer to make than anything that one of them needs.
        name: of its function, or of a group's Typer object.
        summary: the first sentence of its help.
        example: a command to try; empty for a group.
        page: of docs/.
        parses: whether the function reads its options itself.
    """

    module: str
    name: str
    summary: str
    example: str = ""
    page: str = ""
    parses: bool = False


_COMMANDS: Mapping[str, _Entry] = {
    "demo": _Entry(
        "experiments",
        "demo",
        "Train a small CNN on handwritten digits, its gradients summed by a P4 program.",
        "innet demo",
        "guide",
    ),
    "train": _Entry(
        "experiments",
        "train",
        "Train a small model with any codec, beside plain float32 sums.",
        "innet train --codec topk:ratio=0.05 --codec qsgd --seeds 3",
        "training",
    ),
    "reproduce": _Entry(
        "experiments",
        "reproduce",
        "Measure what a codec's paper claims, as far as that is possible here.",
        "innet reproduce gtopk --quick",
        "results",
    ),
    "allreduce": _Entry(
        "allreduce",
        "allreduce",
        "Sum gradients over the emulated network, once, and report what it took.",
        "innet allreduce --codec lhc --density 0.01 --topology leaf-spine",
        "guide",
    ),
    "simulate": _Entry(
        "simulate",
        "app",
        "Simulate all-reduces, training iterations, jobs or traffic, packet by packet in time.",
    ),
    "net": _Entry(
        "net",
        "app",
        "Sum gradients, or run a program of your own, on a Mininet network (needs root).",
    ),
    "simple-switch": _Entry(
        "drop_in",
        "simple_switch",
        "Run the built-in switch with simple_switch's options, interfaces and control plane.",
        "sudo innet simple-switch slots-32",
        "simple-switch",
        parses=True,
    ),
    "simple-switch-grpc": _Entry(
        "drop_in",
        "simple_switch_grpc",
        "Run the built-in switch with a P4Runtime server, as simple_switch_grpc.",
        "sudo innet simple-switch-grpc slots-32",
        "p4runtime",
        parses=True,
    ),
    "link-tools": _Entry(
        "drop_in",
        "link_tools",
        "Write launchers called simple_switch, simple_switch_grpc and simple_switch_CLI.",
        "innet link-tools --into bin",
        "simple-switch",
    ),
    "codecs": _Entry(
        "codecs",
        "codecs",
        "List the codecs: what each sends of a gradient, and the paper that it is from.",
        "innet codecs --json",
        "codecs",
    ),
    "report": _Entry(
        "experiments",
        "report",
        "Show the records of earlier runs again.",
        "innet report innet-out/demo.json --plot demo.pdf",
        "guide",
    ),
    "view": _Entry(
        "view",
        "view",
        "Make a page that plays a recorded run: packets on links, queues, losses, registers.",
        "innet view run.json",
        "player",
    ),
    "doctor": _Entry(
        "doctor",
        "doctor",
        "Say what is installed, what it is for, and how to install what is missing.",
        "innet doctor",
        "guide",
    ),
    "help": _Entry(
        "help_pages",
        "help_topic",
        "Show a page of the documentation, a command's help, or where a word is explained.",
        "innet help slots",
        "shell",
    ),
    "experiment": _Entry("experiments", "experiment_app", "Experiments that sweep over settings."),
    "p4": _Entry("p4", "app", "P4 programs: list, export, copy examples, compile, check."),
    "lab": _Entry(
        "lab",
        "app",
        "A course lab: sum vectors in a switch, in P4 and Python; and what checks it.",
    ),
    "switch": _Entry(
        "switch",
        "app",
        "Compiled P4 programs on the built-in switch: test, replay, measure, explain.",
    ),
}
# Of groups: the command that runs where none is named, and the commands that were options of it.
_DEFAULTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "simulate": (
        "run",
        {
            "--sweep": "sweep NAME=VALUE,VALUE",
            "--traffic": "traffic FILE",
            "--job-file": "jobs FILE",
        },
    ),
    "net": (
        "allreduce",
        {"--p4": "program FILE", "--train": "train", "--predict": "predict", "--draw": "draw FILE"},
    ),
}
# Of commands of groups: one to try, and a page of docs/.
_EXAMPLES: Mapping[str, tuple[str, str]] = {
    "simulate run": (
        "innet simulate run --network 100g --model resnet50 --iterations 3",
        "simulate",
    ),
    "simulate jobs": ("innet simulate jobs jobs.toml --network 25g --plot jobs.png", "simulate"),
    "simulate traffic": ("innet simulate traffic flows.toml --pcap captures", "simulation"),
    "simulate sweep": ("innet simulate sweep workers=8,16 loss=0,1e-4 --network 100g", "sweeps"),
    "net allreduce": ("sudo innet net allreduce --topology fat-tree --switch bmv2", "mininet"),
    "net train": ("sudo innet net train --codec topk --epochs 1", "mininet"),
    "net predict": ("sudo innet net predict --workers 2 --rate 10 --queue 256", "simulation"),
    "net draw": ("innet net draw fat-tree.png --topology fat-tree", "mininet"),
    "net program": ("sudo innet net program mine.json --commands mine.commands", "mininet"),
    "experiment throughput": ("innet experiment throughput -w 2 -w 8 -c dense -c lhc", "measured"),
    "p4 list": ("innet p4 list", "slots"),
    "p4 export": ("innet p4 export slots-64 -o slots.json", "slots"),
    "p4 example": ("innet p4 example forward", "switch"),
    "p4 compile": ("innet p4 compile mine.p4 -D VALUES=64", "extending"),
    "p4 check": ("innet p4 check slots-64 --stages", "check"),
    "lab new": ("innet lab new aggregation", "lab"),
    "lab check": ("innet lab check aggregation --level 1", "lab"),
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
    """A command that has others.

    Attributes:
        default: the one that runs where none is named; None: one is to be named.
        moved: options that commands took the place of, and these commands.
    """

    default: str | None = None
    moved: Mapping[str, str] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self.default is not None and (not args or args[0].startswith("-")):
            for word in args:
                option = word.partition("=")[0]
                if option in self.moved:
                    raise InputError(
                        f"{option} is a command now: innet {self.name} {self.moved[option]}."
                    )
            # Nothing typed yet may become a command's name, where a shell completes it.
            if args[:1] not in (["--help"], ["-h"]) and (args or not ctx.resilient_parsing):
                args = [self.default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        found = super().shell_complete(ctx, incomplete)
        if self.default is not None and incomplete.startswith("-"):
            command: Any = self.get_command(ctx, self.default)
            inner = type(ctx)(command, info_name=self.default, parent=ctx)
            found += command.shell_complete(inner, incomplete)
        return found


_PARSES: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
}


def _loaded(name: str) -> Any:
    """The command, its module imported."""
    entry = _COMMANDS[name]
    found = getattr(importlib.import_module(f"innet.cli.{entry.module}"), entry.name)
    if isinstance(found, typer.Typer):
        for each in found.registered_commands:
            example, page = _EXAMPLES[f"{name} {each.name}"]
            _complete(each, example, page)
        found.info.cls = _Group
        command: Any = typer.main.get_group(found)
        command.name = name
        command.default, command.moved = _DEFAULTS.get(name, (None, {}))
        return command
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name, **(_PARSES if entry.parses else {}))(found)
    _complete(alone.registered_commands[0], entry.example, entry.page)
    return typer.main.get_command(alone)


def _complete(command: Any, example: str, page: str) -> None:
    """Give a command its class, and the example and page that its help ends with."""
    command.cls = _Command
    command.epilog = f"Example: `{example}`\n\nMore: docs/{page}.md"


class _Commands(Mapping[str, Any]):
    """All commands by name, each made when it is first looked up."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _loaded(name)  # or KeyError
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in _COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Innet(_Group):
    """``innet``: it lists its commands without their modules."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Commands()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        commands = self.commands
        self.commands = {
            name: TyperCommand(name, help=each.summary, rich_markup_mode="markdown")
            for name, each in _COMMANDS.items()
        }
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = commands


app = typer.Typer(
    name="innet",
    cls=_Innet,
    help="Gradients compressed by workers, summed by P4 switch programs, decoded by workers.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    user_modules.add(*(own or []))


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

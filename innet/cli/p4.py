"""``innet p4``: the shipped P4 programs, and compiling others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from innet import programs
from innet.cli.options import JsonOption, compiled_programs, completing
from innet.cli.output import err, out, say_json, write_text
from innet.core.errors import InputError, ProgramError, UnknownNameError

app = typer.Typer(
    help="P4 programs: list, compile, export, check.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

P4cOption = Annotated[
    Path | None, typer.Option("--p4c", help="The compiler. [default: p4c-bm2-ss or p4c on PATH]")
]


@app.command("list")
def list_programs(as_json: JsonOption = False) -> None:
    """List the compiled programs: those that innet ships, and other distributions'."""
    entries = programs.available()
    if as_json:
        say_json({name: _describe(entry) for name, entry in entries.items()})
        return
    table = Table(box=None)
    for column in ("program", "values", "slots", "workers", "p4c", "what it does"):
        table.add_column(column, no_wrap=column != "what it does")
    for name, entry in entries.items():
        size = entry.dimensions()
        table.add_row(
            name, str(size.values), str(size.slots), str(size.workers), entry.p4c, entry.description
        )
    out.print(table)
    out.print(f"sources: {programs.p4_directory()}", highlight=False, soft_wrap=True)


@app.command("export")
def export(
    name: Annotated[
        str,
        typer.Argument(
            help="A compiled program, e.g. slots-64.", autocompletion=completing(compiled_programs)
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="[default: NAME.json]")
    ] = None,
) -> None:
    """Write a compiled program as plain JSON, as simple_switch takes it."""
    entries = programs.available()
    if name not in entries:
        raise UnknownNameError("compiled program", name, entries)
    path = output or Path(f"{name}.json")
    write_text(path, json.dumps(entries[name].json(), indent=1) + "\n")
    out.print(str(path), highlight=False, soft_wrap=True)


@app.command("compile")
def compile_program(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="A P4 file of yours, or a folder with a list of them, programs.toml. Without it: "
            "the programs that innet ships."
        ),
    ] = None,
    define: Annotated[
        list[str] | None, typer.Option("--define", "-D", metavar="NAME=NUMBER", help="Repeatable.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="For SOURCE. [default: SOURCE.json]")
    ] = None,
    p4c: P4cOption = None,
) -> None:
    """Compile P4_16 for v1model with p4c."""
    compiler = programs.find_p4c(str(p4c) if p4c else None)
    if source is None or source.is_dir():
        if define or output:
            raise InputError("--define and --output need a P4 file of yours to compile.")
        folder = source or programs.p4_directory()
        for program in programs.compile_folder(folder, compiler, warn=_pass_on):
            err.print(f"compiled {program.name}", highlight=False)
        return
    document = programs.compile_p4(source, _definitions(define or []), compiler, _pass_on)
    path = output or source.with_suffix(".json")
    write_text(path, json.dumps(document, indent=1) + "\n")
    out.print(str(path), highlight=False, soft_wrap=True)


def _pass_on(text: str) -> None:
    """What p4c says of a program, as p4c prints it."""
    err.print(text, markup=False, highlight=False, soft_wrap=True)


@app.command("check")
def check(
    program: Annotated[
        str,
        typer.Argument(
            help="JSON that p4c wrote, or a compiled program, e.g. slots-64.",
            autocompletion=completing(compiled_programs),
        ),
    ],
    stages: Annotated[
        bool, typer.Option("--stages", help="Show what would be in which stage.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate whether a program fits one pipe of a Tofino 1; exit code 1 if not."""
    from innet.cli import p4_check
    from innet.tofino import estimate
    from innet.tools.files import open_document

    document = open_document(program)
    try:
        found = estimate(document, program)
    except ProgramError as error:
        raise type(error)(f"{program}: {error}") from None
    if as_json:
        say_json(found.document())
    else:
        p4_check.show(found, stages=stages)
    if not found.fits:
        raise typer.Exit(1)


def _definitions(texts: list[str]) -> dict[str, int]:
    definitions = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not name.isidentifier() or not number.isdigit():
            raise InputError(f"--define {text}: write it as NAME=NUMBER, such as VALUES=64.")
        definitions[name] = int(number)
    return definitions


def _describe(entry: programs.CompiledProgram) -> dict[str, object]:
    size = entry.dimensions()
    return {
        "description": entry.description,
        "source": entry.source,
        "parameters": dict(entry.parameters),
        "values": size.values,
        "slots": size.slots,
        "workers": size.workers,
        "p4c": entry.p4c,
        "sha256": entry.sha256,
    }

"""``innet p4``: the shipped P4 programs, and compiling others."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from innet import programs
from innet.cli.options import JsonOption, compiled_programs, completing
from innet.cli.output import err, out, say_json, write_text
from innet.core.errors import (
    InputError,
    MissingToolError,
    OutputError,
    ProgramError,
    UnknownNameError,
)
from innet.core.files import atomic_write

if TYPE_CHECKING:
    from innet.tofino import CompilerVerdict, Estimate

_PAPERS = {
    "harvest": "Sapio et al., NSDI 2021",
    "hashed": "Lao et al., NSDI 2021",
    "slots": "Sapio et al., NSDI 2021",
    "tree": "Sapio et al., NSDI 2021",
}

app = typer.Typer(
    help="P4 programs: list, export, copy examples, compile, check.",
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
    by_program = sorted(entries.values(), key=_program_of)
    for program, variants in itertools.groupby(by_program, _program_of):
        found = sorted(
            variants, key=lambda entry: (entry.is_header_only, entry.dimensions().values)
        )
        size = found[0].dimensions()
        paper = f"; {_PAPERS[program]}" if program in _PAPERS else ""
        names = ", ".join(entry.name for entry in found)
        _line(f"{program}: {found[0].description}{paper}")
        _line(f"  {names}: {size.slots} slots, {size.workers} workers")
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
    """Write a compiled program as plain JSON, as simple_switch takes it, and its P4Info."""
    entries = programs.available()
    if name not in entries:
        raise UnknownNameError("compiled program", name, entries)
    path = output or Path(f"{name}.json")
    write_text(path, json.dumps(entries[name].json(), indent=1) + "\n")
    out.print(str(path), highlight=False, soft_wrap=True)
    if path.exists() and not path.is_file():
        return  # a pipe or a device: there is no place beside it
    if (p4info := entries[name].p4info()) is not None:
        path = path.with_suffix(programs.P4INFO)
        write_text(path, p4info)
        out.print(str(path), highlight=False, soft_wrap=True)


@app.command("example")
def copy_example(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An example, e.g. forward. Without it: list them.",
            autocompletion=completing(programs.examples),
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the files; made if need be.")
    ] = Path(),
) -> None:
    """Copy an example: a P4 program, compiled, with its commands, tests, captures or traffic."""
    examples = programs.examples()
    if name is None:
        for each, files in examples.items():
            _line(f"{each}: {', '.join(str(file) for file in files)}")
        return
    if name not in examples:
        raise UnknownNameError("example", name, examples)
    folder = programs.p4_directory() / "examples"
    inside = folder / name if (folder / name).is_dir() else folder
    targets = {
        folder / file: output / (folder / file).relative_to(inside) for file in examples[name]
    }
    for source, target in targets.items():
        if target.exists() and target.read_bytes() != source.read_bytes():
            raise InputError(f"{target} exists. Remove it, or name another folder by --output.")
    for source, target in targets.items():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError.of(target.parent, error) from None
        with atomic_write(target) as temporary:
            temporary.write_bytes(source.read_bytes())
        out.print(str(target), highlight=False, soft_wrap=True)


@app.command("compile")
def compile_program(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="A P4 file of yours, or a folder with a list of them, programs.toml. Without it: "
            "the programs that innet ships. Of a folder, those whose sources have changed."
        ),
    ] = None,
    define: Annotated[
        list[str] | None, typer.Option("--define", "-D", metavar="NAME=NUMBER", help="Repeatable.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="For SOURCE. [default: SOURCE.json]")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Compile unchanged programs of a folder, too.")
    ] = False,
    p4c: P4cOption = None,
) -> None:
    """Compile P4_16 for v1model with p4c: its JSON, and its P4Info for P4Runtime beside it."""
    compiler = programs.find_p4c(str(p4c) if p4c else None)
    if source is None or source.is_dir():
        if define or output:
            raise InputError("--define and --output need a P4 file of yours to compile.")
        folder = source or programs.p4_directory()
        made = programs.compile_folder(folder, compiler, warn=_pass_on, changed=not everything)
        none = True
        for program in made:
            none = False
            err.print(f"compiled {program.name}", highlight=False)
        if none:
            err.print(f"{folder}: no source has changed; --all compiles all the same.")
        return
    if everything:
        raise InputError("--all is for a folder of programs.")
    path = output or source.with_suffix(".json")
    p4info = path.with_suffix(programs.P4INFO)
    words = _definitions(define or [])
    try:
        document = programs.compile_p4(source, words, compiler, _pass_on, p4info)
    except OSError as error:
        raise OutputError.of(p4info, error) from None
    write_text(path, json.dumps(document, indent=1) + "\n")
    for each in (path, p4info):
        if each.exists():
            out.print(str(each), highlight=False, soft_wrap=True)


def _program_of(entry: programs.CompiledProgram) -> str:
    return entry.program


def _line(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def _pass_on(text: str) -> None:
    """What p4c says of a program, as p4c prints it."""
    err.print(text, markup=False, highlight=False, soft_wrap=True)


@app.command("check")
def check(
    program: Annotated[
        str,
        typer.Argument(
            help="JSON from p4c, a compiled program, e.g. slots-64, or a P4 source.",
            autocompletion=completing(compiled_programs),
        ),
    ],
    *,
    with_compiler: Annotated[
        Path | None,
        typer.Option(
            "--with",
            metavar="COMPILER",
            help="Also ask p4c's Tofino compiler: p4c-barefoot on PATH, or its path.",
        ),
    ] = None,
    define: Annotated[
        list[str] | None,
        typer.Option("--define", "-D", metavar="NAME=NUMBER", help="Of a P4 source. Repeatable."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds that the Tofino compiler may take.")
    ] = 900.0,
    p4c: P4cOption = None,
    stages: Annotated[
        bool, typer.Option("--stages", help="Show the contents of each stage.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate whether a program fits one pipe of a Tofino 1; exit code 1 if not.

    With --with the compiler decides, and the estimate stands beside its numbers.
    """
    from innet import tofino

    compiler = None if with_compiler is None else tofino.find_compiler(with_compiler)
    source, document = _of_check(program, define, p4c, verdict=compiler is not None)
    try:
        found = None if document is None else tofino.estimate(document, program)
    except ProgramError as error:
        raise type(error)(f"{program}: {error}") from None
    verdict = None
    if compiler is not None:
        assert source is not None
        path, parameters = source
        err.print("compiling for a Tofino; this may take minutes ...", style="dim")
        verdict = tofino.compile_for_tofino(
            path, parameters, compiler, name=program, timeout=timeout
        )
    if as_json:
        documents = [None if each is None else each.document() for each in (found, verdict)]
        both = {"estimate": documents[0], "compiler": documents[1]}
        say_json(documents[0] if verdict is None else both)
    else:
        _show(found, verdict, stages=stages)
    judged = verdict or found
    assert judged is not None
    if not judged.fits:
        raise typer.Exit(1)


def _of_check(
    program: str, define: list[str] | None, p4c: Path | None, *, verdict: bool
) -> tuple[tuple[Path, dict[str, int]] | None, dict[str, object] | None]:
    """The P4 source with its definitions, and the JSON; None for one that is not needed or known.

    Raises:
        InputError: what is needed is not there.
    """
    from innet import tofino
    from innet.tools.files import open_document

    if Path(program).suffix == ".p4":
        path, parameters = Path(program), _definitions(define or [])
        if tofino.architecture(path) == "v1model":
            try:
                compiler = programs.find_p4c(str(p4c) if p4c else None)
            except MissingToolError:
                if not verdict:
                    raise
                err.print("p4c-bm2-ss is not installed, so there is no estimate.")
                return (path, parameters), None
            return (path, parameters), programs.compile_p4(path, parameters, compiler)
        if not verdict:
            raise InputError(
                f"{program} is written for TNA, and the estimate reads v1model programs only. "
                "Ask the compiler: --with p4c-barefoot."
            )
        return (path, parameters), None
    if define:
        raise InputError("--define needs a P4 source, such as p4/slots.p4.")
    source = None
    if (entry := programs.available().get(program)) is not None:
        source = entry.path.parent.parent / entry.source, dict(entry.parameters)
    elif verdict:
        raise InputError(
            f"--with needs a P4 source or the name of a compiled program, not {program}."
        )
    return source, open_document(program)


def _show(estimate: Estimate | None, verdict: CompilerVerdict | None, *, stages: bool) -> None:
    """Amounts, reasons and the verdict; on request the stages."""
    from innet.tofino import Severity

    colors = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "blue"}
    _show_usages(estimate, verdict)
    for finding in () if estimate is None else (*estimate.findings, *estimate.translation):
        out.print(f"[{colors[finding.severity]}]{finding.severity.value}[/]: ", end="")
        _line(f"{finding.resource}: {finding.text}.")
        if finding.remedy:
            _line(f"  To change: {finding.remedy}.")
        if finding.where:
            _line(f"  At {finding.where}")
    for refusal in () if verdict is None else verdict.refusals:
        out.print(f"[red]refused[/] by {verdict.compiler if verdict else ''}: ", end="")
        _line(refusal.text)
        if refusal.where:
            _line(f"  At {refusal.where}")
    judged = verdict or estimate
    if stages and judged is not None:
        for number, names in enumerate(judged.layout):
            _line(f"stage {number}: {', '.join(names)}")
    if estimate is not None:
        says = "fits" if estimate.fits else "does not fit"
        _line(f"{estimate.program} {says}, by this estimate (which is not the vendor's compiler).")
        if estimate.fits and estimate.translation:
            _line("As written, for v1model, p4c's Tofino compiler would refuse it: see above.")
    if verdict is not None:
        says = "accepted" if verdict.fits else "refused"
        _line(f"{verdict.program} is {says} by {verdict.compiler}.")


def _show_usages(estimate: Estimate | None, verdict: CompilerVerdict | None) -> None:
    from rich.table import Table

    estimated = {} if estimate is None else {each.resource: each for each in estimate.usages}
    compiled = {} if verdict is None else {each.resource: each for each in verdict.usages}
    table = Table(box=None)
    table.add_column("of one Tofino 1 pipe", no_wrap=True)
    for name, column in (("estimate", estimated), ("compiler", compiled)):
        if column:
            table.add_column(name if verdict else "used", no_wrap=True, justify="right")
    table.add_column("available", no_wrap=True)
    table.add_column("", no_wrap=True)
    for resource in dict.fromkeys([*estimated, *compiled]):
        both = [column.get(resource) for column in (estimated, compiled) if column]
        known = [each for each in both if each is not None]
        table.add_row(
            resource,
            *("" if each is None else str(each.used) for each in both),
            "" if known[0].available is None else str(known[0].available),
            "" if known[-1].fits else "[red]exceeded",
        )
    if table.row_count:
        out.print(table)


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

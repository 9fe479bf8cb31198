"""``innet lab``: a course lab about aggregation in a switch, and what checks it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from innet.cli.options import JsonOption
from innet.cli.output import err, out, say_error, say_json
from innet.cli.p4 import P4cOption
from innet.core.errors import MissingToolError

app = typer.Typer(
    help="A course lab: sum vectors in a switch, in P4 and Python; and what checks it.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_NOT_CHECKED = 2  # exit status, as of what was typed that cannot be used


@app.command("new")
def new(
    folder: Annotated[Path, typer.Argument(help="A new folder.", metavar="DIR")],
) -> None:
    """Write the lab: a README with three levels, a P4 program and a worker to complete, tests."""
    from innet.lab import new_folder

    for path in new_folder(folder):
        _line(str(path))
    _line(f"Read {folder / 'README.md'}; then: innet lab check {folder}")


@app.command("check")
def check_folder(
    folder: Annotated[Path, typer.Argument(help="The student's folder.", metavar="DIR")],
    *,
    level: Annotated[
        list[int] | None,
        typer.Option("--level", min=1, max=3, help="Repeatable. [default: all three]"),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of vectors, losses, duplicates and delays.")
    ] = 0,
    p4c: P4cOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile and run a student's program and workers, and show the first packet that is wrong.

    Exit status: 0 if all is right, 1 if something is wrong, 2 if nothing could be checked.
    """
    from innet.lab import check
    from innet.lab.packets import LEVELS

    try:
        report = check(
            folder,
            level or LEVELS,
            seed,
            p4c=None if p4c is None else str(p4c),
            warn=_pass_on,
        )
    except MissingToolError as error:
        say_error("\n".join([str(error), *getattr(error, "__notes__", ())]))
        raise typer.Exit(_NOT_CHECKED) from None
    if as_json:
        say_json(report.document())
    else:
        if report.error:
            say_error(report.error)
        shown = False
        for each in report.levels:
            for part, finding, packets in (
                ("switch", each.switch, each.packets[0]),
                ("workers", each.workers, each.packets[1]),
            ):
                said = "right" if finding is None else "wrong"
                _line(f"level {each.level}, {part}: {said} ({packets} packets)")
                if finding is not None and not shown:
                    _line(f"\n{finding}\n")
                    shown = True
                elif finding is not None:
                    _line(f"  hint: {finding.hint} [{finding.mistake}]")
    raise typer.Exit(not report.passed)


def _pass_on(said: str) -> None:
    """What p4c says of a program, but not that something is unused: much is, at first."""
    for warning in re.split(r"(?m)^(?=\S[^\n]*\(\d+\): )", said):
        if warning.strip() and "[--Wwarn=unused]" not in warning:
            err.print(warning.strip(), markup=False, highlight=False, soft_wrap=True)


def _line(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)

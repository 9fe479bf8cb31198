"""The estimate of a Tofino 1 beside p4c's Tofino compiler, on the programs of a list.

    python -m benchmarks.tofino [--with p4c-barefoot] [--fetched DIR] [--json FILE] [--list FILE]

The list is ``benchmarks/tofino_programs.toml``, or that of ``--list``. Programs of other
repositories are read from ``DIR/OWNER/NAME``, checkouts at the commits that the list names; nothing
is fetched. A verdict is equal if both say that the program fits, or both that it does not. Without
``--with`` only the estimates are shown. ``p4c-bm2-ss`` compiles the programs for the estimate.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from innet import programs, tofino
from innet.core.errors import InnetError, InputError, UnfinishedError

_LIST = Path(__file__).with_name("tofino_programs.toml")
_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Row:
    """One program.

    Attributes:
        estimated: whether the estimate says that the compiler takes it as it is written.
        room: whether the estimate says that a pipe has room for it, in a form for TNA if need be.
        compiled: whether the compiler takes it; None where it was not asked or gave no answer.
        stages: by the estimate, then by the compiler.
        reason: why the compiler refuses it, else why the estimate does.
    """

    name: str
    estimated: bool
    room: bool
    compiled: bool | None
    stages: tuple[int | None, int | None]
    reason: str

    @property
    def equal(self) -> bool:
        """Both verdicts are there and equal."""
        return self.compiled is not None and self.estimated == self.compiled

    @property
    def near(self) -> bool:
        """Both accept it, and their stages differ by at most one."""
        first, second = self.stages
        both = first is not None and second is not None
        return both and self.equal and abs((first or 0) - (second or 0)) <= 1


def source_of(entry: dict[str, Any], fetched: Path | None) -> Path | None:
    """The source of a program; None if it is one to be fetched and is not there."""
    if (repository := entry.get("repository")) is None:
        return _ROOT / str(entry["source"])
    path = None if fetched is None else fetched / repository / entry["source"]
    return path if path is not None and path.is_file() else None


def compare(entry: dict[str, Any], source: Path, compiler: Path | None, timeout: float) -> Row:
    """Ask the estimate, and the compiler if there is one."""
    defines: dict[str, int] = entry.get("defines", {})
    if (shipped := entry.get("shipped")) is not None:
        document = programs.available()[shipped].json()
    else:
        document = programs.compile_p4(source, defines)
    found = tofino.estimate(document, entry["name"])
    errors = [each for each in found.findings if each.severity is tofino.Severity.ERROR]
    errors += found.translation
    reason = errors[0].text if errors else ""
    verdict, compiled, taken = None, None, None
    if compiler is not None:
        try:
            verdict = tofino.compile_for_tofino(source, defines, compiler, timeout=timeout)
        except UnfinishedError as error:
            reason = str(error)
        except InnetError as error:  # it crashed: it did not accept the program
            compiled, reason = False, str(error).splitlines()[0]
    if verdict is not None:
        compiled = verdict.fits
        taken = _stages(verdict.usages)
        if verdict.refusals:
            refusal = verdict.refusals[0]
            reason = f"{refusal.text} ({refusal.where})" if refusal.where else refusal.text
    estimated = _stages(found.usages)
    return Row(entry["name"], found.accepted, found.fits, compiled, (estimated, taken), reason)


def _stages(usages: tuple[tofino.Usage, ...]) -> int | None:
    return next((each.used for each in usages if each.resource == "stages"), None)


def main(
    with_compiler: Annotated[str | None, typer.Option("--with")] = None,
    fetched: Annotated[Path | None, typer.Option()] = None,
    timeout: Annotated[float, typer.Option()] = 900.0,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
    programs_file: Annotated[Path, typer.Option("--list")] = _LIST,
) -> None:
    """The estimate beside the compiler."""
    out = Console()
    compiler = None if with_compiler is None else tofino.find_compiler(with_compiler)
    rows = []
    for entry in tomllib.loads(programs_file.read_text("utf-8"))["program"]:
        source = source_of(entry, fetched)
        if source is None:
            raise InputError(
                f"{entry['name']}: check {entry['repository']} out at {entry['commit']} below the "
                f"folder that --fetched names, as {entry['repository']}."
            )
        rows.append(compare(entry, source, compiler, timeout))
        out.print(f"{entry['name']} ...", style="dim")
        if json_file is not None:  # after each, since one may take many minutes
            json_file.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    table = Table(box=None)
    for title in ("program", "room", "estimate", "compiler", "stages", "reason"):
        table.add_column(title)
    says = {None: "-", True: "yes", False: "no"}
    for row in rows:
        numbers = " / ".join("-" if each is None else str(each) for each in row.stages)
        verdicts = says[row.room], says[row.estimated], says[row.compiled]
        table.add_row(row.name, *verdicts, numbers, row.reason[:120])
    out.print(table)
    if compiler is not None:
        answers = sum(row.compiled is not None for row in rows)
        out.print(f"{sum(row.equal for row in rows)} of {answers} verdicts are equal.")
        if answers < len(rows):
            out.print(f"The compiler gave no answer to {len(rows) - answers} others in time.")
        accepted = [row for row in rows if row.compiled and row.estimated]
        near = sum(row.near for row in accepted)
        out.print(f"Stages differ by at most one in {near} of {len(accepted)} that both accept.")


if __name__ == "__main__":
    typer.run(main)

"""The verdict of p4c's Tofino compiler (``p4c-barefoot``) on a program, and what its reports say.

The compiler is part of p4c (``backends/tofino``) and is built there with ``ENABLE_TOFINO``. With
``-g`` it writes ``resources.json`` and ``phv.json``, whose schemas lie in its sources
(``compiler_interfaces/schemas``). Read here: 2.x of the first, 2.1 to 3.x of the second.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innet.core.errors import InputError, MissingToolError, ProgramError
from innet.core.files import missing
from innet.programs import p4_directory
from innet.programs.compile import run_compiler
from innet.tofino.report import PIPE, Usage

NAME = "p4c-barefoot"
_REMEDY = (
    "It is part of p4c: configure p4c with -DENABLE_TOFINO=ON and build the target p4c-barefoot. "
    "Then give its path, or put it on PATH."
)
_LINE = re.compile(
    r"^(?:(?P<file>[^\s()][^()\n]*)\((?P<line>\d+)\): ?)?"
    r"(?:\[--Werror=(?P<kind>[\w-]+)\] )?error: (?P<text>.*)$",
    re.MULTILINE,
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CompilerMessage:
    """An error of the compiler.

    Attributes:
        text: its sentence.
        where: "file:line" of the P4 source; empty if it names none.
    """

    text: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class CompilerVerdict:
    """What the compiler made of one program.

    Attributes:
        program: its source, or a name.
        compiler: name and version.
        usages: resources of the pipe that uses most stages; empty if there is no report of it.
        refusals: why it was refused; empty if it was not.
        layout: the tables in each stage that is used.
    """

    program: str
    compiler: str
    usages: tuple[Usage, ...]
    refusals: tuple[CompilerMessage, ...]
    layout: tuple[tuple[str, ...], ...]

    @property
    def fits(self) -> bool:
        """Whether the compiler accepted the program."""
        return not self.refusals

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "program": self.program,
            "compiler": self.compiler,
            "fits": self.fits,
            "estimate": False,
            "usages": [
                {"resource": each.resource, "used": each.used, "available": each.available}
                for each in self.usages
            ],
            "refusals": [{"text": each.text, "where": each.where} for each in self.refusals],
            "stages": [list(stage) for stage in self.layout],
        }


def find_compiler(path: str | Path | None = None) -> Path:
    """The compiler at ``path``, or p4c-barefoot on PATH.

    Raises:
        MissingToolError: it is not there; says how to get it.
    """
    name = str(path or NAME)
    found = shutil.which(name)
    if found is None:
        raise MissingToolError(name, "the verdict of the Tofino compiler", _REMEDY)
    return Path(found).absolute()


def architecture(source: Path) -> str:
    """What a P4 source is written for: tna if it, or what it includes, includes tna.p4; or v1model.

    Raises:
        InputError: the source cannot be read.
    """
    if (wrong := missing(source)) is not None:
        raise InputError(f"{source}: {wrong}.")
    waiting, seen = [source], set()
    while waiting:
        path = waiting.pop()
        if path in seen or missing(path) is not None:
            continue
        seen.add(path)
        for kind, name in _INCLUDE.findall(path.read_text("utf-8", "replace")):
            if kind == "<" and name == "tna.p4":
                return "tna"
            waiting += [path.parent / name, p4_directory() / name]
    return "v1model"


def compile_for_tofino(
    source: Path,
    parameters: Mapping[str, int] | None = None,
    compiler: Path | None = None,
    *,
    name: str | None = None,
    timeout: float = 900.0,
) -> CompilerVerdict:
    """Let the compiler compile a program for a Tofino 1.

    Args:
        source: a P4_16 file for TNA, or for v1model, which the compiler translates as far as it
            can. Includes are searched as ``innet p4 compile`` does.
        parameters: preprocessor definitions.
        compiler: see ``find_compiler``.
        name: of the program in the verdict; by default the source.
        timeout: seconds. The allocation of a program's fields may take many minutes.

    Raises:
        InputError: the source or the compiler cannot be used.
        MissingToolError: no compiler.
        UnfinishedError: it did not end in time.
        ProgramError: it crashed, or wrote reports that cannot be read.
    """
    compiler = compiler or find_compiler()
    kind = architecture(source)
    source = source.absolute()
    defines = [f"-D{key}={value}" for key, value in (parameters or {}).items()]
    shown = name or str(source)
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            str(compiler), "--target", "tofino", "--arch", kind, "--std", "p4-16", "-g",
            *defines, "-I", str(p4_directory()), "-o", scratch, source.name,
        ]  # fmt: skip
        done = run_compiler(command, source, timeout)
        said = done.stdout + done.stderr
        version = _version(compiler)
        if refusals := tuple(_refusals(said)):
            return CompilerVerdict(shown, version, (), refusals, ())
        if done.returncode != 0:
            tail = "\n".join(said.strip().splitlines()[-5:])
            raise ProgramError(
                f"{compiler.name} ended with status {done.returncode} and no error of the program "
                f"{shown}:\n{tail}"
                if tail
                else f"{compiler} ended with status {done.returncode} and said nothing about "
                f"{shown}; is it p4c's Tofino compiler, p4c-barefoot?"
            )
        if not (paths := _report_paths(Path(scratch))):
            raise ProgramError(
                f"{version} accepted {shown}, but wrote no report PIPE/logs/resources.json, which "
                f"-g asks for. It wrote {_listed(Path(scratch))}. Give another p4c-barefoot."
            )
        usages, layout = _largest(paths)
    return CompilerVerdict(shown, version, usages, tuple(_too_many(usages)), layout)


def _too_many(usages: Sequence[Usage]) -> Iterator[CompilerMessage]:
    """The compiler ends without an error where it has placed tables in stages that a pipe has not;
    its assembler then refuses (``bf-asm/stage.cpp``).
    """
    for each in usages:
        if each.resource == "stages" and not each.fits:
            yield CompilerMessage(f"it takes {each.used} stages, a pipe has {each.available}")


def _version(compiler: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own compiler, no shell
            [str(compiler), "--version"], capture_output=True, text=True, timeout=60, check=False
        )
        said = done.stdout + done.stderr  # it writes to the second
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    found = re.search(r"\d+(?:\.\d+)+\S*", said)
    return f"{compiler.name} {found[0]}" if found else compiler.name


def _refusals(said: str) -> Iterator[CompilerMessage]:
    seen = set()
    for found in _LINE.finditer(said):
        where = f"{found['file']}:{found['line']}" if found["file"] else ""
        text = found["text"].strip() or said[found.end() :].lstrip().split("\n", 1)[0].strip()
        refusal = CompilerMessage(text.rstrip(":"), where)
        if refusal not in seen:
            seen.add(refusal)
            yield refusal


def read_reports(folder: Path) -> tuple[tuple[Usage, ...], tuple[tuple[str, ...], ...]]:
    """Usages and tables by stage, from the compiler's reports of one program.

    Args:
        folder: what the compiler was given by ``-o``. Of several pipes the one with most stages
            counts.

    Raises:
        ProgramError: a report is missing or is not as its schema says.
    """
    if not (paths := _report_paths(folder)):
        raise ProgramError(f"{folder}: no report PIPE/logs/resources.json of the Tofino compiler.")
    return _largest(paths)


def _report_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/logs/resources.json"))


def _listed(folder: Path) -> str:
    """The files below a folder, for an error that outlives it."""
    names = sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())
    return ", ".join(names[:8] + ["..."] * (len(names) > 8)) or "no file"


def _largest(paths: Sequence[Path]) -> tuple[tuple[Usage, ...], tuple[tuple[str, ...], ...]]:
    return max((_pipe(path) for path in paths), key=lambda found: len(found[1]))


def _pipe(path: Path) -> tuple[tuple[Usage, ...], tuple[tuple[str, ...], ...]]:
    try:
        resources = json.loads(path.read_text("utf-8"))["resources"]
        stages = sorted(resources["mau"]["mau_stages"], key=lambda each: each["stage_number"])
        available = resources["mau"]["nStages"]
        tables = [
            [each["table_name"] for each in stage["logical_tables"]["ids"]] for stage in stages
        ]
        blocks = [_blocks(stage) for stage in stages]
        containers = json.loads((path.parent / "phv.json").read_text("utf-8"))["containers"]
        bits = {
            tagalong: sum(
                each["bit_width"]
                for each in containers
                if each["slices"] and (each["container_type"] == "tagalong") == tagalong
            )
            for tagalong in (False, True)
        }
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ProgramError(f"{path}: not a report of the Tofino compiler: {error!r}.") from None
    used = [bool(names) or any(counts) for names, counts in zip(tables, blocks, strict=True)]
    last = max((number for number, each in enumerate(used, 1) if each), default=0)
    alus, sram, tcam = (sum(each) for each in zip(*blocks, strict=True))
    usages = (
        Usage("stages", last, available),
        Usage("stateful ALUs", alus, available * PIPE.stateful_alus),
        Usage("logical tables", sum(map(len, tables)), available * PIPE.logical_tables),
        Usage("SRAM blocks", sram, available * PIPE.sram_blocks),
        Usage("TCAM blocks", tcam, available * PIPE.tcam_blocks),
        Usage("header vector bits", bits[False], PIPE.header_vector_bits),
        Usage("header vector bits that no stage reaches", bits[True], PIPE.tagalong_bits),
    )
    return usages, tuple(tuple(each) for each in tables[:last])


def _blocks(stage: Mapping[str, Any]) -> tuple[int, int, int]:
    """Stateful ALUs, SRAM blocks and TCAM blocks in use."""

    def used(rows: Sequence[Mapping[str, Any]]) -> int:
        return sum(bool(each["usages"]) for each in rows)

    return (
        used(stage["meter_alus"]["meters"]),
        used(stage["rams"]["srams"]),
        used(stage["tcams"]["tcams"]),
    )

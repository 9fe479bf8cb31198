"""The catalogue of compiled P4 programs: find one, read its dimensions, compile it anew.

The sources live in p4/ at the top of a checkout and travel inside the wheel as innet/p4. A
compiled program is p4c's JSON for BMv2, gzip-compressed; the manifest beside it says from which
sources, with which parameters and by which p4c it was made.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innet.errors import InputError, MissingToolError, ProgramError, UnknownNameError

MANIFEST_FORMAT = 1
_COMPILE_SECONDS = 600.0  # slots-1024 takes most of a minute on an idle machine
_P4C_REMEDY = (
    "Install it (Ubuntu and Debian packages: https://github.com/p4lang/p4c#installation) so that "
    "p4c-bm2-ss or p4c is on PATH, or name it with --p4c. The programs that innet ships are "
    "compiled already and run without it."
)


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """One compiled program and what its manifest entry says.

    Attributes:
        name: e.g. "slots-64".
        program: the name without the number of values, e.g. "slots".
        source: the main P4 file, relative to the p4 directory.
        description: one line for people.
        parameters: the preprocessor definitions it was compiled with.
        path: the gzip-compressed JSON.
        p4c: the version of the compiler.
        sources: SHA-256 of every P4 file that went in, by its path relative to the p4 directory.
        sha256: of the uncompressed JSON text.
    """

    name: str
    program: str
    source: str
    description: str
    parameters: Mapping[str, int]
    path: Path
    p4c: str
    sources: Mapping[str, str]
    sha256: str

    def json(self) -> dict[str, Any]:
        """The compiled program as BMv2 reads it.

        Raises:
            ProgramError: the file is missing or is not what the manifest describes.
        """
        try:
            text = gzip.decompress(self.path.read_bytes())
        except (OSError, EOFError) as error:
            raise ProgramError(f"cannot read {self.path}: {error}. Reinstall innet.") from error
        if hashlib.sha256(text).hexdigest() != self.sha256:
            raise ProgramError(
                f"{self.path} is not the file that its manifest describes; run `innet p4 compile`."
            )
        document: dict[str, Any] = json.loads(text)
        return document

    def dimensions(self) -> Dimensions:
        """What the compiled program itself says of its sizes."""
        if self.sha256 not in _dimensions:  # large programs take a while to be read
            _dimensions[self.sha256] = Dimensions.of(self.json())
        return _dimensions[self.sha256]


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes read back from a compiled program, so that they are written in one place only.

    Attributes:
        values: 32-bit values in a packet: the fields of header type ``values_t``, for each of the
            passes in which a packet brings them.
        slots: of the whole pool: half the length of the register that counts who is in (or else of
            those of values), as each slot has two shadow copies. Where a packet brings its values
            in several passes, the registers of values are so many times as long.
        workers: as many as the bitmap field of the innet header has bits.
    """

    values: int
    slots: int
    workers: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Dimensions:
        """From the JSON of an aggregation program.

        Raises:
            ProgramError: the program has no innet header or no value registers.
        """
        types = {item["name"]: item["fields"] for item in document.get("header_types", [])}
        arrays = {item["name"]: item["size"] for item in document.get("register_arrays", [])}
        sizes = {size for name, size in arrays.items() if re.search(r"\.(value|pair)\d+$", name)}
        if "values_t" not in types or "innet_t" not in types or len(sizes) != 1:
            raise ProgramError(
                "this is no aggregation program of innet: it needs the header types innet_t and "
                "values_t and value registers of one size."
            )
        bitmap = next(field[1] for field in types["innet_t"] if field[0] == "bitmap")
        cells = sizes.pop()
        versions = next((size for name, size in arrays.items() if name.endswith(".count")), cells)
        return cls(
            values=len(types["values_t"]) * (cells // versions),
            slots=versions // 2,
            workers=bitmap,
        )


_dimensions: dict[str, Dimensions] = {}
"""Of programs that were asked for their dimensions, by ``CompiledProgram.sha256``."""


def p4_directory() -> Path:
    """Where the P4 sources and compiled programs are: in the package, or in the checkout.

    Raises:
        ProgramError: neither exists, so the installation is incomplete.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "p4", package.parent / "p4"):
        if (candidate / "programs.toml").is_file():
            return candidate
    raise ProgramError(f"no P4 programs beside {package}; reinstall innet.")


def catalogue(directory: Path | None = None) -> dict[str, CompiledProgram]:
    """All compiled programs by name, as the manifest lists them.

    Raises:
        ProgramError: the manifest is of another format than this innet reads.
    """
    directory = directory or p4_directory()
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    if manifest.get("format") != MANIFEST_FORMAT:
        raise ProgramError(
            f"{directory / 'manifest.json'} has format {manifest.get('format')!r}, this innet "
            f"reads {MANIFEST_FORMAT}; run `innet p4 compile`."
        )
    return {
        name: CompiledProgram(name=name, path=directory / entry.pop("file"), **entry)
        for name, entry in manifest["programs"].items()
    }


def find(program: str, values: int) -> CompiledProgram:
    """The compiled ``program`` with ``values`` values per packet.

    Raises:
        UnknownNameError: no program of that name.
        InputError: not compiled for that many values; the message lists the choices.
    """
    programs = catalogue()
    variants = {
        entry.parameters["VALUES"]: entry for entry in programs.values() if entry.program == program
    }
    if not variants:
        raise UnknownNameError("program", program, {entry.program for entry in programs.values()})
    if values not in variants:
        choices = ", ".join(map(str, sorted(variants)))
        raise InputError(
            f"{program} is compiled for {choices} values per packet, not for {values}."
        )
    return variants[values]


def find_p4c(path: str | None = None) -> Path:
    """The P4 compiler with the BMv2 back end: ``path``, or p4c-bm2-ss or p4c on PATH.

    Raises:
        MissingToolError: there is none; says how to get it.
    """
    names = (path,) if path else ("p4c-bm2-ss", "p4c")
    for name in names:
        found = shutil.which(name)
        if found:
            return Path(found).absolute()  # it is run in other folders
    raise MissingToolError(" or ".join(names), "compiling P4", _P4C_REMEDY)


def p4c_version(p4c: Path) -> str:
    """Such as "1.2.4.17"."""
    try:
        result = subprocess.run(  # noqa: S603 - the user's own compiler, no shell
            [p4c, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except subprocess.TimeoutExpired:
        return "unknown"
    match = re.search(r"\d+(\.\d+)+", result.stdout + result.stderr)
    return match.group() if match else "unknown"


def compile_p4(
    source: Path,
    parameters: Mapping[str, int] | None = None,
    p4c: Path | None = None,
    warn: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Run p4c on ``source`` for v1model.

    Args:
        source: a P4_16 file.
        parameters: preprocessor definitions.
        p4c: the compiler; searched on PATH if not given.
        warn: takes what p4c says of a program that it compiles, if it says something.

    Returns:
        The JSON for BMv2. Source positions are kept as file, line and column; the quoted fragments
        of source text, which make up most of p4c's output, are left out.

    Raises:
        InputError: there is no such file, or ``p4c`` cannot be run.
        MissingToolError: no p4c.
        ProgramError: p4c refused the program; the message is p4c's.
    """
    p4c = p4c or find_p4c()
    if not source.is_file():
        raise InputError(f"{source}: {'not a file' if source.exists() else 'no such file'}.")
    defines = [f"-D{name}={value}" for name, value in (parameters or {}).items()]
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / f"{source.stem}.json"
        if p4c.name == "p4c":
            target = ["--target", "bmv2", "--arch", "v1model", "--std", "p4-16", "-o", scratch]
        else:
            target = ["--p4v", "16", "-o", str(output)]
        # Run where the source is, so that the positions in the JSON hold on any machine.
        command = [str(p4c), *target, *defines, source.name]
        try:
            result = subprocess.run(  # noqa: S603 - the user's own compiler, no shell
                command,
                cwd=source.parent,
                capture_output=True,
                encoding="utf-8",
                errors="replace",  # it quotes the source, whatever that is
                timeout=_COMPILE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ProgramError(f"p4c did not finish {source} in {_COMPILE_SECONDS:g} s.") from error
        except OSError as error:
            raise InputError(f"{p4c} cannot be run: {error.strerror or error}.") from error
        said = result.stderr.strip()
        if result.returncode != 0 or not output.is_file():
            silent = f"(it said nothing, and ended with status {result.returncode})"
            raise ProgramError(f"p4c refused {source}:\n{said or silent}")
        if said:
            warn(said)
        document: dict[str, Any] = _without_fragments(json.loads(output.read_text("utf-8")))
    return document


def compile_shipped(
    directory: Path, p4c: Path | None = None, only: str | None = None
) -> Iterator[CompiledProgram]:
    """Compile what programs.toml lists; write compiled/ and manifest.json; yield each when done.

    Args:
        directory: the p4 directory of a checkout.
        p4c: the compiler; searched on PATH if not given.
        only: compile this program alone; the manifest keeps the others' entries.

    Raises:
        UnknownNameError: programs.toml does not list ``only``.
        MissingToolError: no compiler.
        ProgramError: the compiler refused a program.
    """
    p4c = p4c or find_p4c()
    listed = tomllib.loads((directory / "programs.toml").read_text(encoding="utf-8"))
    if only is not None and only not in listed:
        raise UnknownNameError("program", only, listed)
    manifest_path = directory / "manifest.json"
    entries: dict[str, Any] = {}
    if manifest_path.is_file():
        entries = json.loads(manifest_path.read_text(encoding="utf-8"))["programs"]
        entries = {name: entry for name, entry in entries.items() if entry["program"] in listed}
    (directory / "compiled").mkdir(exist_ok=True)
    for program, item in listed.items():
        if only not in (None, program):
            continue
        entries = {name: entry for name, entry in entries.items() if entry["program"] != program}
        for values in item["values"]:
            name = f"{program}-{values}"
            entries[name] = _compile_variant(directory, p4c, program, item, values)
            _write_manifest(manifest_path, entries)
            yield catalogue(directory)[name]


def source_hashes(directory: Path, source: str) -> dict[str, str]:
    """SHA-256 of ``source`` and of all it includes, by path relative to ``directory``."""
    hashes: dict[str, str] = {}
    pending = [directory / source]
    while pending:
        path = pending.pop().resolve()
        name = path.relative_to(directory.resolve()).as_posix()
        if name in hashes:
            continue
        text = path.read_bytes()
        hashes[name] = hashlib.sha256(text).hexdigest()
        included = re.findall(rb'^\s*#include\s+"([^"]+)"', text, re.MULTILINE)
        pending.extend(path.parent / item.decode() for item in included)
    return dict(sorted(hashes.items()))


def _compile_variant(
    directory: Path, p4c: Path, program: str, item: Mapping[str, Any], values: int
) -> dict[str, Any]:
    """Compile one variant, write its file and return its manifest entry."""
    parameters = {"VALUES": values, **item["parameters"]}
    source = item["source"]
    if not isinstance(source, str):
        source = source[str(values)]
    document = compile_p4(directory / source, parameters, p4c)
    text = json.dumps(document, separators=(",", ":")).encode()
    file = f"compiled/{program}-{values}.json.gz"
    # Without a time stamp, so that equal programs are equal files.
    (directory / file).write_bytes(gzip.compress(text, mtime=0))
    return {
        "program": program,
        "description": item["description"],
        "source": source,
        "parameters": parameters,
        "file": file,
        "p4c": p4c_version(p4c),
        "sources": source_hashes(directory, source),
        "sha256": hashlib.sha256(text).hexdigest(),
    }


def _write_manifest(path: Path, entries: Mapping[str, Any]) -> None:
    manifest = {"format": MANIFEST_FORMAT, "programs": dict(sorted(entries.items()))}
    path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _without_fragments(item: Any) -> Any:
    if isinstance(item, dict):
        return {
            key: _without_fragments(value)
            for key, value in item.items()
            if key != "source_fragment"
        }
    if isinstance(item, list):
        return [_without_fragments(value) for value in item]
    return item

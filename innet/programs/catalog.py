"""The catalog of compiled P4 programs: find one, read its dimensions.

The sources are in p4/ of a checkout, and in innet/p4 of the wheel. A compiled program is p4c's JSON
for BMv2, gzip-compressed. The manifest beside it names the sources, the parameters and the version
of p4c. Other distributions add folders of programs by entry points in the group "innet.programs".
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innet.core.errors import ConfigError, InputError, ProgramError, UnknownNameError
from innet.core.numbers import is_int
from innet.core.registry import Registry

MANIFEST_FORMAT = 1
MANIFEST = "manifest.json"  # of a folder of programs: the compiled programs
LIST = "programs.toml"  # and the list of programs to compile
P4INFO = ".p4info.txtpb"
"""The ending of a program's P4Info, which lies beside its JSON."""

MOST_ELEMENTS = 0xFFFF
"""Most values that a thin packet stands for: what ``elements`` of innet's header holds."""


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """One compiled program and its manifest entry.

    Attributes:
        name: e.g. "slots-64"; of a thin build "slots-thin".
        program: the name without the number of values, e.g. "slots".
        source: the main P4 file, relative to the p4 directory.
        description: one line for people.
        parameters: the preprocessor definitions it was compiled with.
        path: the gzip-compressed JSON.
        p4c: the version of the compiler.
        sources: SHA-256 of every P4 file of the program, by its path relative to the p4 directory.
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

    @property
    def is_header_only(self) -> bool:
        """Whether its packets carry fewer values than they stand for; see docs/simulation.md."""
        return "THIN" in self.parameters

    @property
    def has_owners(self) -> bool:
        """Whether chunks may have an owner: reduce-scatter, all-gather and so on."""
        return "COLLECTIVES" in self.parameters

    @property
    def moves_slots(self) -> bool:
        """Whether slots leave trees that are congested."""
        return "MOVING" in self.parameters

    @property
    def adds_floats(self) -> bool:
        """Whether it adds floats, without a scale that workers agree on."""
        return "FLOATS" in self.parameters

    def json(self) -> dict[str, Any]:
        """The compiled program as BMv2 reads it. Raises as ``text``."""
        document: dict[str, Any] = json.loads(self.text())
        return document

    def p4info(self) -> str | None:
        """Its P4Info in text format; None where it was compiled without."""
        path = self.path.with_name(self.path.name.removesuffix(".json.gz") + P4INFO)
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def text(self) -> bytes:
        """The JSON as text.

        Raises:
            ProgramError: the file is missing or does not match the manifest.
        """
        try:
            text = gzip.decompress(self.path.read_bytes())
        except (OSError, EOFError) as error:
            raise ProgramError(f"cannot read {self.path}: {error}. Reinstall innet.") from error
        if hashlib.sha256(text).hexdigest() != self.sha256:
            raise ProgramError(
                f"{self.path} is not the file that its manifest describes; run `innet p4 compile`."
            )
        return text

    def dimensions(self) -> Dimensions:
        """The sizes of the compiled program."""
        if self.sha256 not in _dimensions:  # cached, since reading large programs takes long
            _dimensions[self.sha256] = Dimensions.of(self.json())
        return _dimensions[self.sha256]


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes, read from the compiled program, so that they are stated only in its source.

    Attributes:
        values: 32-bit values in a packet: the fields of header type ``values_t``, for each of the
            passes in which a packet brings them.
        slots: of the whole pool: half the length of the register that counts contributions (else of
            the value registers), since each slot has two shadow copies. If a packet brings its
            values in several passes, the value registers are longer by that factor.
        workers: number of bits of the innet header's bitmap field.
    """

    values: int
    slots: int
    workers: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Dimensions:
        """Read the dimensions from the JSON of an aggregation program.

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


FOLDERS: Registry[Path] = Registry("program", "innet.programs")
"""Folders of other distributions' programs, by program name. Each holds programs.toml, compiled/
and manifest.json, as p4/ does.
"""

_dimensions: dict[str, Dimensions] = {}
"""Dimensions that were read already, by ``CompiledProgram.sha256``."""


def p4_directory() -> Path:
    """The folder of the P4 sources and compiled programs: in the package, or in the checkout.

    Raises:
        ProgramError: neither exists, so the installation is incomplete.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "p4", package.parent / "p4"):
        if (candidate / LIST).is_file():
            return candidate
    if not package.is_dir():
        raise ProgramError(
            f"no P4 programs in {package}. Out of an archive innet cannot be used: unpack it, or "
            "install innet."
        )
    raise ProgramError(f"no P4 programs beside {package}; reinstall innet.")


def examples() -> dict[str, list[Path]]:
    """The examples that innet ships: the files of each, relative to ``p4_directory()/examples``.

    An example is a subfolder, or all files whose names begin alike up to a dot: ``forward.p4``,
    ``forward.json``, ``forward.commands``.
    """
    folder = p4_directory() / "examples"
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder)
            found.setdefault(name.parts[0].partition(".")[0], []).append(name)
    return found


def catalogue(directory: Path | None = None) -> dict[str, CompiledProgram]:
    """The compiled programs of a folder by name, from its manifest; by default innet's folder.

    Raises:
        ProgramError: the manifest is missing or has another format.
    """
    directory = directory or p4_directory()
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProgramError(
            f"cannot read {directory / 'manifest.json'}: {error}. It is written by "
            f"`innet p4 compile {directory}`."
        ) from None
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found != MANIFEST_FORMAT:
        raise ProgramError(
            f"{directory / 'manifest.json'} has format {found!r}, this innet reads "
            f"{MANIFEST_FORMAT}; run `innet p4 compile {directory}`."
        )
    return {
        name: CompiledProgram(name=name, path=directory / entry.pop("file"), **entry)
        for name, entry in manifest["programs"].items()
    }


def available() -> dict[str, CompiledProgram]:
    """All compiled programs by name: innet's and other distributions'.

    Raises:
        ConfigError: a distribution registers a program that its folder lacks.
        ProgramError: a folder of programs cannot be read.
    """
    shipped = catalogue()
    ours = {entry.program for entry in shipped.values()}
    others = [_of_others(program) for program in FOLDERS.names() if program not in ours]
    return {**shipped, **{entry.name: entry for each in others for entry in each}}


def find(program: str, values: int) -> CompiledProgram:
    """The compiled ``program`` with ``values`` values per packet. It is no thin build.

    Raises:
        UnknownNameError: no program has that name.
        InputError: not compiled for that many values (the message lists the choices), or a file.
        ConfigError, ProgramError: see ``available``; of this program alone.
    """
    variants = {
        each.parameters["VALUES"]: each for each in _builds_of(program) if not each.is_header_only
    }
    if values not in variants:
        choices = ", ".join(map(str, sorted(variants)))
        raise InputError(
            f"{program} is compiled for {choices} values per packet, not for {values!r}."
        )
    return variants[values]


def find_header_only(program: str, values: int) -> CompiledProgram:
    """The thin build of ``program`` whose packets stand for ones with ``values`` values.

    Raises:
        UnknownNameError: no program has that name.
        InputError: it has no thin build, or its packets do not stand for that number of values.
        ConfigError, ProgramError: see ``available``; of this program alone.
    """
    found = next((each for each in _builds_of(program) if each.is_header_only), None)
    if found is None:
        raise InputError(
            f"{program} has no thin build. Send packets with their values, or give {LIST} an entry "
            "'thin' for it."
        )
    most = found.parameters["THIN"]
    least = 1 if most == MOST_ELEMENTS else most
    if not is_int(values) or not least <= values <= most:
        choices = str(most) if least == most else f"{least} to {most}"
        raise InputError(
            f"a thin packet of {program} stands for {choices} values, not for {values!r}."
        )
    return found


def _builds_of(program: str) -> list[CompiledProgram]:
    """All builds of a program; raises as ``find``."""
    shipped = catalogue().values()
    entries = [entry for entry in shipped if entry.program == program]
    if not entries:
        if Path(str(program)).suffix in (".p4", ".json", ".gz"):
            raise InputError(
                f"{program}: gradients are summed by programs that have a name, not by files; an "
                "entry point in the group 'innet.programs' gives yours one (docs/extending.md)."
            )
        if program not in FOLDERS:
            raise UnknownNameError(
                "program", program, {*(entry.program for entry in shipped), *FOLDERS}
            )
        entries = _of_others(program)
    return entries


def _of_others(program: str) -> list[CompiledProgram]:
    """The compiled variants of a program that another distribution registers."""
    folder = FOLDERS.get(program)
    if not isinstance(folder, str | Path):
        raise ConfigError(
            f"program {program!r} is registered in {folder!r}, which is not a folder; correct "
            "what registers it."
        )
    entries = list(catalogue(Path(folder)).values())
    found = [entry for entry in entries if entry.program == program]
    if not found:
        there = ", ".join(sorted({entry.program for entry in entries})) or "nothing"
        raise ConfigError(
            f"program {program!r} is registered in {folder}, which has {there}; "
            f"register it under the name that it has in {LIST}, or run `innet p4 compile {folder}`."
        )
    return found

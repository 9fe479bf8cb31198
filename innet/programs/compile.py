"""Compiles P4 for BMv2 with p4c: one source, or a folder of programs."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innet.core.errors import (
    ConfigError,
    InputError,
    MissingToolError,
    ProgramError,
    UnfinishedError,
    UnknownNameError,
)
from innet.core.files import atomic_write, missing, read_toml
from innet.programs.catalog import (
    LIST,
    MANIFEST,
    MANIFEST_FORMAT,
    P4INFO,
    CompiledProgram,
    catalogue,
    p4_directory,
)

_COMPILE_SECONDS = 3600.0  # slots-1024 takes two minutes of processor time, and 1.4 GB
_P4C_REMEDY = (
    "Install it (Ubuntu and Debian packages: https://github.com/p4lang/p4c#installation) so that "
    "p4c-bm2-ss or p4c is on PATH, or compile by `innet p4 compile --p4c FILE`. The programs that "
    "innet ships are compiled already and run without it."
)


_HEADERS_REMEDY = (
    "\np4c does not find its own headers. Set P4C_16_INCLUDE_PATH to its folder p4include, which "
    "has core.p4."
)


def find_p4c(path: str | None = None) -> Path:
    """The P4 compiler with the BMv2 back end: ``path``, or p4c-bm2-ss or p4c on PATH.

    Raises:
        MissingToolError: it is not installed; says how to install it.
    """
    names = (path,) if path else ("p4c-bm2-ss", "p4c")
    for name in names:
        found = shutil.which(name)
        if found:
            return Path(found).absolute()  # absolute, since it is run in other folders
    raise MissingToolError(" or ".join(names), "compiling P4", _P4C_REMEDY)


def p4c_version(p4c: Path) -> str:
    """The version of p4c, such as "1.2.4.17".

    Raises:
        InputError: it cannot be run.
    """
    try:
        result = subprocess.run(  # noqa: S603 - the user's own compiler, no shell
            [p4c, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except subprocess.TimeoutExpired:
        return "unknown"
    except OSError as error:  # for example because it was built for another processor
        raise InputError(f"{p4c} cannot be run: {error.strerror or error}.") from error
    match = re.search(r"\d+(\.\d+)+", result.stdout + result.stderr)
    return match.group() if match else "unknown"


def run_compiler(
    command: list[str], source: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a P4 compiler in its source's folder, so that positions are the same on any machine.

    Args:
        command: the compiler and its arguments.
        source: what it compiles, for errors and for its folder.
        timeout: seconds.

    Raises:
        InputError: the compiler cannot be run.
        ProgramError: it did not end in time.
    """
    compiler = Path(command[0])
    try:
        return subprocess.run(  # noqa: S603 - the user's own compiler, no shell
            command,
            cwd=source.parent,
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # it quotes the source, which may have any encoding
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{compiler.name} did not finish {source} in {timeout:g} s."
        raise UnfinishedError(message) from error
    except OSError as error:
        raise InputError(f"{compiler} cannot be run: {error.strerror or error}.") from error


def compile_p4(
    source: Path,
    parameters: Mapping[str, int] | None = None,
    p4c: Path | None = None,
    warn: Callable[[str], object] = lambda _: None,
    p4info: Path | None = None,
) -> dict[str, Any]:
    """Run p4c on ``source`` for v1model.

    Args:
        source: a P4_16 file. Includes are searched in its folder, then in the folder of innet's
            programs.
        parameters: preprocessor definitions.
        p4c: the compiler; searched on PATH if not given.
        warn: called with p4c's warnings, if there are any.
        p4info: file for the program's P4Info in text format. Where p4c cannot make one, as of what
            P4Runtime does not have, there is none, and ``warn`` gets the reason.

    Returns:
        The JSON for BMv2. Source positions have file, line and column. The quoted source text,
        which is most of p4c's output, is removed.

    Raises:
        InputError: there is no such file, or ``p4c`` cannot be run.
        MissingToolError: no p4c.
        ProgramError: p4c refused the program; the message is p4c's.
    """
    p4c = p4c or find_p4c()
    if (wrong := missing(source)) is not None:
        raise InputError(f"{source}: {wrong}.")
    defines = [f"-D{name}={value}" for name, value in (parameters or {}).items()]
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / f"{source.stem}.json"
        described = Path(scratch) / f"{source.stem}{P4INFO}"
        if p4c.name == "p4c":
            target = ["--target", "bmv2", "--arch", "v1model", "--std", "p4-16", "-o", scratch]
        else:
            target = ["--p4v", "16", "-o", str(output)]
        more = [] if p4info is None else ["--p4runtime-files", str(described)]
        command = [str(p4c), *target, *more, *defines, "-I", str(p4_directory()), source.name]
        result = run_compiler(command, source, _COMPILE_SECONDS)
        said = result.stderr.strip()
        failed = result.returncode != 0 or not output.is_file()
        if failed and p4info is not None:
            document = compile_p4(source, parameters, p4c, warn)  # or its error
            warn(f"There is no P4Info of {source}, as p4c refuses to make it:\n{said}")
            return document
        if failed:
            silent = f"(no message; it ended with status {result.returncode})"
            hint = _HEADERS_REMEDY if "core.p4: No such file" in said else ""
            raise ProgramError(f"p4c refused {source}:\n{said or silent}{hint}")
        if said := _without_includes(said, source):
            warn(said)
        made: dict[str, Any] = _without_fragments(json.loads(output.read_text("utf-8")))
        if p4info is not None and described.is_file():
            with atomic_write(p4info) as temporary:
                temporary.write_bytes(described.read_bytes())
    return made


def _without_includes(said: str, source: Path) -> str:
    """p4c's warnings, without those of innet's own includes in a program of someone else's: not
    every program needs every constant.
    """
    own = p4_directory().resolve()
    if source.resolve().is_relative_to(own):
        return said
    # A warning begins with its place, and its lines are kept together.
    warnings = re.split(r"(?m)^(?=\S[^\n]*\(\d+\):? ?\[--Wwarn)", said)
    kept = [each for each in warnings if not each.startswith(f"{own}{os.sep}")]
    return "".join(kept).strip()


@dataclass(frozen=True, slots=True)
class Variant:
    """What one build of a program is compiled from.

    Attributes:
        source: the main P4 file.
        parameters: preprocessor definitions.
    """

    source: str
    parameters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Listed:
    """One program in a folder's list.

    Attributes:
        description: one line for people.
        variants: its builds, by what follows the program in their names, such as "64" or "thin".
    """

    description: str
    variants: Mapping[str, Variant]


def compile_folder(
    directory: Path,
    p4c: Path | None = None,
    only: str | None = None,
    warn: Callable[[str], object] = lambda _: None,
    *,
    changed: bool = False,
) -> Iterator[CompiledProgram]:
    """Compile the programs of programs.toml; write compiled/ and manifest.json; yield each program.

    Args:
        directory: the p4 directory of a checkout, or another distribution's folder of programs.
        p4c: the compiler; searched on PATH if not given.
        only: compile only this program; the manifest keeps the entries of the others.
        warn: see ``compile_p4``.
        changed: skip programs that are compiled from the same sources and parameters by any p4c.

    Raises:
        ConfigError: the folder's list is missing or invalid.
        InputError: an output file cannot be written.
        UnknownNameError: ``only`` is not in the list.
        MissingToolError, ProgramError: see ``compile_p4``; or the manifest with the entries of the
            others is damaged.
    """
    p4c = p4c or find_p4c()
    listed = _listed(directory / LIST)
    if only is not None and only not in listed:
        raise UnknownNameError("program", only, listed)
    try:
        entries = _kept(directory / MANIFEST, listed)
    except ProgramError:
        if only is not None:
            raise
        entries = {}  # all are compiled, so a new manifest is written
    made = directory / "compiled"
    try:
        made.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {made}: {error.strerror or error}.") from None
    before = dict(entries)
    for program, item in listed.items():
        if only not in (None, program):
            continue
        entries = {name: entry for name, entry in entries.items() if entry["program"] != program}
        for suffix, variant in item.variants.items():
            name = f"{program}-{suffix}"
            about = {"program": program, "description": item.description}
            if changed and name in before and _is_made(directory, before[name], variant):
                entries[name] = {**before[name], **about}
                continue
            entries[name] = {**about, **_compile_variant(directory, p4c, name, variant, warn)}
            _write_manifest(directory / MANIFEST, entries)
            yield catalogue(directory)[name]
    _write_manifest(directory / MANIFEST, entries)


def _is_made(directory: Path, entry: Mapping[str, Any], variant: Variant) -> bool:
    """Whether a variant's file matches its manifest entry, the list and the current sources."""
    wanted = {"source": variant.source, "parameters": variant.parameters}
    try:
        text = gzip.decompress((directory / entry["file"]).read_bytes())
        wanted["sources"] = source_hashes(directory, variant.source)
    except (OSError, EOFError, KeyError, TypeError, zlib.error):
        return False
    wanted["sha256"] = hashlib.sha256(text).hexdigest()
    return all(entry.get(key) == value for key, value in wanted.items())


def _kept(path: Path, listed: Mapping[str, Listed]) -> dict[str, Any]:
    """The manifest's entries of listed programs; empty without a manifest."""
    if not path.is_file():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["programs"]
        return {name: entry for name, entry in entries.items() if entry["program"] in listed}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProgramError(
            f"{path} is damaged ({error}); compile the whole folder to write it again."
        ) from None


def source_hashes(directory: Path, source: str) -> dict[str, str]:
    """SHA-256 of ``source`` and of all its includes, by path relative to ``directory`` or to the
    folder of innet's programs.
    """
    roots = (directory.resolve(), p4_directory().resolve())
    hashes: dict[str, str] = {}
    pending = [directory / source]
    while pending:
        path = pending.pop().resolve()
        root = next((each for each in roots if path.is_relative_to(each)), None)
        name = str(path) if root is None else path.relative_to(root).as_posix()
        if name in hashes:
            continue
        text = path.read_bytes()
        hashes[name] = hashlib.sha256(text).hexdigest()
        for item in re.findall(rb'^\s*#include\s+"([^"]+)"', text, re.MULTILINE):
            positions = [folder / item.decode() for folder in (path.parent, roots[1])]
            pending.extend([position for position in positions if position.is_file()][:1])
    return dict(sorted(hashes.items()))


def _listed(path: Path) -> dict[str, Listed]:
    try:
        document = read_toml(path)
    except ConfigError as error:
        raise ConfigError(f"{error} A folder of programs has a list of them there.") from None
    listed = {program: _read(item) for program, item in document.items()}
    for program, item in listed.items():
        if item is None:
            raise ConfigError(
                f"{path}: [{program}] needs a source (a file, or one for each number of values), a "
                "description and values, a list of numbers; it may have parameters, which are "
                "numbers, and thin, with the numbers values and stands_for and perhaps a source, "
                "and nothing else."
            )
    return {program: item for program, item in listed.items() if item is not None}


def _read(item: Any) -> Listed | None:
    """A table of the list; None if it is invalid."""
    try:
        rest = dict(item)
        source, numbers = rest.pop("source"), rest.pop("values")
        description, parameters = rest.pop("description"), rest.pop("parameters", {})
        thin = dict(rest.pop("thin", {}))
        files: dict[str, Any] = (
            source if isinstance(source, dict) else dict.fromkeys(map(str, numbers), source)
        )
        variants = {
            str(number): Variant(files[str(number)], {"VALUES": number, **parameters})
            for number in numbers
        }
        if thin:
            sizes = {"VALUES": thin.pop("values"), "THIN": thin.pop("stands_for")}
            variants["thin"] = Variant(thin.pop("source", source), {**sizes, **parameters})
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    texts = [description, *(each.source for each in variants.values())]
    integers = [number for each in variants.values() for number in each.parameters.values()]
    if rest or thin or not all(isinstance(text, str) for text in texts):
        return None
    if not all(type(number) is int for number in (*integers, *parameters.values())):
        return None
    return Listed(description, variants)


def _compile_variant(
    directory: Path,
    p4c: Path,
    name: str,
    variant: Variant,
    warn: Callable[[str], object],
) -> dict[str, Any]:
    """Compile one variant, write its file and return what its manifest entry says of it."""
    p4info = directory / f"compiled/{name}{P4INFO}"
    document = compile_p4(directory / variant.source, variant.parameters, p4c, warn, p4info)
    text = json.dumps(document, separators=(",", ":")).encode()
    file = f"compiled/{name}.json.gz"
    # Without a time stamp, so that equal programs give equal files.
    with atomic_write(directory / file) as temporary:
        temporary.write_bytes(gzip.compress(text, mtime=0))
    return {
        "source": variant.source,
        "parameters": dict(variant.parameters),
        "file": file,
        "p4c": p4c_version(p4c),
        "sources": source_hashes(directory, variant.source),
        "sha256": hashlib.sha256(text).hexdigest(),
    }


def _write_manifest(path: Path, entries: Mapping[str, Any]) -> None:
    manifest = {"format": MANIFEST_FORMAT, "programs": dict(sorted(entries.items()))}
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


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

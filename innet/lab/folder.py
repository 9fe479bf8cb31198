"""The student's folder: what is written into it, and what is read from it."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Callable
from pathlib import Path

from innet import programs
from innet.core.errors import InputError, MissingToolError, OutputError
from innet.lab.worker_part import SumVector
from innet.switch import ir
from innet.tools.files import open_program, program_in

SOURCE, WORKER = "aggregate.p4", "worker.py"


def new_folder(folder: Path) -> list[Path]:
    """Write the lab's material to a folder, which is made; returns the files.

    Raises:
        InputError: there is something already.
        OutputError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not empty; name a new folder for the lab.")
    made = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source in sorted((programs.p4_directory() / "lab" / "student").iterdir()):
            if source.is_file():
                (folder / source.name).write_bytes(source.read_bytes())
                made.append(folder / source.name)
    except OSError as error:
        raise OutputError.of(folder, error) from None
    return made


def program_of(
    folder: Path, p4c: str | None = None, warn: Callable[[str], object] = lambda _: None
) -> ir.Program:
    """The student's program: ``aggregate.p4`` compiled, or ``aggregate.json`` if it is newer.

    Args:
        folder: the student's.
        p4c: the compiler; by default searched on PATH.
        warn: gets what p4c says of the program.

    Raises:
        InputError: there is no such file.
        MissingToolError: no p4c, and no newer JSON.
        ProgramError: p4c refuses the program, or it cannot be loaded.
    """
    source = folder / SOURCE
    ready = source.with_suffix(".json")
    if not source.is_file() and not ready.is_file():
        raise InputError(f"{folder} has no {SOURCE}; `innet lab new DIR` writes one.")
    if ready.is_file() and (
        not source.is_file() or ready.stat().st_mtime >= source.stat().st_mtime
    ):
        return open_program(ready)
    try:
        compiler = programs.find_p4c(p4c)
    except MissingToolError as error:
        error.add_note(f"A {ready.name} that is newer than {SOURCE} is taken without p4c.")
        raise
    return program_in(programs.compile_p4(source, p4c=compiler, warn=warn), source)


def sum_vector_of(path: Path) -> SumVector:
    """The student's ``sum_vector``.

    Raises:
        InputError: there is no such file, it cannot be run, or has no such coroutine.
    """
    if not path.is_file():
        raise InputError(f"there is no {path}; `innet lab new DIR` writes one.")
    try:
        names = runpy.run_path(str(path), run_name="lab_worker")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        line = error.lineno if isinstance(error, SyntaxError) else place.lineno
        raise InputError(
            f"{path}:{line}: {type(error).__name__}: {error}. Python cannot run it."
        ) from error
    if not callable(found := names.get("sum_vector")):
        raise InputError(f"{path} has no sum_vector; keep the function, and complete it.")
    function: SumVector = found
    return function


__all__ = ["SOURCE", "WORKER", "new_folder", "program_of", "sum_vector_of"]

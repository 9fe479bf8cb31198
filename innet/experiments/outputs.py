"""The files that an experiment leaves behind, checked before hours of work: can they be written?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet import __version__
from innet.core.errors import InputError, MissingToolError, OutputError
from innet.core.files import atomic_write
from innet.experiments.tables import training_notes
from innet.records import Machine, Run, TrainingRecord

Draw = Callable[[TrainingRecord, Path], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What an experiment made, and remarks for the person who started it."""

    record: TrainingRecord
    record_path: Path | None
    plot_path: Path | None
    notes: tuple[str, ...]


def folder_for(path: str | Path, names: Iterable[str]) -> Path:
    """The folder at ``path``, made where it is missing, in which files of ``names`` can be written.

    Raises:
        InputError: it cannot be made, or a file in it cannot be written.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror or error}.") from None
    for name in names:
        check_writable(folder / name)
    return folder


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written. A file that is there stays as it is, none is left new.

    Raises:
        OutputError: names the path and what the system said of it.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            return  # a pipe or a device: trying it out would be seen at its other end
        new = not path.exists()
        with path.open("ab"):
            pass
        if new:
            path.unlink()
    except OSError as error:
        raise OutputError.of(path, error) from None


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array as .npy to just this path, of whatever ending.

    Raises:
        OutputError: it cannot be written.
    """
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)


def record_of(
    kind: str, settings: dict[str, Any], runs: Iterable[Run], created: datetime
) -> TrainingRecord:
    """The record of runs made here and now, of format ``kind``."""
    return TrainingRecord(
        format=kind,
        innet=__version__,
        created=created,
        machine=Machine.here(),
        settings=settings,
        runs=tuple(runs),
    )


def saved(record: TrainingRecord, record_path: Path, plot_path: Path, draw: Draw | None) -> Result:
    """Writes the record, and the plot if ``draw`` can draw it; the notes tell of failed methods.

    Args:
        record: what to write.
        record_path: where to.
        plot_path: the PNG file to draw.
        draw: draws the record; where it raises ``MissingToolError``, the result carries the
            message as a note instead. None: nothing is drawn.

    Raises:
        OutputError: a file cannot be written.
    """
    record.save(record_path)
    notes = training_notes(record)
    if draw is None:
        return Result(record, record_path, None, notes)
    try:
        draw(record, plot_path)
    except MissingToolError as error:
        return Result(record, record_path, None, (f"No plot was drawn: {error}", *notes))
    return Result(record, record_path, plot_path, notes)

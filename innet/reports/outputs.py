"""Output files of experiments, checked for writability before hours of work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet._version import __version__
from innet.core.errors import InputError, MissingToolError, OutputError
from innet.core.files import atomic_write
from innet.records import Machine, Run, TrainingRecord
from innet.reports.tables import training_notes

Draw = Callable[[TrainingRecord, Path], None]


@dataclass(frozen=True, slots=True)
class Result:
    """Results of an experiment, with notes for the user."""

    record: TrainingRecord
    record_path: Path | None
    plot_path: Path | None
    notes: tuple[str, ...]


def folder_for(path: str | Path, names: Iterable[str]) -> Path:
    """The folder at ``path``, created if needed, in which files ``names`` can be written.

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
    """Refuse a path that cannot be written. Existing files do not change, and none is created.

    Raises:
        OutputError: names the path and the reason.
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
    """Write an array as .npy to exactly this path, whatever its suffix.

    Raises:
        OutputError: it cannot be written.
    """
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)


def record_of(
    kind: str, settings: dict[str, Any], runs: Iterable[Run], created: datetime
) -> TrainingRecord:
    """The record of runs made on this machine, of format ``kind``."""
    return TrainingRecord(
        format=kind,
        innet=__version__,
        created=created,
        machine=Machine.here(),
        settings=settings,
        runs=tuple(runs),
    )


def saved(record: TrainingRecord, record_path: Path, plot_path: Path, draw: Draw | None) -> Result:
    """Write the record, and the plot if ``draw`` can draw it. The notes name failed methods.

    Args:
        record: what to write.
        record_path: where to.
        plot_path: the PNG file to draw.
        draw: draws the record. If it raises ``MissingToolError``, the message becomes a note of the
            result. None draws nothing.

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

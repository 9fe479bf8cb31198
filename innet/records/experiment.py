"""The record of one experiment: a versioned JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, field_validator

from innet.core.errors import InputError
from innet.records import files
from innet.records.files import DEMO, TRAIN, VERSION
from innet.records.machine import Machine
from innet.records.report import Frozen
from innet.records.run import Run


class ExperimentRecord(Frozen):
    """One experiment: what was asked, where it ran, what happened.

    Attributes:
        format: which experiment; tells a reader what the runs mean.
        version: of the layout.
        innet: version of innet that wrote it.
        created: time in UTC at which the experiment began, as passed in.
        machine: where it ran.
        settings: those that all runs share.
        runs: at least one, with unique names.
    """

    format: str
    version: int = VERSION
    innet: str
    created: AwareDatetime
    machine: Machine
    settings: dict[str, Any]
    runs: tuple[Run, ...]

    @field_validator("created")
    @classmethod
    def _to_utc(cls, created: datetime) -> datetime:
        return created.astimezone(UTC)

    @field_validator("runs")
    @classmethod
    def _named(cls, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        names = [run.name for run in runs]
        if not names or len(set(names)) != len(names):
            raise ValueError("a record needs runs, and each a name of its own")
        return runs

    def run(self, name: str) -> Run:
        """The run of that name.

        Raises:
            InputError: there is none.
        """
        for run in self.runs:
            if run.name == name:
                return run
        names = ", ".join(run.name for run in self.runs)
        raise InputError(f"the record has no run {name!r}; it has {names}.")

    def save(self, path: str | Path) -> None:
        """Writes the record as JSON, in one go: a reader never sees half of it.

        Raises:
            InputError: the file cannot be written.
        """
        files.write(path, self, self.format)

    @classmethod
    def load(cls, path: str | Path, format: str | None = None) -> ExperimentRecord:  # noqa: A002 - the key
        """Reads a record.

        Args:
            path: a file that ``save`` wrote.
            format: the format that the caller can use; None for any.

        Raises:
            InputError: no file, no record, another format, or a newer version.
        """
        _, document = files.read(path, (DEMO, TRAIN) if format is None else (format,))
        return files.parsed(path, document, cls)


def merge(records: Sequence[ExperimentRecord]) -> ExperimentRecord:
    """One record with the runs of all, in order; settings that differ move into the runs.

    Raises:
        InputError: nothing to merge, or the records differ in format, in innet's version or in
            the machine, or have runs of the same name.
    """
    if not records:
        raise InputError("there are no records to merge; give at least one.")
    first = records[0]
    for other in records[1:]:
        _check_mergeable(first, other)
    shared = {
        key: value
        for key, value in first.settings.items()
        if all(key in each.settings and each.settings[key] == value for each in records)
    }
    runs = [
        run.model_copy(
            update={
                "settings": {k: v for k, v in each.settings.items() if k not in shared}
                | run.settings
            }
        )
        for each in records
        for run in each.runs
    ]
    names = [run.name for run in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"runs of the same name cannot be merged: {', '.join(twice)}.")
    return first.model_copy(
        update={
            "created": min(each.created for each in records),
            "settings": shared,
            "runs": tuple(runs),
        }
    )


def _check_mergeable(first: ExperimentRecord, other: ExperimentRecord) -> None:
    differing = [
        (f"machine.{name}", getattr(first.machine, name), getattr(other.machine, name))
        for name in Machine.model_fields
    ]
    differing += [
        (name, getattr(first, name), getattr(other, name)) for name in ("format", "innet")
    ]
    found = [f"{name} ({one!r} and {two!r})" for name, one, two in differing if one != two]
    if found:
        raise InputError(
            f"these records cannot be merged, they differ in {', '.join(found)}; "
            "run the experiments again on one machine with one version."
        )

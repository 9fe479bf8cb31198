"""The record of one experiment: a versioned JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, ValidationError, field_validator

from innet.errors import InputError
from innet.record.machine import Machine
from innet.record.report import Frozen
from innet.record.run import Run

DEMO = "innet.demo"  # format of the demonstration's record
TRAIN = "innet.train"  # format of the record of ``innet train``
FORMATS = (DEMO, TRAIN)
VERSION = 2  # of the record's layout; grows when an older innet would misread a record


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
        path = Path(path)
        text = self.model_dump_json(indent=1, exclude_defaults=True, round_trip=True)
        # Defaults are left out of the steps, but a reader goes by the version, always.
        document = {"format": self.format, "version": self.version, **json.loads(text)}
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        partial = path.with_name(path.name + ".part")
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}.") from None

    @classmethod
    def load(cls, path: str | Path, format: str | None = None) -> ExperimentRecord:  # noqa: A002 - the key
        """Reads a record.

        Args:
            path: a file that ``save`` wrote.
            format: the format that the caller can use; None for any.

        Raises:
            InputError: no file, no record, another format, or a newer version.
        """
        path = Path(path)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}.") from None
        except RecursionError:
            raise InputError(f"{path} is no JSON that can be read: nested too deeply.") from None
        except ValueError as error:  # no UTF-8, or no JSON
            raise InputError(f"{path} is no JSON: {error}.") from None
        _check_kind(path, document, FORMATS if format is None else (format,))
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "its top level"
            raise InputError(f"{path} is a damaged record: {where}: {first['msg']}.") from None


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


def _check_kind(path: Path, document: object, formats: Sequence[str]) -> None:
    """Refuses what is no record, of another format, or newer than this innet."""
    found = document.get("format") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(found, str):
        raise InputError(f"{path} is no record of innet: it has no format.")
    if found not in formats:
        raise InputError(
            f"{path} is a record of format {found!r}; needed is {' or '.join(formats)}."
        )
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(f"{path} is a damaged record: its version is {version!r}.")
    if version > VERSION:
        raise InputError(
            f"{path} is a record of version {version}; this innet reads up to version {VERSION}. "
            "Use a newer innet."
        )

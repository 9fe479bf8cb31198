"""What all records share: JSON files with a format, a version, the machine and the settings."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import AwareDatetime, Field, ValidationError, field_validator

from innet.core.errors import InputError
from innet.core.files import atomic_write
from innet.core.numbers import is_int
from innet.records.report import Frozen

VERSION = 7
"""Of the records' layout; grows when an older innet would misread a record."""

# Keys of versions 1 and 2, and what they are called now; values and numbers keep their meaning.
_RENAMED_KEYS = {
    "fabric": "transport",
    "feedback": "error_feedback",
    "ours": "measured",
    "quantiser": "quantizer",
    "theirs": "paper_result",
    "way": "method",
}


class Machine(Frozen):
    """Where a record was made: all that times depend on and Python can tell.

    Attributes:
        cpu: model name of the processor.
        cores: those that the process could use.
        system: operating system and architecture.
        python: implementation and version.
        numpy: version.
        numba: version.
    """

    cpu: str
    cores: int
    system: str
    python: str
    numpy: str
    numba: str

    @classmethod
    def here(cls) -> Machine:
        """This machine."""
        return cls(
            cpu=_cpu_name(),
            cores=len(os.sched_getaffinity(0)),
            system=f"{platform.system()} {platform.machine()}",
            python=f"{platform.python_implementation()} {platform.python_version()}",
            numpy=_version_of("numpy"),
            numba=_version_of("numba"),
        )


class Record(Frozen):
    """What every record begins with. Each kind of experiment has a subclass.

    Attributes:
        format: which experiment made it; tells a reader what the rest means.
        version: of the layout.
        innet: version of innet that wrote it.
        created: time in UTC at which the experiment began.
        machine: where it ran.
        settings: what was asked for.
    """

    formats: ClassVar[tuple[str, ...]] = ()
    """The formats that a subclass reads and writes."""

    format: str
    version: int = VERSION
    innet: str
    created: AwareDatetime
    machine: Machine
    settings: dict[str, Any] = Field(default_factory=dict)

    @field_validator("created")
    @classmethod
    def _to_utc(cls, created: datetime) -> datetime:
        return created.astimezone(UTC)

    def save(self, path: str | Path) -> None:
        """Write the record as JSON, every field of it; a reader never sees half a file.

        Raises:
            InputError: the file cannot be written.
        """
        text = self.model_dump_json(indent=1, round_trip=True) + "\n"
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, *formats: str) -> Self:
        """Read a record: ``Record.load`` any, a subclass its own. Older versions are converted.

        Args:
            path: a file that ``save`` wrote.
            formats: those that the caller can use; by default all that this class can read.

        Raises:
            InputError: no file, no record, another format, or a newer version.
        """
        classes = {name: each for each in (cls, *cls.__subclasses__()) for name in each.formats}
        document = _read(Path(path), formats or tuple(classes))
        try:
            return classes[document["format"]].model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "its top level"
            raise InputError(f"{path} is a damaged record: {where}: {first['msg']}.") from None


def _read(path: Path, formats: tuple[str, ...]) -> dict[str, Any]:
    """The document at ``path`` in today's layout, if it is a record of one of ``formats``."""
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from None
    except RecursionError:
        raise InputError(f"{path} is no JSON that can be read: nested too deeply.") from None
    except ValueError as error:  # no UTF-8, or no JSON
        raise InputError(f"{path} is no JSON: {error}.") from None
    found = document.get("format") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(found, str):
        raise InputError(f"{path} is no record of innet: it has no format.")
    if found not in formats:
        raise InputError(
            f"{path} is a record of format {found!r}; needed is {' or '.join(formats)}."
        )
    version = document.get("version")
    if not is_int(version) or version < 1:
        raise InputError(f"{path} is a damaged record: its version is {version!r}.")
    if version > VERSION:
        raise InputError(
            f"{path} is a record of version {version}; this innet reads up to version {VERSION}. "
            "Use a newer innet."
        )
    return document if version == VERSION else _converted(document, version)


def _converted(document: dict[str, Any], version: int) -> dict[str, Any]:
    """A document of an older version in today's layout."""
    # No simulated time of trainings, no counting of the codec's paper, no fabric and no limit, no
    # vNMSE.
    if version in {3, 4, 5, 6}:
        return {**document, "version": VERSION}
    # Version 1 knew no other score than accuracies.
    names = _RENAMED_KEYS | ({"accuracy": "score"} if version == 1 else {})
    document = {**_renamed(document, names), "version": VERSION}
    # Times of codecs were sums over the workers.
    _divide_codec_times(document, document.get("settings", {}).get("workers"))
    # A reproduction had its settings beside the others.
    moved = {name: document.pop(name) for name in ("quick", "seeds") if name in document}
    return {**document, "settings": {**document.get("settings", {}), **moved}}


def _divide_codec_times(value: Any, workers: Any) -> None:
    """In place: sums over the workers become means; a report knows its own number."""
    if isinstance(value, dict):
        if isinstance(value.get("workers"), int):
            workers = value["workers"]
        seconds = value.get("seconds")
        if isinstance(seconds, dict) and is_int(workers) and workers > 0:
            for name in ("encode", "decode"):
                if isinstance(seconds.get(name), (int, float)):
                    seconds[name] /= workers
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _divide_codec_times(each, workers)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """``value`` with other keys in all dictionaries in it."""
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    return value


def _version_of(package: str) -> str:
    try:
        return installed_version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()

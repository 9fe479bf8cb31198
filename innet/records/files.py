"""Records as files: JSON that is written in one go, with a format and a version that come first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from innet.core.errors import InputError
from innet.core.files import whole

DEMO = "innet.demo"  # format of the demonstration's record
TRAIN = "innet.train"  # of the record of ``innet train``
REPRODUCE = "innet.reproduce"  # of the record of ``innet reproduce``
THROUGHPUT = "innet.throughput"  # of the record of ``innet experiment throughput``
FORMATS = (DEMO, TRAIN, REPRODUCE, THROUGHPUT)
VERSION = 2  # of the records' layout; grows when an older innet would misread a record

Record = TypeVar("Record", bound=BaseModel)


def write(path: str | Path, record: BaseModel, kind: str) -> None:
    """Writes a record of format ``kind``: a reader never sees half of it.

    Raises:
        InputError: the file cannot be written.
    """
    text = record.model_dump_json(indent=1, exclude_defaults=True, round_trip=True)
    # Defaults are left out, but a reader goes by the version, always.
    document = {"format": kind, "version": VERSION, **json.loads(text)}
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    with whole(path) as place:
        place.write_text(text, encoding="utf-8")


def read(path: str | Path, formats: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The format and the whole document of a record.

    Args:
        path: a file that ``write`` wrote.
        formats: those that the caller can use.

    Raises:
        InputError: no file, no record, another format, or a newer version.
    """
    path = Path(path)
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
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(f"{path} is a damaged record: its version is {version!r}.")
    if version > VERSION:
        raise InputError(
            f"{path} is a record of version {version}; this innet reads up to version {VERSION}. "
            "Use a newer innet."
        )
    return found, document


def format_of(path: str | Path) -> str:
    """The format of any record.

    Raises:
        InputError: no file, no record, or one of a format that this innet does not know.
    """
    return read(path, FORMATS)[0]


def parsed(path: str | Path, document: dict[str, Any], model: type[Record]) -> Record:
    """The document of the file at ``path`` as a ``model``; InputError where it is damaged."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "its top level"
        raise InputError(f"{path} is a damaged record: {where}: {first['msg']}.") from None

"""What switches answer to ``table_dump``, both kinds alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_ENTRY = re.compile(r"(\d+): (.*?) ?=> (.*) priority (\d+)")


class Entry(NamedTuple):
    """An entry of a table, in the words of the switch.

    Attributes:
        handle: by which it is changed or deleted.
        key: a word for each of the table's keys, in their order.
        action: with its arguments.
        priority: of ternary and range tables.
    """

    handle: int
    key: tuple[str, ...]
    action: str
    priority: str


def entries(dump: str) -> Iterator[Entry]:
    """The entries of a table, but for its default."""
    for found in map(_ENTRY.fullmatch, dump.splitlines()):
        if found is not None:
            handle, key, action, priority = found.groups()
            yield Entry(int(handle), tuple(key.split()), action, priority)

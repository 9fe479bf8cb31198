"""A JSON value that knows where it stands, so that every complaint names the place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from innet.core.errors import ProgramError

MAX_WIDTH = 1 << 16
"""Bits of a field, constant or register. p4c allows 2048; a number without any limit would make the
switch compute with integers that fill the memory."""

MAX_SIZE = (1 << 32) - 1
"""Cells of a register or counter, entries of a table: v1model counts them in 32 bits."""

MAX_DEPTH = 400
"""Arrays and objects inside each other. An operation takes two of them, so that 200 operations may
be nested: what walks them later needs no more than Python's stack has, wherever it is called."""


@dataclass(frozen=True, slots=True)
class Tree:
    """``value`` at ``path`` of a document; ``path`` is empty at the root.

    Every accessor raises ProgramError, with the path and what was expected there, when the value is
    something else.
    """

    value: Any
    path: str = ""
    depth: int = 0

    def wrong(self, expected: str) -> ProgramError:
        """The error that says that ``expected`` should be here."""
        shown = repr(self.value)
        if len(shown) > 60:
            shown = shown[:57] + "..."
        return ProgramError(f"{self.path or 'the document'}: expected {expected}, found {shown}")

    def __getitem__(self, key: str | int) -> Tree:
        """The member or element ``key``, which must be there (it may be null)."""
        if isinstance(key, int):
            if not isinstance(self.value, list) or key >= len(self.value):
                raise self.wrong(f"an array of at least {key + 1} elements")
            return self._member(self.value[key], f"{self.path}[{key}]")
        if not isinstance(self.value, dict):
            raise self.wrong(f"an object with {key!r}")
        if key not in self.value:
            raise ProgramError(f"{self.path or 'the document'}: expected a member {key!r}")
        return self._member(self.value[key], f"{self.path}.{key}" if self.path else key)

    def _member(self, value: Any, path: str) -> Tree:
        if self.depth == MAX_DEPTH:
            raise ProgramError(f"{path[:100]}...: nested deeper than {MAX_DEPTH} levels")
        return Tree(value, path, self.depth + 1)

    def find(self, key: str) -> Tree | None:
        """The member ``key``, None when it is absent or null."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self[key] if self.value.get(key) is not None else None

    def __iter__(self) -> Iterator[Tree]:
        """The elements of an array."""
        if not isinstance(self.value, list):
            raise self.wrong("an array")
        return (self._member(each, f"{self.path}[{i}]") for i, each in enumerate(self.value))

    def __len__(self) -> int:
        if not isinstance(self.value, list):
            raise self.wrong("an array")
        return len(self.value)

    def each(self, key: str) -> Iterator[Tree]:
        """The elements of the array that is member ``key``; none when it is absent."""
        found = self.find(key)
        return iter(()) if found is None else iter(found)

    def exactly(self, count: int) -> Tree:
        """Itself, if it is an array of ``count`` elements."""
        if not isinstance(self.value, list) or len(self.value) != count:
            raise self.wrong(f"an array of {count} elements")
        return self

    def string(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong("a string")
        return self.value

    def holds(self, key: str) -> bool:
        """Whether an object has a member ``key``, which may be null."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return key in self.value

    def integer(self, least: int | None = None, most: int | None = None) -> int:
        # bool is a subclass of int, and JSON's true is no number.
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.wrong("an integer")
        if least is not None and self.value < least:
            raise self.wrong(f"an integer of at least {least}")
        if most is not None and self.value > most:
            raise self.wrong(f"an integer of at most {most}")
        return self.value

    def width(self, least: int = 1) -> int:
        """A number of bits."""
        return self.integer(least, MAX_WIDTH)

    def size(self) -> int:
        """A number of cells or entries."""
        return self.integer(0, MAX_SIZE)

    def boolean(self) -> bool:
        # p4c writes 0 and 1 where a field of type bool states whether it is signed.
        if not isinstance(self.value, bool) and self.value not in (0, 1):
            raise self.wrong("true or false")
        return bool(self.value)

    def flag(self, key: str, default: bool) -> bool:
        """The boolean member ``key``, ``default`` when it is absent."""
        found = self.find(key)
        return default if found is None else found.boolean()

    def hexadecimal(self) -> int:
        """A number as BMv2 writes it: hexadecimal with or without 0x, perhaps after a minus."""
        text = self.string()
        digits = text.removeprefix("-").removeprefix("0x")
        try:
            if not digits.isalnum():
                raise ValueError
            number = int(digits, 16)
        except ValueError:
            raise self.wrong("a hexadecimal number in a string") from None
        return -number if text.startswith("-") else number

"""Two packets side by side in hexadecimal rows, with a mark under each digit that differs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

ROW = 16
"""Bytes in a row."""

MOST_ROWS = 8
"""Rows that differ and are shown; of more, a line says how many."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs.

    Attributes:
        offset: of its first byte in the packet.
        expected, got: digits in groups of two bytes; spaces where a packet has ended.
        marks: ``^`` under each digit that differs.
    """

    offset: int
    expected: str
    got: str
    marks: str


def differences(pattern: str, got: bytes, *, exact: bool = True) -> list[Difference]:
    """The rows in which ``got`` is not as ``pattern`` (hexadecimal digits; * for any digit) says.

    Without ``exact``, what follows the pattern's end makes no difference.
    """
    digits = got.hex().upper()
    rows = []
    width = 2 * ROW
    for start in range(0, max(len(pattern), len(digits)), width):
        left, right = pattern[start : start + width], digits[start : start + width]
        marks = "".join(
            "^" if _differ(one, other, exact=exact) else " "
            for one, other in zip_longest(left, right, fillvalue=" ")
        )
        if marks.strip():
            rows.append(
                Difference(start // 2, _grouped(left), _grouped(right), _grouped(marks).rstrip())
            )
    return rows


def _differ(expected: str, got: str, *, exact: bool) -> bool:
    if expected == "*":
        return got == " "
    if expected == " ":
        return exact and got != " "
    return expected != got


def _grouped(digits: str) -> str:
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def as_rows(digits: str) -> list[str]:
    """Digits in rows, each after the offset of its first byte."""
    width = 2 * ROW
    return [
        f"{start // 2:04x}  {_grouped(digits[start : start + width])}"
        for start in range(0, len(digits), width)
    ]


def shown(pattern: str, got: bytes, *, exact: bool = True) -> list[str]:
    """``differences`` as lines for people."""
    rows = differences(pattern, got, exact=exact)
    lines = []
    for row in rows[:MOST_ROWS]:
        lines.append(f"{row.offset:04x}  expected  {row.expected}".rstrip())
        lines.append(f"      got       {row.got}".rstrip())
        lines.append(f"                {row.marks}")
    if len(rows) > MOST_ROWS:
        lines.append(f"{len(rows) - MOST_ROWS} more rows of {ROW} bytes differ")
    expected = (len(pattern) + 1) // 2
    if expected > len(got) or (exact and expected != len(got)):
        least = "" if exact else "at least "
        lines.append(f"expected {least}{expected} bytes, got {len(got)}")
    return lines

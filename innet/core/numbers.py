"""Limits of number types, checks of numbers that callers pass, and durations as text. Nothing is
rounded to fit.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from decimal import Decimal
from numbers import Real
from typing import TypeGuard

from innet.core.errors import InnetError, InputError

INT32_MAX = 2**31 - 1
FLOAT32_MAX = (2 - 2.0**-23) * 2.0**127
FLOAT32_INFINITY = 0x7F800000
"""The bits of infinity as an integer; those of a NaN are larger."""
_LISTED = 16  # numbers, or runs of numbers, in a sentence


def is_real(value: object) -> TypeGuard[float]:
    """Whether it is a real number of Python or NumPy; a bool is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_int(value: object) -> TypeGuard[int]:
    """Whether it is an int of Python; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def require_int(value: object, what: str, error: type[InnetError] = InputError) -> int:
    """``value`` as an int. Python's and NumPy's integers are taken; True and 4.0 are not.

    Raises:
        InputError: or ``error``: it is no integer. The message calls it ``what``.
    """
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type] # that is what is found out here
        except TypeError:
            pass
    raise not_an_int(value, what, error)


def number_list(numbers: Iterable[int]) -> str:
    """Numbers in a sentence: all of them if they are few, otherwise by runs, and how many more.

    >>> number_list([3, 5])
    '3, 5'
    >>> number_list([*range(20), 40])
    '0 to 19, 40'
    """
    ordered = sorted(numbers)
    if len(ordered) <= _LISTED:
        return ", ".join(map(str, ordered))
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = ", ".join(f"{a} to {b}" if a < b else str(a) for a, b in runs[:_LISTED])
    more = sum(b - a + 1 for a, b in runs[_LISTED:])
    return f"{shown} and {more} more" if more else shown


def not_an_int(value: object, what: str, error: type[InnetError] = InputError) -> InnetError:
    """The error for a value, or a text, that is no integer."""
    return error(f"{what} is {value!r}; give an integer.")


_NANOSECONDS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

MAX_DURATION_NS = 10**18
"""The longest duration that ``nanoseconds`` takes: 30 years."""


def nanoseconds(text: str, what: str) -> int:
    """A duration that is written with its unit, such as 20us, 1.5ms or 2s, in nanoseconds.

    Raises:
        InputError: it is written otherwise, has parts of a nanosecond, or is longer than
            ``MAX_DURATION_NS``. The message calls it ``what``.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ns|us|µs|ms|s)", text.strip())
    if found is None:
        raise InputError(
            f"{what} is {text[:40]!r}; write it with its unit, such as 20us, 1.5ms, 2s."
        )
    time = Decimal(found[1]) * _NANOSECONDS[found[2]]
    if time != int(time) or time > MAX_DURATION_NS:
        raise InputError(f"{what} is {text[:40]!r}; whole nanoseconds up to 30 years are possible.")
    return int(time)

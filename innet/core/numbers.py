"""Type checks of numbers that callers pass, and durations as text. Nothing is rounded to fit."""

from __future__ import annotations

import operator
import re
from decimal import Decimal
from numbers import Real
from typing import TypeGuard

from innet.core.errors import InnetError, InputError


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

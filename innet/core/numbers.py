"""Whether values that callers pass are the numbers that are wanted. They are never cut to fit."""

from __future__ import annotations

import operator
from numbers import Real
from typing import TypeGuard

from innet.core.errors import ControlError


def is_real(value: object) -> TypeGuard[float]:
    """Whether it is a real number: Python's and NumPy's are, and True is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def require_int(value: object, what: str) -> int:
    """``value`` as an integer of Python's own; ``what`` is its name in the message.

    Raises:
        ControlError: it is no integer; 1.0 is none either.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type] # that is what is found out here
    except TypeError:
        raise ControlError(f"{value!r} is no integer for {what}") from None

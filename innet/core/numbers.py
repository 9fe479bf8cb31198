"""Type checks of numbers that callers pass. Nothing is rounded to fit."""

from __future__ import annotations

import operator
from numbers import Real
from typing import TypeGuard

from innet.core.errors import ControlError


def is_real(value: object) -> TypeGuard[float]:
    """Whether it is a real number of Python or NumPy; a bool is not."""
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

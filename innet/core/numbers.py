"""Type checks of numbers that callers pass. Nothing is rounded to fit."""

from __future__ import annotations

import operator
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

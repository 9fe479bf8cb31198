"""What is a number where settings want one."""

from __future__ import annotations

from numbers import Real
from typing import TypeGuard


def is_real(value: object) -> TypeGuard[float]:
    """Whether it is a real number: Python's and NumPy's are, and True is none."""
    return isinstance(value, Real) and not isinstance(value, bool)

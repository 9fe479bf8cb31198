"""Integers as callers pass them: never cut to fit."""

from __future__ import annotations

import operator

from innet.errors import ControlError


def whole(value: object, what: str) -> int:
    """``value`` as an integer; ControlError, which calls it ``what``, when it is none (1.0 is
    none either).
    """
    try:
        return operator.index(value)  # type: ignore[arg-type] # that is what is found out here
    except TypeError:
        raise ControlError(f"{value!r} is no integer for {what}") from None

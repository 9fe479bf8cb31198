"""``randomness`` for emitted code: the same words in int64, which hold them modulo 2**64."""

from __future__ import annotations

from typing import Any

from innet.switch.jit.runtime.core import (
    get,
    inlined,
    less,
    put,
    shift_right_unsigned,
    wrapped_add,
    wrapped_multiply,
    wrapped_subtract,
)
from innet.switch.state import hashes

__all__ = ["uniform"]


def _wrapped(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


_INCREMENT = _wrapped(hashes.INCREMENT)
_FIRST, _SECOND = map(_wrapped, hashes.MULTIPLIERS)


@inlined
def next_word(state: Any) -> Any:
    """``randomness.next_word``."""
    word = wrapped_add(get(state, 0), _INCREMENT)
    put(state, 0, word)
    word = wrapped_multiply(word ^ shift_right_unsigned(word, 30), _FIRST)
    word = wrapped_multiply(word ^ shift_right_unsigned(word, 27), _SECOND)
    return word ^ shift_right_unsigned(word, 31)


@inlined
def uniform(state: Any, low: int, high: int) -> Any:
    """``randomness.uniform``; the bounds are unsigned."""
    span = wrapped_subtract(high, low)
    every = span
    for distance in (1, 2, 4, 8, 16, 32):
        every |= shift_right_unsigned(every, distance)
    while True:
        word = next_word(state) & every
        if not less(span, word):
            return wrapped_add(low, word)

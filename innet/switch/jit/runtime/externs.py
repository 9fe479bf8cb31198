"""Meters and random() in emitted code, as ``innet.switch.state`` has them for the interpreter.

Both work on the arrays of the switch's state, flat. Words are int64, which hold them modulo 2**64.
(``hashes`` has the hash() and checksum externs.)
"""

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
from innet.switch.state.meters import (
    BUCKET,
    BURST,
    CONFIGURED,
    FIRST_BUCKET,
    GAINED,
    MAX_TOKENS,
    TOKENS,
)

__all__ = ["execute_meter", "uniform"]  # what emitted code may import


# ── Meters ───────────────────────────────────────────────────────────────────────────────────────


@inlined
def execute_meter(  # noqa: PLR0917 - called by emitted code only
    rates: Any, cells: Any, count: int, index: int, amount: int, clock: int
) -> int:
    """``MeterState.execute``: the color of cell ``index`` of a meter with ``count`` rates.

    ``amount`` is 1 or the packet's bytes.
    """
    # A cell: whether it has rates, then a token bucket for each rate, the highest rate first.
    cell = index * (FIRST_BUCKET + BUCKET * count)
    if get(cells, cell + CONFIGURED) == 0:
        return 0
    for position in range(count):
        bucket = cell + FIRST_BUCKET + BUCKET * position
        # Refill with what the rate gave since the last packet, up to the burst size.
        gained = int(min(max(clock, 0) * rates[index * count + position], float(MAX_TOKENS)))
        tokens = get(cells, bucket + TOKENS)
        if gained > get(cells, bucket + GAINED):
            full = tokens + gained - get(cells, bucket + GAINED)
            tokens = min(full, get(cells, bucket + BURST))
            put(cells, bucket + GAINED, gained)
        # The first bucket that lacks tokens says the color; those before it were charged.
        if tokens < amount:
            put(cells, bucket + TOKENS, tokens)
            return count - position
        put(cells, bucket + TOKENS, tokens - amount)
    return 0


# ── random() ─────────────────────────────────────────────────────────────────────────────────────


def _as_int64(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


_INCREMENT = _as_int64(hashes.INCREMENT)
_FIRST, _SECOND = map(_as_int64, hashes.MULTIPLIERS)


@inlined
def next_word(state: Any) -> Any:
    """``state.hashes.next_word``."""
    word = wrapped_add(get(state, 0), _INCREMENT)
    put(state, 0, word)
    word = wrapped_multiply(word ^ shift_right_unsigned(word, 30), _FIRST)
    word = wrapped_multiply(word ^ shift_right_unsigned(word, 27), _SECOND)
    return word ^ shift_right_unsigned(word, 31)


@inlined
def uniform(state: Any, low: int, high: int) -> Any:
    """``state.hashes.uniform``; the bounds are unsigned."""
    span = wrapped_subtract(high, low)
    every = span  # all ones up to the highest bit of the span
    for distance in (1, 2, 4, 8, 16, 32):
        every |= shift_right_unsigned(every, distance)
    while True:
        word = next_word(state) & every
        if not less(span, word):
            return wrapped_add(low, word)

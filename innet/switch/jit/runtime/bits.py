"""What emitted code does with bits at any position of bytes: varbit fields.

``place`` is the position of a first bit, in bits; a negative one stands for bits that are all 0.
"""

from __future__ import annotations

from typing import Any

from innet.switch.jit.runtime.core import copy, inlined, load8
from innet.switch.jit.runtime.hashes import append_bits

__all__ = [  # what emitted code may import
    "append_from",
    "bits_at",
    "same_numbers",
]


@inlined
def bits_at(data: Any, place: int, width: int) -> int:
    """The last 64 of ``width`` bits as a number; 0 where there are none."""
    if place < 0 or width <= 0:
        return 0
    end = place + width
    at = max(place, end - 64)
    value = 0
    while at < end:
        used = at & 7
        count = min(8 - used, end - at)
        bits = (load8(data, at >> 3) >> (8 - used - count)) & ((1 << count) - 1)
        value = (value << count) | bits
        at += count
    return value


@inlined
def same_numbers(data: Any, left: int, left_width: int, right: int, right_width: int) -> bool:
    """Whether two runs of bits are the same number."""
    for above in range(0, max(left_width, right_width), 64):
        one = bits_at(data, left, left_width - above)
        if one != bits_at(data, right, right_width - above):
            return False
    return True


@inlined
def append_from(target: Any, at: int, data: Any, place: int, width: int) -> int:
    """As ``append_bits``, of bits that stand in ``data``."""
    if place >= 0 and (at | place | width) & 7 == 0:
        copy(target, at >> 3, data, place >> 3, width >> 3)
        return at + width
    end = place + width
    while width > 0:
        count = min(width, 64)
        value = 0 if place < 0 else bits_at(data, end - width, count)
        at = append_bits(target, at, value, count)
        width -= count
    return at

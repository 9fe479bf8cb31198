"""Hashes over bytes and what gathers the bytes, for emitted code: as
``innet.switch.state.hashes``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from innet.switch.jit.runtime.core import (
    get,
    inlined,
    load8,
    load16,
    put,
    wrapped_add,
    wrapped_multiply,
)
from innet.switch.state.hashes import (
    CRC_FINAL_XOR,
    CRC_INITIAL,
    CRC_PARAMETERS,
    CRC_REFLECTED,
    CRC_TURNED,
    crc_words,
)

__all__ = [  # what emitted code may import
    "cksum16",
    "crc16",
    "crc32",
    "crcCCITT",
    "crc_of",
    "csum16",
    "folded",
    "identity",
    "round_robin",
    "toeplitz",
    "xor16",
    "xor32",
    "xxh64",
]


def _words(name: str) -> Any:
    """``crc_words`` of a CRC that never changes; the compiler makes it a constant."""
    words = crc_words(CRC_PARAMETERS[name])
    return np.array(words, np.uint64).view(np.int64)


_CRC16, _CRC32, _CCITT = _words("crc16"), _words("crc32"), _words("crcCCITT")


@inlined
def folded(total: int) -> int:
    """The Internet checksum of a sum of 16-bit words that is not negative."""
    total = (total & 0xFFFFFFFF) + (total >> 32)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


@inlined
def csum16(data: Any, size: int) -> int:
    """RFC 1071; an odd last byte is the upper half of a word."""
    total = 0
    for position in range(0, size - 1, 2):
        total += load16(data, position)
    if size & 1:
        total += load8(data, size - 1) << 8
    return folded(total)


cksum16 = csum16


@inlined
def reflected(value: int, width: int) -> int:
    """The low ``width`` bits in reverse order."""
    result = 0
    for _ in range(width):
        result = (result << 1) | (value & 1)
        value >>= 1
    return result


@inlined
def crc_of(data: Any, size: int, words: Any, width: int) -> Any:
    """A CRC of ``width`` bits (8, 16, 32 or 64) by its ``words``, those of ``hashes.crc_words``."""
    remainder = get(words, CRC_INITIAL)
    if get(words, CRC_REFLECTED):
        for position in range(size):
            index = (remainder ^ load8(data, position)) & 0xFF
            remainder = get(words, index) ^ ((remainder >> 8) & 0xFFFFFFFFFFFFFF)
    else:
        every = -1 if width == 64 else (1 << width) - 1
        for position in range(size):
            index = ((remainder >> (width - 8)) ^ load8(data, position)) & 0xFF
            remainder = (get(words, index) ^ (remainder << 8)) & every
    if get(words, CRC_TURNED):
        remainder = reflected(remainder, width)
    return remainder ^ get(words, CRC_FINAL_XOR)


@inlined
def crc16(data: Any, size: int) -> Any:
    """Polynomial 0x8005, reflected."""
    return crc_of(data, size, _CRC16, 16)


@inlined
def crc32(data: Any, size: int) -> Any:
    """Polynomial 0x04C11DB7, reflected, as Ethernet's."""
    return crc_of(data, size, _CRC32, 32)


@inlined
def crcCCITT(data: Any, size: int) -> Any:  # noqa: N802 - BMv2's name of it, as programs use it
    """Polynomial 0x1021 from 0xFFFF."""
    return crc_of(data, size, _CCITT, 16)


@inlined
def xor16(data: Any, size: int) -> int:
    """Of 16-bit words, the last one filled up with zeros."""
    result = 0
    for position in range(size):
        result ^= load8(data, position) << (8 * (1 - (position & 1)))
    return result


@inlined
def xor32(data: Any, size: int) -> int:
    """Of 32-bit words, the last one filled up with zeros."""
    result = 0
    for position in range(size):
        result ^= load8(data, position) << (8 * (3 - (position & 3)))
    return result


@inlined
def identity(data: Any, size: int) -> int:
    """The first 8 bytes as one number."""
    result = 0
    for position in range(min(size, 8)):
        result = (result << 8) | load8(data, position)
    return result


@inlined
def toeplitz(data: Any, size: int, key: Any) -> int:
    """By the words of 32 bits in ``key``, which are used again where there are too few."""
    result = 0
    for first in range(0, size, 4):
        word = 0
        for position in range(first, first + 4):
            word = (word << 8) | (load8(data, position) if position < size else 0)
        number = first >> 2
        left, right = get(key, number % len(key)), get(key, (number + 1) % len(key))
        window = (left << 32) | right
        for bit in range(32):
            if (word >> (31 - bit)) & 1:
                result ^= (window >> (32 - bit)) & 0xFFFFFFFF
    return result


@inlined
def round_robin(count: Any) -> Any:
    """How many times this was called before."""
    number = get(count, 0)
    put(count, 0, number + 1)
    return number


# The constants of XXH64 as int64.
_PRIME1 = -0x61C8864E7A143579
_PRIME2 = -0x3D4D51C2D82B14B1
_PRIME3 = 0x165667B19E3779F9
_PRIME4 = -0x7A1435883D4D519D
_PRIME5 = 0x27D4EB2F165667C5


@inlined
def _rotated(value: int, by: int) -> int:
    return (value << by) | ((value >> (64 - by)) & ((1 << by) - 1))


@inlined
def _shifted(value: int, by: int) -> int:
    return (value >> by) & ((1 << (64 - by)) - 1)


@inlined
def _little(data: Any, at: int, size: int) -> int:
    value = 0
    for position in range(size):
        value |= load8(data, at + position) << (8 * position)
    return value


@inlined
def _round(accumulator: int, lane: int) -> Any:
    mixed = _rotated(wrapped_add(accumulator, wrapped_multiply(lane, _PRIME2)), 31)
    return wrapped_multiply(mixed, _PRIME1)


@inlined
def _step(value: int, factor: int, more: int) -> Any:
    return wrapped_add(wrapped_multiply(value, factor), more)


@inlined
def xxh64(data: Any, size: int) -> Any:
    """XXH64 with seed 0."""
    at = 0
    state = _PRIME5
    if size >= 32:
        one, two = wrapped_add(_PRIME1, _PRIME2), wrapped_add(_PRIME2, 0)
        three, four = 0, wrapped_add(-_PRIME1, 0)
        while at + 32 <= size:
            one = _round(one, _little(data, at, 8))
            two = _round(two, _little(data, at + 8, 8))
            three = _round(three, _little(data, at + 16, 8))
            four = _round(four, _little(data, at + 24, 8))
            at += 32
        state = wrapped_add(_rotated(one, 1), _rotated(two, 7))
        state = wrapped_add(state, wrapped_add(_rotated(three, 12), _rotated(four, 18)))
        for lane in (one, two, three, four):
            state = _step(state ^ _round(0, lane), _PRIME1, _PRIME4)
    state = wrapped_add(state, size)
    while at + 8 <= size:
        state = _step(_rotated(state ^ _round(0, _little(data, at, 8)), 27), _PRIME1, _PRIME4)
        at += 8
    if at + 4 <= size:
        lane = wrapped_multiply(_little(data, at, 4), _PRIME1)
        state = _step(_rotated(state ^ lane, 23), _PRIME2, _PRIME3)
        at += 4
    while at < size:
        lane = wrapped_multiply(load8(data, at), _PRIME5)
        state = wrapped_multiply(_rotated(state ^ lane, 11), _PRIME1)
        at += 1
    state = wrapped_multiply(state ^ _shifted(state, 33), _PRIME2)
    state = wrapped_multiply(state ^ _shifted(state, 29), _PRIME3)
    return state ^ _shifted(state, 32)

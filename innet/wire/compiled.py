"""Packing, checksums, checks and byte order of a worker's packets, in compiled code.

``ready`` imports it, at the latest when the first packet is packed or parsed, since importing Numba
takes longer than most commands. It is compiled at import, so that no packet waits for it.
``tests/support/naive_wire.py`` does the same in NumPy.

Source: computing the Internet checksum, RFC 1071. The sum is modulo 2**16 - 1, so that a 32-bit
word counts as the sum of its halves, and the byte order does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.core.views import part_viewer
from innet.wire.layout import HEADER

Bytes = NDArray[np.uint8]

FIELD, EITHER, SUM, SIZE = range(4)
"""Kinds of rules. FIELD: a big-endian number is in a range. EITHER: it or the number after it is.
SUM: the Internet checksum over some bytes is right. SIZE: a FIELD that counts the values' bytes; of
a packet without values less by these, or not: sockets take outer headers off, and what is put in
their place is the same for all packets."""

_CHECKSUM = 15  # which 16-bit word of the innet header
_HEADER_BYTES = HEADER.itemsize

_shorts_of, _words_of = part_viewer("u2"), part_viewer("u4")
_ROUNDER = 6755399441055744.0  # as in innet.kernels.cpu.fixed_point


@njit("int64(uint64)", cache=True, nogil=True)
def _folded(total: Any) -> Any:
    """A sum of words, modulo 2**16 - 1; 0 only if all were 0."""
    rest = np.int64(total)
    rest = (rest & 0xFFFF_FFFF) + (rest >> 32)
    for _ in range(3):
        rest = (rest & 0xFFFF) + (rest >> 16)
    return rest


@njit("u4(u4)", cache=True, nogil=True)
def swapped(word: Any) -> Any:
    """A 32-bit word in the other byte order."""
    return np.uint32(
        (word >> np.uint32(24))
        | ((word >> np.uint32(8)) & np.uint32(0xFF00))
        | ((word & np.uint32(0xFF00)) << np.uint32(8))
        | (word << np.uint32(24))
    )


@njit("u8(u1[::1], i8)", cache=True, nogil=True)
def _header_sum(frame: Bytes, offset: int) -> Any:
    """The sum of the words of the innet header."""
    total = np.uint64(0)
    for word in _words_of(frame, offset, _HEADER_BYTES // 4):
        total += np.uint64(word)
    return total


@njit("void(u1[::1], i8, i8, u8)", cache=True, nogil=True)
def _finish(frame: Bytes, offset: int, values: int, total: Any) -> None:
    """Fill a frame with zeros behind so many values, and write the checksum of the ``total``."""
    begin = offset + _HEADER_BYTES
    words = _words_of(frame, begin, (len(frame) - begin) // 4)
    for index in range(values, len(words)):
        words[index] = 0
    header = _shorts_of(frame, offset, _HEADER_BYTES // 2)
    header[_CHECKSUM] = np.uint16(~_folded(total))


@njit("void(u1[::1], i8, i4[::1])", cache=True, nogil=True)
def write_values(frame: Bytes, offset: int, values: NDArray[np.int32]) -> None:
    """Write ``values`` into a frame whose innet header, with checksum 0, begins at ``offset``.

    The rest of the frame is filled with zeros. The checksum is written last.
    """
    total = _header_sum(frame, offset)
    words = _words_of(frame, offset + _HEADER_BYTES, len(values))
    given = _words_of(values, 0, len(values))
    for index in range(len(given)):
        word = swapped(given[index])
        words[index] = word
        total += np.uint64(word)
    _finish(frame, offset, len(values), total)


@njit("void(u1[::1], i8, f4[::1], f8)", cache=True, nogil=True)
def write_floats(frame: Bytes, offset: int, values: NDArray[np.float32], scale: float) -> None:
    """``write_values`` of ``values`` times ``scale``, rounded as ``Kernels.quantize`` does."""
    total = _header_sum(frame, offset)
    words = _words_of(frame, offset + _HEADER_BYTES, len(values))
    for index in range(len(values)):
        integer = np.int32((np.float64(values[index]) * scale + _ROUNDER) - _ROUNDER)
        word = swapped(np.uint32(integer))
        words[index] = word
        total += np.uint64(word)
    _finish(frame, offset, len(values), total)


@njit("void(i4[::1], f8, f4[::1])", cache=True, nogil=True)
def read_floats(words: NDArray[np.int32], step: float, values: NDArray[np.float32]) -> None:
    """What words of fixed-point numbers stand for, as ``Kernels.dequantize`` does."""
    for index in range(len(values)):
        values[index] = np.float32(np.float64(words[index]) * step) + np.float32(0)  # not -0.0


@njit("void(u1[:,::1], u1[::1], u1[:,::1], i4[:,::1])", cache=True, nogil=True)
def fill(frames: Bytes, outer: Bytes, headers: Bytes, values: NDArray[np.int32]) -> None:
    """Write whole frames.

    Args:
        frames: (n, frame bytes), filled in.
        outer: the headers before the innet header, the same in all frames.
        headers: (n, header bytes), with checksum 0.
        values: (n, V), in the host's byte order.
    """
    start, size = len(outer), headers.shape[1]
    for row in range(len(frames)):
        frame = frames[row]
        for byte in range(start):
            frame[byte] = outer[byte]
        for byte in range(size):
            frame[start + byte] = headers[row, byte]
        write_values(frame, start, values[row])


@njit(cache=True, nogil=True)
def _number(frame: Bytes, offset: int, size: int) -> Any:
    """A big-endian number of one byte or two, the sizes that rules have."""
    at = np.uint64(offset)  # unsigned: a negative index would be checked at each access
    if size == 1:
        return np.int64(frame[at])
    return np.int64(frame[at]) << 8 | np.int64(frame[at + np.uint64(1)])


@njit(cache=True, nogil=True)
def _sum(frame: Bytes, offset: int, size: int) -> int:
    words = _words_of(frame, offset, size // 4)
    total = np.uint64(0)
    for index in range(len(words)):
        total += np.uint64(words[index])
    return int(_folded(total))


@njit("i8(u1[::1], i8, i8[:,::1], i8)", cache=True, nogil=True)
def _check(frame: Bytes, length: int, rules: NDArray[np.int64], without: int) -> int:
    """``check_frame``, but without the sum over bytes that begin at ``without``, unless it is 0."""
    lacking = rules[0, 4] - length  # bytes of values, if it ends with the header
    if (lacking != 0 and length != rules[0, 5]) or len(frame) < length:
        return int(rules[0, 6])
    for index in range(1, len(rules)):
        if rules[index, 0] == SUM and rules[index, 1] == without and without > 0:
            continue
        kind, offset, size = rules[index, 0], rules[index, 1], rules[index, 2]
        smallest, largest = rules[index, 4], rules[index, 5]
        if kind == SUM:
            if offset == rules[0, 1]:
                size -= lacking
            holds = _sum(frame, offset, size) == 0xFFFF
        else:
            number = _number(frame, offset, size) & rules[index, 3]
            holds = smallest <= number <= largest
            if kind == SIZE and not holds:
                holds = number + lacking == smallest
            if kind == EITHER and not holds:
                number = _number(frame, offset + size, size) & rules[index, 3]
                holds = smallest <= number <= largest
        if not holds:
            return int(rules[index, 6])
    return 0


@njit("i8(u1[::1], i8, i8[:,::1])", cache=True, nogil=True)
def check_frame(frame: Bytes, length: int, rules: NDArray[np.int64]) -> int:
    """The refusal of the first rule that a frame violates, 0 if none; see ``check_frames``."""
    return _check(frame, length, rules, 0)


@njit("i8(u1[::1], i8, i8[:,::1])", cache=True, nogil=True)
def check_headers(frame: Bytes, length: int, rules: NDArray[np.int64]) -> int:
    """``check_frame`` without the checksum of the innet header and the values, which
    ``read_checked`` checks while it reads them; 0 or not.
    """
    return _check(frame, length, rules, rules[0, 1])


@njit("u1[::1](u1[:,::1], i4[::1], i8[:,::1], u1[:,::1])", cache=True, nogil=True)
def check_frames(
    data: Bytes, length: NDArray[np.int32], rules: NDArray[np.int64], headers: Bytes
) -> NDArray[np.uint8]:
    """Check frames by rules.

    Args:
        data: (n, stride).
        length: (n,), bytes of each.
        rules: (rules, 7): kind, offset, bytes, mask, smallest, largest, number of the refusal. The
            first one is for the length: its refusal, and as offset that of the innet header. A
            frame has the smallest length or the largest: with values, and if it may be without.
        headers: (n, header bytes), filled in for frames of the right length.

    Returns:
        (n,): the refusal of the first rule that a frame violates, 0 if none.
    """
    reason = np.zeros(len(length), np.uint8)
    at = rules[0, 1]
    for row in range(len(length)):
        frame = data[row]
        if length[row] == rules[0, 4] or length[row] == rules[0, 5]:
            for byte in range(_HEADER_BYTES):
                headers[row, byte] = frame[at + byte]
        reason[row] = check_frame(frame, length[row], rules)
    return reason


@njit("b1(u1[::1], i8, i4[::1])", cache=True, nogil=True)
def read_checked(frame: Bytes, offset: int, values: NDArray[np.int32]) -> bool:
    """Read all ``values`` of a frame whose innet header begins at ``offset``, in one pass.

    Returns:
        Whether its checksum is right. If not, all ``values`` are 0.
    """
    total = _header_sum(frame, offset)
    taken = _words_of(frame, offset + _HEADER_BYTES, len(values))
    words = _words_of(values, 0, len(values))
    for index in range(len(words)):
        word = taken[index]
        words[index] = swapped(word)
        total += np.uint64(word)
    holds = bool(_folded(total) == 0xFFFF)
    if not holds:
        words[:] = 0
    return holds

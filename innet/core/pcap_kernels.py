"""Kernels for capture files: find records in bytes, gather packets, write records.

Numba compiles them, and caches the code on disk. Positions are bytes from the start of the array;
times are nanoseconds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.core.pcap import LONGEST

WHOLE = 0
"""All complete records were read."""
TOO_LONG = 1
"""A record has more than ``LONGEST`` bytes."""
OTHER_BLOCK = 2
"""A pcapng block that is not a packet, which the caller must read."""
MALFORMED = 3
"""A pcapng block whose two lengths differ."""
NO_INTERFACE = 4
"""A pcapng packet of an unknown interface."""

SECTION = 0x0A0D0D0A
INTERFACE = 1
_OLD_PACKET = 2
_SIMPLE_PACKET = 3
_ENHANCED_PACKET = 6


START, LENGTH, ORIGINAL, TIME, BY = range(5)
"""Columns of a scan's result, an int64 row for each packet: position of its bytes, captured length,
original length, time, and number of its interface."""


@njit(cache=True)
def _u32(data: NDArray[np.uint8], at: int, big_endian: bool) -> int:
    a, b = np.int64(data[at]), np.int64(data[at + 1])
    c, d = np.int64(data[at + 2]), np.int64(data[at + 3])
    return int(a << 24 | b << 16 | c << 8 | d if big_endian else d << 24 | c << 16 | b << 8 | a)


@njit(cache=True)
def scan_pcap(
    data: NDArray[np.uint8], big_endian: bool, fraction: int, found: NDArray[np.int64]
) -> tuple[int, int, int]:
    """Find the records of a pcap.

    Args:
        data: complete records, perhaps followed by the beginning of another.
        big_endian: byte order of the file's integers.
        fraction: nanoseconds of a unit of the time stamp's second word, 1 or 1000.
        found: output, shape (n, 5), a row for each packet; see ``room_for``.

    Returns:
        Bytes read, packets found, and why the scan stopped (``WHOLE``, ...).
    """
    at = 0
    count = 0
    while at + 16 <= data.size:
        captured = _u32(data, at + 8, big_endian)
        if captured > LONGEST:
            return at, count, TOO_LONG
        if at + 16 + captured > data.size:
            break
        row = found[count]
        row[START] = at + 16
        row[LENGTH] = captured
        row[ORIGINAL] = _u32(data, at + 12, big_endian)
        seconds, parts = _u32(data, at, big_endian), _u32(data, at + 4, big_endian)
        row[TIME] = seconds * 1_000_000_000 + parts * fraction
        row[BY] = 0
        at += 16 + captured
        count += 1
    return at, count, WHOLE


@njit(cache=True)
def scan_pcapng(
    data: NDArray[np.uint8],
    big_endian: bool,
    interfaces: NDArray[np.int64],
    latest: int,
    found: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Find the packet blocks of a pcapng, up to the first other block.

    ``interfaces``: shape (n, 4), one row for each interface of the section: decimal digits of its
    clock's resolution or -1, binary digits or -1, seconds to add, and snap length (0: no limit).
    ``latest``: the time of the previous packet. Blocks of unknown types are skipped.
    """
    at = 0
    count = 0
    while at + 12 <= data.size:
        kind = _u32(data, at, big_endian)
        size = _u32(data, at + 4, big_endian)
        problem = WHOLE
        if kind in (SECTION, INTERFACE):
            problem = OTHER_BLOCK
        elif size < 12 or size % 4 or size > 16 * LONGEST:
            problem = MALFORMED
        elif at + size > data.size:
            break
        elif _u32(data, at + size - 4, big_endian) != size:
            problem = MALFORMED
        elif kind in (_ENHANCED_PACKET, _OLD_PACKET, _SIMPLE_PACKET):
            found[count, TIME] = latest
            problem = _packet(data[at : at + size], big_endian, interfaces, found[count])
            if problem == WHOLE:
                found[count, START] += at
                latest = found[count, TIME]
                count += 1
        if problem != WHOLE:
            return at, count, problem
        at += size
    return at, count, WHOLE


@njit(cache=True)
def _packet(
    block: NDArray[np.uint8],
    big_endian: bool,
    interfaces: NDArray[np.int64],
    row: NDArray[np.int64],
) -> int:
    """Read a packet block into ``row``. A simple packet block does not change the time."""
    kind = _u32(block, 0, big_endian)
    head = 12 if kind == _SIMPLE_PACKET else 28
    if block.size < head + 4:
        return MALFORMED
    number = 0
    if kind == _SIMPLE_PACKET:
        original = _u32(block, 8, big_endian)
        captured = min(original, block.size - 16)
        if len(interfaces) and interfaces[0, 3]:
            captured = min(captured, interfaces[0, 3])
    else:
        number = _u32(block, 8, big_endian)
        if kind == _OLD_PACKET:  # two bytes of it count dropped packets
            number = number >> 16 if big_endian else number & 0xFFFF
        captured, original = _u32(block, 20, big_endian), _u32(block, 24, big_endian)
    if number >= len(interfaces):
        return NO_INTERFACE
    if captured > LONGEST:
        return TOO_LONG
    if captured > block.size - head - 4:
        return MALFORMED
    if kind != _SIMPLE_PACKET:
        ticks = _u32(block, 12, big_endian) << 32 | _u32(block, 16, big_endian)
        row[TIME] = _nanoseconds(ticks, interfaces[number])
    row[START] = head
    row[LENGTH] = captured
    row[ORIGINAL] = original
    row[BY] = number
    return WHOLE


@njit(cache=True)
def _nanoseconds(ticks: int, clock: NDArray[np.int64]) -> int:
    decimal, binary = clock[0], clock[1]
    if binary >= 0:
        seconds = ticks >> binary
        rest = (ticks - (seconds << binary)) * 1_000_000_000 >> binary
        return int((seconds + clock[2]) * 1_000_000_000 + rest)
    for _ in range(decimal, 9):
        ticks *= 10
    for _ in range(9, decimal):
        ticks //= 10
    return int(ticks + clock[2] * 1_000_000_000)


@njit(cache=True)
def gather_packets(
    data: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int32],
    positions: NDArray[np.int64],
    rows: NDArray[np.uint8],
) -> None:
    """Copy packet i, at start[i] of ``data``, to row positions[i] of ``rows``, (n, stride)."""
    for i in range(len(start)):
        row = rows[positions[i]]
        for k in range(length[i]):
            row[k] = data[start[i] + k]


@njit(cache=True)
def write_records(  # noqa: PLR0917 - what it touches is what it is given
    rows: NDArray[np.uint8],
    length: NDArray[np.int32],
    original: NDArray[np.int32],
    time: NDArray[np.int64],
    chosen: NDArray[np.int64],
    fraction: int,
) -> NDArray[np.uint8]:
    """Write the ``chosen`` packets as little-endian pcap records; ``original``: uncut lengths."""
    total = 0
    for i in chosen:
        total += 16 + length[i]
    out = np.empty(total, np.uint8)
    at = 0
    for i in chosen:
        seconds = time[i] // 1_000_000_000
        _put_u32(out, at, seconds)
        _put_u32(out, at + 4, (time[i] - seconds * 1_000_000_000) // fraction)
        _put_u32(out, at + 8, length[i])
        _put_u32(out, at + 12, original[i])
        at += 16
        for k in range(length[i]):
            out[at + k] = rows[i, k]
        at += length[i]
    return out


@njit(cache=True)
def _put_u32(out: NDArray[np.uint8], at: int, word: int) -> None:
    for k in range(4):
        out[at + k] = (word >> 8 * k) & 0xFF


def room_for(data: NDArray[np.uint8]) -> NDArray[np.int64]:
    """An array with room for all packets that a scan of ``data`` can find."""
    return np.empty((data.size // 12 + 1, 5), np.int64)

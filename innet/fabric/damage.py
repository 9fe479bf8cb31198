"""What a bad link does to the bytes of packets: flipped bits, missing ends, marks of congestion."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.packets import PacketBatch

LONGEST_BURST = 15  # bits; what the Internet checksum is sure to catch

_ETHERTYPE = slice(12, 14)
_IPV4 = np.array([0x08, 0x00], np.uint8)
_TOS = 15  # of IPv4 behind Ethernet: the second byte of its header
_CHECKSUM = 24
_ETHERNET_AND_IPV4 = 34
_CONGESTED = 3  # in the last two bits of the type of service (RFC 3168)


def corrupt(packets: PacketBatch, rows: NDArray[np.int64], rng: np.random.Generator) -> PacketBatch:
    """``packets`` with a burst of 1 to 15 bits flipped anywhere in each of ``rows``."""
    data = packets.data.copy()
    for row in rows.tolist():
        length = 8 * int(packets.length[row])
        if not length:
            continue
        # A burst begins and ends with a flipped bit.
        size = int(rng.integers(1, min(LONGEST_BURST, length) + 1))
        inside = int(rng.integers(0, 1 << max(0, size - 2))) << 1
        burst = (1 << (size - 1)) | inside | 1
        begin = int(rng.integers(0, length - size + 1))
        for bit in range(size):
            if burst >> (size - 1 - bit) & 1:
                place = begin + bit
                data[row, place // 8] ^= np.uint8(0x80 >> place % 8)
    return PacketBatch(data, packets.length, packets.port)


def truncate(
    packets: PacketBatch, rows: NDArray[np.int64], rng: np.random.Generator
) -> PacketBatch:
    """``packets``, each of ``rows`` cut to 0 .. its length - 1 bytes."""
    length = packets.length.copy()
    length[rows] = (rng.random(len(rows)) * packets.length[rows]).astype(np.int32)
    return PacketBatch(packets.data, length, packets.port)


def mark(packets: PacketBatch, rows: NDArray[np.int64]) -> tuple[PacketBatch, int]:
    """``packets``, with "congestion experienced" in those of ``rows`` that may carry it.

    These are IPv4 packets whose senders said ECT; as a router does it, the header's checksum is
    right again (RFC 1624). Also returns how many there were.
    """
    if packets.data.shape[1] < _ETHERNET_AND_IPV4:
        return packets, 0
    header = packets.data[rows, :_ETHERNET_AND_IPV4]
    able = (header[:, _ETHERTYPE] == _IPV4).all(axis=1) & (header[:, _TOS] & _CONGESTED > 0)
    able &= packets.length[rows] >= _ETHERNET_AND_IPV4
    rows = rows[able]
    data = packets.data.copy()
    before = data[rows, _TOS].astype(np.int64)
    data[rows, _TOS] |= _CONGESTED
    added = data[rows, _TOS].astype(np.int64) - before
    checksum = data[rows, _CHECKSUM].astype(np.int64) << 8 | data[rows, _CHECKSUM + 1]
    total = (~checksum & 0xFFFF) + added
    total = (total & 0xFFFF) + (total >> 16)
    data[rows, _CHECKSUM] = (~total >> 8) & 0xFF
    data[rows, _CHECKSUM + 1] = ~total & 0xFF
    return PacketBatch(data, packets.length, packets.port), len(rows)

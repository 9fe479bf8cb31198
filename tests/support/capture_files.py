"""Capture files, put together byte by byte, and read by scapy."""

from __future__ import annotations

import struct

from scapy.utils import RawPcapReader

from innet.core.pcap import PcapReader

Record = tuple[int, bytes]
"""Nanoseconds and bytes."""


def pcap(records, *, order="<", nano=True, link_type=1, magic=None):
    """The bytes of a pcap file; ``records`` are ``Record``s."""
    unit = 1 if nano else 1000
    word = magic if magic is not None else (0xA1B23C4D if nano else 0xA1B2C3D4)
    parts = [struct.pack(f"{order}IHHiIII", word, 2, 4, 0, 0, 65535, link_type)]
    for time, data in records:
        seconds, rest = divmod(time, 10**9)
        parts.append(struct.pack(f"{order}IIII", seconds, rest // unit, len(data), len(data)))
        parts.append(data)
    return b"".join(parts)


def block(kind, body, order="<"):
    body += bytes(-len(body) % 4)
    size = struct.pack(f"{order}I", 12 + len(body))
    return struct.pack(f"{order}I", kind) + size + body + size


def section(order="<"):
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(order="<", *, resolution=None, seconds=None, link_type=1, snapped=0):
    options = b""
    if resolution is not None:
        options += struct.pack(f"{order}HHB3x", 9, 1, resolution)
    if seconds is not None:
        options += struct.pack(f"{order}HHq", 14, 8, seconds)
    if options:
        options += bytes(4)
    return block(1, struct.pack(f"{order}HHI", link_type, 0, snapped) + options, order)


def enhanced(number, ticks, data, order="<", original=None):
    whole = len(data) if original is None else original
    head = struct.pack(f"{order}IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), whole)
    return block(6, head + data, order)


def simple(data, order="<"):
    return block(3, struct.pack(f"{order}I", len(data)) + data, order)


def old(number, ticks, data, order="<"):
    head = struct.pack(
        f"{order}HHIIII", number, 7, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data)
    )
    return block(2, head + data, order)


def read_by_scapy(path):
    """Bytes of each packet of a pcap, and their times in seconds."""
    with RawPcapReader(str(path)) as reader:
        unit = 1e-9 if reader.nano else 1e-6
        found = [(data, about.sec + about.usec * unit) for data, about in reader]
    return [data for data, _ in found], [time for _, time in found]


def packets_of(path):
    """The ``CapturedPacket``s of a pcap, which may still grow."""
    reader = PcapReader(path)
    try:
        return list(iter(reader.read, None))
    finally:
        reader.close()

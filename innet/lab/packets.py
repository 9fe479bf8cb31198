"""The lab's packets: chunks in Ethernet frames (level 1) or UDP datagrams (levels 2 and 3)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from innet.sim.flows import udp_frame

VALUES = 4
SLOTS = 8
LEVELS = (1, 2, 3)
SWITCH_MAC, SWITCH_IP = 0x0200000000FE, 0x0A0000FE

_TYPE, _IPV4, _UDP = 0x88B5, 0x0800, 17
_PORT = 4242
_CHUNK = struct.Struct(f">BBHI{VALUES}i")
_LAYOUTS: Mapping[str, tuple[struct.Struct, tuple[str, ...]]] = {
    "ethernet": (struct.Struct(">6s6sH"), ("destination", "source", "type")),
    "ipv4": (
        struct.Struct(">BBHHHBBH4s4s"),
        ("version_ihl", "tos", "total_length", "identification", "fragment", "ttl", "protocol",
         "checksum", "source", "destination"),
    ),
    "udp": (struct.Struct(">HHHH"), ("source", "destination", "length", "checksum")),
    "chunk": (struct.Struct(">BBHI"), ("worker", "version", "slot", "offset")),
    "values": (struct.Struct(f">{VALUES}i"), tuple(f"v{n}" for n in range(VALUES))),
}  # fmt: skip

Fields = dict[str, int]
"""Of a frame: numbers by name, such as ``chunk.slot``, in their order; signed for values."""


class LabChunk(NamedTuple):
    """Some elements of a vector, or of the sum.

    Attributes:
        worker: whose they are.
        number: of the chunk in the vector, from 0 on.
        values: its elements, within int32.
    """

    worker: int
    number: int
    values: tuple[int, ...]

    @property
    def slot(self) -> int:
        return self.number % SLOTS

    @property
    def version(self) -> int:
        return self.number // SLOTS % 2

    @property
    def offset(self) -> int:
        return self.number * VALUES

    def payload(self) -> bytes:
        return _CHUNK.pack(self.worker, self.version, self.slot, self.offset, *self.values)


def mac_of(worker: int) -> int:
    """The Ethernet address of a worker's host."""
    return 0x020000000000 + worker + 1


def ip_of(worker: int) -> int:
    """Likewise of IPv4."""
    return 0x0A000000 + worker + 1


def contribution(chunk: LabChunk, level: int, port: int = _PORT) -> bytes:
    """The frame that a worker sends; from level 2 on with the checksum that UDP has of real hosts.

    Args:
        chunk: what it has.
        level: 1 to 3.
        port: to which it goes.
    """
    here, there = (mac_of(chunk.worker), SWITCH_MAC), (ip_of(chunk.worker), SWITCH_IP)
    frame = _frame(chunk, level, here, there, port)
    if level == 1:
        return frame
    return frame[:40] + struct.pack(">H", udp_checksum(frame)) + frame[42:]


def result(chunk: LabChunk, level: int, worker: int) -> bytes:
    """The frame that the switch sends to a worker."""
    return _frame(chunk, level, (SWITCH_MAC, mac_of(worker)), (SWITCH_IP, ip_of(worker)), _PORT)


def _frame(
    chunk: LabChunk, level: int, ethernet: tuple[int, int], ipv4: tuple[int, int], port: int
) -> bytes:
    payload = chunk.payload()
    if level == 1:
        source, target = (address.to_bytes(6, "big") for address in ethernet)
        return target + source + struct.pack(">H", _TYPE) + payload
    return udp_frame(
        0, 1, len(payload), ethernet=ethernet, ipv4=ipv4, ports=(_PORT, port), payload=payload
    )


def fields_of(frame: bytes) -> Fields:
    """The fields of a frame, as far as it has bytes; ``bytes behind`` is what follows them."""
    found: Fields = {}
    at = 0
    names = ["ethernet", "chunk", "values"]
    if frame[12:14] == struct.pack(">H", _IPV4):
        names[1:1] = ["ipv4", "udp"]
    for header in names:
        layout, fields = _LAYOUTS[header]
        if at + layout.size > len(frame):
            break
        for field, value in zip(fields, layout.unpack_from(frame, at), strict=True):
            number = int.from_bytes(value, "big") if isinstance(value, bytes) else value
            found[f"{header}.{field}"] = number
        at += layout.size
    found["bytes behind"] = len(frame) - at
    return found


def shown(name: str, value: int | None) -> str:
    """A field's value for people."""
    if value is None:
        return "-"
    header, _, field = name.partition(".")
    if field in ("source", "destination") and header == "ethernet":
        return value.to_bytes(6, "big").hex(":")
    if field in ("source", "destination") and header == "ipv4":
        return ".".join(map(str, value.to_bytes(4, "big")))
    return f"{value:#06x}" if field in ("type", "checksum") else str(value)


def ipv4_checksum(frame: bytes) -> int:
    """The checksum that a frame's IPv4 header should have."""
    return _checksum(frame[14:24] + frame[26:34])


def udp_checksum(frame: bytes) -> int:
    """The checksum that a frame's UDP datagram should have, if it has one."""
    datagram = frame[34:40] + frame[42:]
    pseudo = frame[26:34] + struct.pack(">HH", _UDP, len(frame) - 34)
    return _checksum(pseudo + datagram) or 0xFFFF


def _checksum(data: bytes) -> int:
    """That of RFC 1071."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data[: len(data) // 2 * 2]))
    total += data[-1] << 8 if len(data) % 2 else 0
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def sum_of(vectors: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The sums of their elements, as int32 has them; () of no vectors."""
    columns: Iterable[tuple[int, ...]] = zip(*vectors, strict=True)
    return tuple((sum(column) + 2**31) % 2**32 - 2**31 for column in columns)


def swapped(name: str, value: int) -> int:
    """A field's value with its bytes in the other order."""
    size = {"chunk.slot": 2, "chunk.offset": 4}.get(name, 4 if name.startswith("values") else 1)
    order = (value % (1 << 8 * size)).to_bytes(size, "little")
    return int.from_bytes(order, "big", signed=name.startswith("values"))


__all__ = [
    "LEVELS",
    "SLOTS",
    "VALUES",
    "Fields",
    "LabChunk",
    "contribution",
    "fields_of",
    "ip_of",
    "ipv4_checksum",
    "mac_of",
    "result",
    "shown",
    "sum_of",
    "swapped",
    "udp_checksum",
]

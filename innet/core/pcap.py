"""The format of pcap files, writing them, and reading them packet by packet.

``innet.core.pcap_kernels`` is for many packets at once. Time stamps are exact nanoseconds since the
capture's epoch.

Source: draft-ietf-opsawg-pcap.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, PacketError
from innet.core.files import atomic_write
from innet.core.packets import PacketBatch

LONGEST = 262_144
"""libpcap's limit for the bytes of a packet. A longer record is not a packet."""

HEADER_BYTES = 24
_MICRO, _NANO = 0xA1B2C3D4, 0xA1B23C4D
_UNITS = {_MICRO: 1000, _NANO: 1}  # of magic numbers: nanoseconds of a fraction's unit
_SECOND = 1_000_000_000  # nanoseconds

ETHERNET = 1
_LINKS = {
    0: "BSD loopback",
    9: "PPP",
    12: "raw IP",
    14: "raw IP",
    101: "raw IP",
    105: "IEEE 802.11",
    113: "Linux cooked",
    127: "IEEE 802.11 with radiotap",
    228: "raw IPv4",
    229: "raw IPv6",
    276: "Linux cooked v2",
}
"""Link types that captures often have (https://www.tcpdump.org/linktypes.html)."""


def link_name(link_type: int) -> str:
    """A link type with its number, for messages."""
    return f"{_LINKS[link_type]} ({link_type})" if link_type in _LINKS else str(link_type)


def warn_of_link(path: Path, link_type: int) -> None:
    """Log a warning if a capture's link type is not Ethernet's."""
    if link_type != ETHERNET:
        logging.getLogger("innet").warning(
            "%s has packets of link type %s, not Ethernet (1). They are taken as they are, so the "
            "program's parser must begin with what such a packet begins with.",
            path,
            link_name(link_type),
        )


def pcap_format(head: bytes) -> tuple[str, int, int] | None:
    """Byte order (< or >), nanoseconds of a unit and link type of a pcap that begins with ``head``;
    None: it is none.
    """
    head = head[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0")
    for order in "<>":
        magic, link_type = struct.unpack(f"{order}I16xI", head)
        if magic in _UNITS:
            return order, _UNITS[magic], link_type & 0xFFFF
    return None


def pcap_header(*, nano: bool, link_type: int = ETHERNET, longest: int = LONGEST) -> bytes:
    """What a pcap begins with; ``nano``: its time stamps are in nanoseconds, not microseconds."""
    magic = _NANO if nano else _MICRO
    return struct.pack("<IHHiIII", magic, 2, 4, 0, 0, longest, link_type)


def pcap_record(time: int, data: bytes, *, nano: bool) -> bytes:
    """A packet in a pcap; time in nanoseconds."""
    seconds, rest = divmod(time, _SECOND)
    head = struct.pack("<IIII", seconds, rest if nano else rest // 1000, len(data), len(data))
    return head + data


def write_pcap(
    path: str | Path,
    packets: PacketBatch | NDArray[np.uint8] | Iterable[bytes],
    times: Iterable[float] | None = None,
) -> None:
    """Write Ethernet frames to a pcap file with nanosecond time stamps; replaces an existing file.

    Args:
        path: of the file.
        packets: a batch, uint8 (n, bytes), or bytes objects.
        times: one per packet, seconds, 0 <= time < 2**32, ascending in real captures; by default
            packet i was captured at i microseconds.

    Raises:
        InputError: the number of times differs from that of packets, a time is out of range, or
            the path cannot be written.
    """
    frames = _as_bytes(packets)
    stamps = np.arange(len(frames)) * 1e-6 if times is None else np.asarray(list(times), np.float64)
    if stamps.shape != (len(frames),):
        raise InputError(f"{len(stamps)} times for {len(frames)} packets; give one for each.")
    if not np.all((stamps >= 0) & (stamps < 2**32)):
        raise InputError("a pcap holds times from 0 to 2**32 seconds; shift the times given.")
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(pcap_header(nano=True, longest=0xFFFF))
        for frame, stamp in zip(frames, stamps.tolist(), strict=True):
            file.write(pcap_record(round(stamp * 1e9), frame, nano=True))


def _as_bytes(packets: PacketBatch | NDArray[np.uint8] | Iterable[bytes]) -> list[bytes]:
    if isinstance(packets, PacketBatch):
        return [payload for _, payload in packets.to_packets()]
    return [frame.tobytes() if isinstance(frame, np.ndarray) else frame for frame in packets]


class CapturedPacket(NamedTuple):
    """A packet of a capture: its time in nanoseconds, and its bytes."""

    time: int
    data: bytes


class PcapReader:
    """A pcap file or pipe, read packet by packet as it grows.

    Args:
        path: of the file.
        name: what errors call it; by default the path.

    Raises:
        InputError: it cannot be read.
        PacketError: it is no pcap file, or damaged.
    """

    def __init__(self, path: Path, name: str = "") -> None:
        self._name = name or str(path)
        try:
            self._file: IO[bytes] = path.open("rb")
            head = self._file.read(HEADER_BYTES)
        except OSError as error:
            raise InputError(f"{self._name} cannot be read: {error.strerror}.") from None
        known = pcap_format(head)
        if known is None or len(head) < HEADER_BYTES:
            self._file.close()
            raise PacketError(f"{self._name} is no pcap file.")
        order, self._unit, link_type = known
        self._record = struct.Struct(f"{order}IIII")
        warn_of_link(path, link_type)

    def read(self) -> CapturedPacket | None:
        """The next packet; None at the end. It waits for one if the file is a pipe."""
        head = self._file.read(self._record.size)
        if not head:
            return None
        if len(head) == self._record.size:
            seconds, fraction, kept, length = self._record.unpack(head)
            if kept != length:
                raise PacketError(
                    f"{self._name} has a packet of {length} bytes of which only {kept} were "
                    "captured; capture whole packets."
                )
            if kept > LONGEST:
                raise PacketError(f"{self._name} claims a packet of {kept} bytes.")
            data = self._file.read(kept)
            if len(data) == kept:
                return CapturedPacket(seconds * _SECOND + fraction * self._unit, data)
        raise PacketError(f"{self._name} ends within a packet.")

    def close(self) -> None:
        self._file.close()

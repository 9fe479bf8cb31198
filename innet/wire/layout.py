"""The packet layout as numpy dtypes, the only definition of the fields and their offsets.

Sources: Ethernet II (IEEE 802.3 clause 3), IPv4 (RFC 791), UDP (RFC 768).
"""

from __future__ import annotations

import enum
import ipaddress
import logging
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.float_sums import FloatSum
from innet.core.reduce_op import CollectiveOp, ReduceOp
from innet.core.settings import Framing

MAGIC = 0x494E  # "IN"
"""The first two bytes of innet's header, "IN"."""
VERSION = 3
"""The version of the wire format."""
UDP_PORT = 48879  # 0xBEEF, where the switch listens
"""The port at which the switch listens."""
ETHERTYPE = 0x88B5  # IEEE 802, local experimental EtherType 1
"""The EtherType of raw frames (IEEE 802, local experimental EtherType 1)."""
WITHOUT_VALUES = 0x80
"""Added to the header field ``operation`` of a packet that ends with the header: of a chunk with an
owner, whose values others send or get."""
MAX_VALUES = (0xFFFF - 20 - 8 - 32) // 4  # limited by IPv4's 16-bit length
"""The most values of a packet, also of one that a thin packet stands for, by IPv4's length."""
_JUMBO = 9000  # bytes after the Ethernet header of the longest frames that networks usually carry

ETHERTYPE_IPV4 = 0x0800
PROTOCOL_UDP = 17
VERSION_IHL = 0x45  # IPv4, five words: no options
ECN_CAPABLE = 2  # ECT(0), in the last two bits of the type of service (RFC 3168)
CLASS_SELECTOR = 5  # bits behind the class selector, the first three bits of the type of service
CONGESTED = 3  # CE, in the same place
"""The congestion mark CE, in the last two bits of IPv4's type of service (RFC 3168)."""
DONT_FRAGMENT = 0x4000
FRAGMENTED = 0x3FFF  # more-fragments bit and fragment offset

ETHERNET_HEADER = np.dtype([("destination", "u1", 6), ("source", "u1", 6), ("ethertype", ">u2")])
"""The Ethernet header as a NumPy dtype, 14 bytes."""
IPV4_HEADER = np.dtype(
    [
        ("version_ihl", "u1"),
        ("tos", "u1"),
        ("total_length", ">u2"),
        ("identification", ">u2"),
        ("fragment", ">u2"),
        ("ttl", "u1"),
        ("protocol", "u1"),
        ("checksum", ">u2"),
        ("source", ">u4"),
        ("destination", ">u4"),
    ]
)
"""The IPv4 header without options as a NumPy dtype, 20 bytes."""
UDP_HEADER = np.dtype(
    [("source", ">u2"), ("destination", ">u2"), ("length", ">u2"), ("checksum", ">u2")]
)
"""The UDP header as a NumPy dtype, 8 bytes."""
HEADER = np.dtype(
    [
        ("magic", ">u2"),
        ("version", "u1"),
        ("operation", "u1"),  # of innet.core.reduce_op: ReduceOp, CollectiveOp or FloatSum
        ("job", ">u2"),
        ("epoch", ">u2"),
        ("sequence", ">u4"),  # chunk number, counts from 1, modulo 2**32
        ("slot", ">u2"),  # within the job's slots
        ("slot_version", "u1"),  # which of the slot's two copies
        ("flags", "u1"),  # HeaderFlag
        ("bitmap", ">u4"),  # of a result: the workers or switches of the sender in it
        ("worker", ">u2"),  # the sender's index; of a result, the addressee's
        ("count", ">u2"),  # of a sum or a result: how many workers are in it
        ("elements", ">u2"),  # how many of the values are used
        ("exponent", ">u2"),  # combined by MAX; with a CollectiveOp: the owner's index
        ("message", ">u2"),  # tag of the sender's all-reduce
        ("checksum", ">u2"),  # RFC 1071, of the fields above and the values
    ]
)
"""innet's header as a NumPy dtype, 32 bytes."""

Field: TypeAlias = int | NDArray[np.integer[Any]]
"""A header field: one number for all packets, or an array with one for each."""
Frames: TypeAlias = NDArray[np.uint8]
"""Frames of one length: uint8, (frames, bytes)."""
Records: TypeAlias = NDArray[np.void]
"""A structured array of headers."""


class HeaderFlag(enum.IntFlag):
    """Bits of the header field ``flags``."""

    OVERFLOW = 1
    COLLISION = 2
    RESEND = 4
    ECN = 8
    RESULT = 16
    PARTIAL = 32
    URGENCY_1 = 64  # these two bits: how many levels above the leaves are asked as well
    URGENCY_2 = 128
    URGENCY = 192


@lru_cache(maxsize=64)
def _frame_dtype(values: int, framing: Framing) -> np.dtype[np.void]:
    link: list[tuple[str, Any]] = [("ethernet", ETHERNET_HEADER)]
    network = [("ipv4", IPV4_HEADER), ("udp", UDP_HEADER)] if framing == "udp" else []
    return np.dtype([*link, *network, ("innet", HEADER), ("values", ">i4", (values,))])


@cache
def _tell_long(size: int, elements: int) -> None:
    """Warn once of packets that few networks carry."""
    if size > _JUMBO:
        logging.getLogger("innet").warning(
            "packets of %d elements have %s bytes; jumbo frames usually have at most %s",
            elements,
            f"{size:,}",
            f"{_JUMBO:,}",
        )


@dataclass(frozen=True, slots=True)
class PacketLayout:
    """The shape of all packets of one program: how many values, under which outer headers.

    A header-only packet ("thin" in settings) carries fewer values than the packet that it stands
    for, and their sums mean nothing. Times and bytes are those of that packet: ``wire_size``.

    Args:
        values: int32 values in a frame, 1 .. MAX_VALUES. Read it from the compiled program.
        framing: "udp" or "raw".
        stands_for: of a header-only packet: the values of the packet that it stands for,
            ``values`` to MAX_VALUES. None for packets with all values. Longer ones than jumbo
            frames are logged as a warning.
        has_owners: chunks may have an owner (``CollectiveOp``), and packets end with the header
            (WITHOUT_VALUES).
        adds_floats: values may be floats (``FloatSum``).

    Raises:
        InputError: a number of values out of range, or an unknown framing.
    """

    values: int
    framing: Framing = "udp"
    stands_for: int | None = None
    has_owners: bool = False
    adds_floats: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.values <= MAX_VALUES:
            raise InputError(f"{self.values} values per packet; a packet holds 1 to {MAX_VALUES}.")
        if self.framing not in get_args(Framing):
            known = " or ".join(repr(name) for name in get_args(Framing))
            raise InputError(f"unknown framing {self.framing!r}; choose {known}.")
        if not self.values <= self.elements <= MAX_VALUES:
            raise InputError(
                f"a thin packet with {self.values} values stands for one with {self.values} to "
                f"{MAX_VALUES}, not with {self.elements}. That would be {self.wire_size:,} bytes, "
                "and IPv4 has packets of at most 65,535."
            )
        _tell_long(self.wire_size - ETHERNET_HEADER.itemsize, self.elements)

    @property
    def is_header_only(self) -> bool:
        """Whether packets stand for longer ones."""
        return self.stands_for is not None

    @property
    def elements(self) -> int:
        """Words of a message in each packet: ``values``, or what a header-only one stands for."""
        return self.values if self.stands_for is None else self.stands_for

    @property
    def wire_size(self) -> int:
        """Bytes of the frame that a frame stands for: ``frame_size`` with all values."""
        return self.frame_size + 4 * (self.elements - self.values)

    def wire_length(self, carried: int) -> int:
        """Bytes on the wire of a frame that carries ``carried`` bytes.

        A frame without its values, such as an acknowledgement, stands for itself.
        """
        is_whole = carried >= self.frame_size
        return carried + self.wire_size - self.frame_size if is_whole else carried

    @property
    def dtype(self) -> np.dtype[np.void]:
        """A whole frame: fields ``ethernet``, (``ipv4``, ``udp``,) ``innet``, ``values``."""
        return _frame_dtype(self.values, self.framing)

    @property
    def frame_size(self) -> int:
        """Bytes of a frame in memory, without preamble and frame check sequence."""
        return self.dtype.itemsize

    @property
    def bare_size(self) -> int:
        """Bytes of a frame in memory that ends with the header."""
        return self.values_offset

    @property
    def header_offset(self) -> int:
        """Where the innet header starts in a frame, in bytes."""
        return self.values_offset - HEADER.itemsize

    @property
    def values_offset(self) -> int:
        """Where the values start in a frame, in bytes."""
        return self.frame_size - 4 * self.values

    def view(self, frames: Frames) -> Records:
        """``frames`` (uint8, (n, at least frame_size)) as n records of ``dtype``; no copy."""
        records: Records = frames[:, : self.frame_size].view(self.dtype)[:, 0]
        return records


def offset_of(name: str) -> int:
    """Where the field ``name`` of the innet header starts in it, in bytes."""
    fields = HEADER.fields
    assert fields is not None
    return int(fields[name][1])


def limits(name: str, layout: PacketLayout) -> tuple[int, int]:
    """The smallest and the largest valid value of the header field ``name``."""
    if name == "operation":
        last = max(CollectiveOp) if layout.has_owners else max(ReduceOp)
        return min(ReduceOp), max(FloatSum) if layout.adds_floats else last
    if name == "slot_version":
        return 0, 1
    if name == "elements":
        return 1, layout.elements
    return 0, 256 ** HEADER[name].itemsize - 1


# ----------------------------------------------------------------------------
# Addresses of workers and switches.


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A sender or receiver of packets: Ethernet and IPv4 addresses as text, and a UDP port.

    Raises:
        InputError: an invalid address or port.
    """

    mac: str
    ip: str
    udp_port: int = UDP_PORT

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}", self.mac):
            raise InputError(f"{self.mac!r} is no MAC address; write it as 02:00:00:00:00:01.")
        try:
            ipaddress.IPv4Address(self.ip)
        except ValueError as error:
            raise InputError(f"{self.ip!r} is no IPv4 address: {error}.") from error
        if not 0 < self.udp_port <= 0xFFFF:
            raise InputError(f"UDP port {self.udp_port} is not in 1 .. 65535.")

    @classmethod
    def of_worker(cls, index: int) -> Endpoint:
        """The default address of worker ``index``: locally administered MAC, 10.0.0.0/16."""
        if not 0 <= index < 0xFF00:
            raise InputError(f"worker index {index} is not in 0 .. {0xFF00 - 1}.")
        high, low = divmod(index + 1, 256)
        return cls(f"02:00:00:00:{high:02x}:{low:02x}", f"10.0.{high}.{low}")

    @classmethod
    def of_switch(cls, index: int = 0) -> Endpoint:
        """The default address of switch ``index``; above those of all workers. The first are in
        10.0.255.0/24, which workers and parameter server leave free, the others in 10.1.0.0/16.
        """
        if not 0 <= index < 0xFD + 0xFF00:
            raise InputError(f"switch index {index} is not in 0 .. {0xFD + 0xFF00 - 1}.")
        if index < 0xFD:
            return cls(f"02:00:00:00:ff:{0xFE - index:02x}", f"10.0.255.{0xFE - index}")
        high, low = divmod(index - 0xFD + 1, 256)
        return cls(f"02:00:00:01:{high:02x}:{low:02x}", f"10.1.{high}.{low}")

    @classmethod
    def of_server(cls) -> Endpoint:
        """The default address of a job's parameter server; below those of the switches."""
        return cls("02:00:00:00:ff:01", "10.0.255.1")

    @property
    def mac_bytes(self) -> bytes:
        return bytes.fromhex(self.mac.replace(":", ""))

    @property
    def ip_number(self) -> int:
        return int(ipaddress.IPv4Address(self.ip))

"""The packet layout as scapy layers, and pcap files, for inspecting packets.

``Innet`` is the header and the values of ``innet.wire``. Importing this module registers it with
scapy behind UDP port 48879 and EtherType 0x88B5, so that ``Ether(frame).show()`` shows a whole
packet. No other module imports scapy. The import takes a good part of a second: import this module
only where it is used.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, PacketError
from innet.core.files import atomic_write
from innet.core.packets import PacketBatch
from innet.core.pcap import pcap_header, pcap_record
from innet.core.reduce_op import ReduceOp
from innet.wire import (
    ETHERTYPE,
    HEADER,
    MAGIC,
    MAX_VALUES,
    UDP_PORT,
    VERSION,
    Flag,
    Frames,
)

with warnings.catch_warnings():
    # Scapy warns of missing IPv6 routes, old ciphers and so on, which do not matter to a dissector.
    warnings.simplefilter("ignore")
    _logger = logging.getLogger("scapy")
    _level = _logger.level
    _logger.setLevel(logging.ERROR)
    from scapy.error import Scapy_Exception
    from scapy.fields import (
        ByteEnumField,
        ByteField,
        FieldListField,
        FlagsField,
        IntField,
        ShortField,
        SignedIntField,
        XIntField,
        XShortField,
    )
    from scapy.layers.inet import UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import Packet, bind_layers
    from scapy.utils import RawPcapNgReader, RawPcapReader, checksum

    _logger.setLevel(_level)

_LINK_TYPE_ETHERNET = 1


class _Values(FieldListField):
    """The remaining 32-bit words; further bytes are left to the next layer (Raw)."""

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, list[int]]:
        full = len(s) - len(s) % 4
        rest, values = super().getfield(pkt, s[:full])
        return rest + s[full:], values


class Innet(Packet):
    """The innet header and values, version 3; the fields of innet.wire.HEADER."""

    name = "innet"
    fields_desc: ClassVar[list[Any]] = [
        XShortField("magic", MAGIC),
        ByteField("version", VERSION),
        ByteEnumField("operation", int(ReduceOp.SUM), {each.value: each.name for each in ReduceOp}),
        ShortField("job", 0),
        ShortField("epoch", 0),
        IntField("sequence", 1),
        ShortField("slot", 0),
        ByteField("slot_version", 0),
        FlagsField("flags", 0, 8, {each.value: str(each.name).lower() for each in Flag}),
        XIntField("bitmap", 0),
        ShortField("worker", 0),
        ShortField("count", 0),
        ShortField("elements", 1),
        ShortField("exponent", 0),
        XShortField("message", 0),
        XShortField("checksum", None),
        # By default scapy reads lists of at most a hundred items.
        _Values("values", [], SignedIntField("value", 0), max_count=MAX_VALUES),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill in the checksum if none was given."""
        if self.checksum is None:
            end = HEADER.itemsize
            pkt = pkt[: end - 2] + checksum(pkt).to_bytes(2, "big") + pkt[end:]
        return pkt + pay

    def mysummary(self) -> str:
        """One line for scapy's packet lists."""
        kind = "result" if int(self.flags) & Flag.RESULT else "update"
        return str(
            self.sprintf(
                f"innet {kind} %operation% job %job%/%epoch% chunk %sequence% "
                "slot %slot%.%slot_version% worker %worker%"
            )
        )


bind_layers(UDP, Innet, dport=UDP_PORT)
bind_layers(UDP, Innet, sport=UDP_PORT)
bind_layers(UDP, Innet, sport=UDP_PORT, dport=UDP_PORT)  # what building a packet fills in
# Scapy takes the first match, and its VXLAN layer claims the same port for some switches.
UDP.payload_guess.sort(key=lambda guess: guess[1] is not Innet)
bind_layers(Ether, Innet, type=ETHERTYPE)


@dataclass(frozen=True, slots=True)
class Capture:
    """What a pcap file held.

    Attributes:
        packets: in the order of the file; a pcap has no ports, so ``port`` is 0.
        times: shape (n,), float64, seconds since the capture's epoch.
    """

    packets: PacketBatch
    times: NDArray[np.float64]


def write_pcap(
    path: str | Path,
    packets: PacketBatch | Frames | Iterable[bytes],
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


def _as_bytes(packets: PacketBatch | Frames | Iterable[bytes]) -> list[bytes]:
    if isinstance(packets, PacketBatch):
        return [payload for _, payload in packets.to_packets()]
    return [frame.tobytes() if isinstance(frame, np.ndarray) else frame for frame in packets]


def read_pcap(path: str | Path) -> Capture:
    """Read the Ethernet frames of a pcap or pcapng file.

    Raises:
        InputError: there is no such file, or it cannot be opened.
        PacketError: the file is not a capture of Ethernet frames, or ends within a packet.
    """
    found: list[tuple[bytes, float]] = []
    try:
        with (
            Path(path).open("rb") as stream,  # opened here: scapy leaks files that it refuses
            RawPcapReader(cast("Any", stream)) as reader,  # annotated as a name only
        ):
            linktype = getattr(reader, "linktype", None)
            if linktype not in (None, _LINK_TYPE_ETHERNET):
                raise PacketError(
                    f"{path} holds packets of link type {linktype}; expected 1 (Ethernet)."
                )
            for frame, metadata in reader:
                if len(frame) < getattr(metadata, "caplen", 0):
                    raise PacketError(f"{path} ends in the middle of packet {len(found)}.")
                found.append((frame, _seconds(reader, metadata)))
    except Scapy_Exception as error:
        raise PacketError(f"{path} is no pcap file: {error}.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    packets = PacketBatch.from_packets((0, frame) for frame, _ in found)
    return Capture(packets, np.array([seconds for _, seconds in found], np.float64))


def _seconds(reader: Any, metadata: Any) -> float:
    if isinstance(reader, RawPcapNgReader):
        if metadata.linktype != _LINK_TYPE_ETHERNET:
            raise PacketError(
                f"{reader.filename} holds packets of link type {metadata.linktype}; "
                "expected 1 (Ethernet)."
            )
        ticks = (metadata.tshigh << 32) | metadata.tslow
        return float(ticks / metadata.tsresol)
    return float(metadata.sec + metadata.usec * (1e-9 if reader.nano else 1e-6))

"""Reading and writing of capture files, in blocks of constant size.

pcap and pcapng, of either byte order, with time stamps of any resolution, plain or gzip-compressed.
Time stamps are exact nanoseconds since the capture's epoch.

Sources: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self, cast

import numpy as np
from numpy.typing import NDArray

from innet.core import pcap_kernels as kernels
from innet.core.errors import InputError, OutputError, PacketError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.core.pcap import (
    ETHERNET,
    HEADER_BYTES,
    LONGEST,
    pcap_format,
    pcap_header,
    pcap_record,
    warn_of_link,
)
from innet.core.pcap_kernels import gather_packets

CHUNK = 1 << 22
"""Bytes read at a time."""

_ORDER = 0x1A2B3C4D
_MOST_BINARY_DIGITS = 30  # of a pcapng clock: more would not be exact in 64 bits

_PROBLEMS = {
    kernels.TOO_LONG: f"claims more than {LONGEST} bytes",
    kernels.MALFORMED: "lies in a block whose lengths do not agree",
    kernels.NO_INTERFACE: "came in by an interface that the capture does not describe",
}


@dataclass(frozen=True, slots=True)
class PacketBlock:
    """Consecutive packets of a capture.

    Attributes:
        data: bytes that include the packets.
        start, length: shape (n,), int64 and int32: position of each packet in ``data``.
        time: shape (n,), int64, nanoseconds.
        interface: shape (n,), int32: number of the interface in the order of the capture; 0 in a
            pcap.
        cut: how many packets are truncated in the capture.
    """

    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int32]
    time: NDArray[np.int64]
    interface: NDArray[np.int32]
    cut: int

    def __len__(self) -> int:
        return len(self.start)


class CaptureReader:
    """A capture file, open for reading.

        with CaptureReader(path) as capture:
            for block in capture.blocks(): ...

    Attributes:
        link_type: of the (first) interface; 1 is Ethernet. Another one is logged as a warning,
            since packets are taken as they are.
        nano: time stamps are finer than microseconds.
        is_pcapng: packets have interfaces.
        size: bytes of the file; ``position`` is how many of them were read.

    Raises:
        InputError: the file cannot be read.
        PacketError: it is not a capture.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.packets = 0
        """How many packets ``blocks`` has returned."""
        self._interfaces = np.empty((0, 4), np.int64)
        self._earlier = 0  # interfaces of the sections before
        self._latest = 0
        self._offset = 0  # of the next packet, in the (unpacked) file
        self._told: set[int] = set()
        try:
            self._file = path.open("rb")
            self.size = path.stat().st_size
            self._stream = self._unpacked()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
        try:
            self._rest = self._header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def position(self) -> int:
        """Bytes of the file that were read."""
        return self._file.tell()

    def _unpacked(self) -> IO[bytes]:
        packed = self._file.read(2) == b"\x1f\x8b"
        self._file.seek(0)
        return cast("IO[bytes]", gzip.GzipFile(fileobj=self._file)) if packed else self._file

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            where = f"after packet {self.packets}" if self.packets else "at its start"
            raise PacketError(f"{self.path} cannot be read on {where}: {error}.") from None

    # ── File header ──

    def _header(self) -> bytes:
        """Read the file header; returns the bytes read after it."""
        head = self._read(CHUNK)
        if not head:
            raise PacketError(f"{self.path} is empty, so it is no capture.")
        self.is_pcapng = head[:4] == kernels.SECTION.to_bytes(4, "big")
        if self.is_pcapng:
            return self._sections(head)
        known = pcap_format(head)
        if known is None:
            raise PacketError(f"{self.path} is neither a pcap nor a pcapng file.")
        if len(head) < HEADER_BYTES:
            raise PacketError(f"{self.path} ends in its header, after {len(head)} bytes.")
        order, self._fraction, self.link_type = known
        self._big_endian = order == ">"
        self.nano = self._fraction == 1
        self._tell_link(self.link_type)
        self._offset = HEADER_BYTES
        return head[HEADER_BYTES:]

    def _sections(self, head: bytes) -> bytes:
        """pcapng: read blocks up to the first packet, to know the interfaces."""
        self._big_endian = False
        self.link_type = 1
        self.nano = False
        rest = head
        while True:
            kind = int.from_bytes(rest[:4], "big" if self._big_endian else "little")
            if len(rest) < 12 or kind not in (kernels.SECTION, kernels.INTERFACE):
                return rest
            rest = self._describe(rest)

    def _tell_link(self, link_type: int) -> None:
        if link_type not in self._told:
            self._told.add(link_type)
            warn_of_link(self.path, link_type)

    # ── Packets ──

    def blocks(self) -> Iterator[PacketBlock]:
        """The packets, in blocks of some megabytes.

        Raises:
            PacketError: the file is damaged or ends within a packet; names the packet and offset.
        """
        rest = self._rest
        while True:
            data = np.frombuffer(rest, np.uint8)
            used, block, problem = self._scan(data)
            self.packets += len(block)
            self._offset += used
            if len(block):
                yield block
            if problem in _PROBLEMS:
                self._refuse(_PROBLEMS[problem])
            rest = rest[used:]
            if problem == kernels.OTHER_BLOCK:
                rest = self._describe(rest)
                continue
            chunk = self._read(CHUNK)
            if not chunk:
                break
            rest += chunk
        if rest:
            self._refuse("is cut off: the file ends in it")

    def _refuse(self, what: str) -> None:
        raise PacketError(
            f"{self.path} is damaged: packet {self.packets} (counted from 0), at byte "
            f"{self._offset}, {what}."
        )

    def _scan(self, data: NDArray[np.uint8]) -> tuple[int, PacketBlock, int]:
        found = kernels.room_for(data)
        if self.is_pcapng:
            used, count, problem = kernels.scan_pcapng(
                data, self._big_endian, self._interfaces, self._latest, found
            )
            self._latest = int(found[count - 1, kernels.TIME]) if count else self._latest
        else:
            used, count, problem = kernels.scan_pcap(data, self._big_endian, self._fraction, found)
        found = found[:count]
        block = PacketBlock(
            data,
            found[:, kernels.START].copy(),
            found[:, kernels.LENGTH].astype(np.int32),
            found[:, kernels.TIME].copy(),
            (found[:, kernels.BY] + self._earlier).astype(np.int32),
            int(np.count_nonzero(found[:, kernels.ORIGINAL] > found[:, kernels.LENGTH])),
        )
        return used, block, problem

    # ── pcapng: sections and interfaces ──

    def _describe(self, rest: bytes) -> bytes:
        """Read the section or interface block at the start of ``rest``; returns what follows."""
        while len(rest) < 12 or len(rest) < self._block_size(rest):
            chunk = self._read(CHUNK)
            if not chunk:
                self._refuse("is preceded by a block that is cut off")
            rest += chunk
        size = self._block_size(rest)
        body = rest[8 : size - 4]
        if rest[:4] == kernels.SECTION.to_bytes(4, "big"):
            self._earlier += len(self._interfaces)
            self._interfaces = np.empty((0, 4), np.int64)
        else:
            self._interface(body)
        self._offset += size
        return rest[size:]

    def _block_size(self, rest: bytes) -> int:
        if rest[:4] == kernels.SECTION.to_bytes(4, "big"):
            order = rest[8:12]
            if order not in (_ORDER.to_bytes(4, "big"), _ORDER.to_bytes(4, "little")):
                self._refuse("is preceded by a section of unknown byte order")
            self._big_endian = order == _ORDER.to_bytes(4, "big")
        size = int.from_bytes(rest[4:8], "big" if self._big_endian else "little")
        least = 28 if rest[:4] == kernels.SECTION.to_bytes(4, "big") else 20
        if size < least or size % 4 or size > 4 * CHUNK:
            self._refuse(f"is preceded by a block of {size} bytes, which is malformed")
        return size

    def _interface(self, body: bytes) -> None:
        order = ">" if self._big_endian else "<"
        link_type, _, snapped = struct.unpack_from(f"{order}HHI", body)
        decimal, binary, seconds = 6, -1, 0
        at = 8
        while at + 4 <= len(body):
            code, size = struct.unpack_from(f"{order}HH", body, at)
            value = body[at + 4 : at + 4 + size]
            at += 4 + (size + 3) // 4 * 4
            if code == 0:
                break
            if code == 9 and size == 1:  # if_tsresol
                digits = value[0] & 0x7F
                decimal, binary = (-1, digits) if value[0] & 0x80 else (digits, -1)
            elif code == 14 and size == 8:  # if_tsoffset
                (seconds,) = struct.unpack(f"{order}q", value)
        if decimal > 18 or binary > _MOST_BINARY_DIGITS or abs(seconds) > 1 << 33:
            self._refuse("is preceded by an interface whose clock cannot be read")
        if not len(self._interfaces) and not self._earlier:
            self.link_type = link_type
        self._tell_link(link_type)
        self.nano = self.nano or decimal > 6 or binary > 0
        row = np.array([[decimal, binary, seconds, snapped]], np.int64)
        self._interfaces = np.concatenate([self._interfaces, row])


class CaptureWriter:
    """A pcap file, open for writing; a new one, or ``replace`` says that it may be there.

    Raises:
        OutputError: it cannot be written.
    """

    def __init__(
        self, path: Path, *, nano: bool, link_type: int = ETHERNET, replace: bool = False
    ) -> None:
        self.path = path
        self._nano = nano
        try:
            self._file = path.open("wb" if replace else "xb")
        except OSError as error:
            raise OutputError.of(path, error) from None
        self._append(pcap_header(nano=nano, link_type=link_type))

    def write(
        self,
        rows: NDArray[np.uint8],
        length: NDArray[np.int32],
        time: NDArray[np.int64],
        chosen: NDArray[np.int64],
    ) -> None:
        """Append the ``chosen`` of the packets in ``rows``, shape (n, stride); time in ns."""
        fraction = 1 if self._nano else 1000
        self._append(kernels.write_records(rows, length, length, time, chosen, fraction).data)

    def write_packet(self, time: int, data: bytes) -> None:
        """Append one packet; time in nanoseconds."""
        self._append(pcap_record(time, data, nano=self._nano))

    def _append(self, content: bytes | memoryview) -> None:
        try:
            self._file.write(content)
        except OSError as error:
            raise OutputError.of(self.path, error) from None

    def fileno(self) -> int:
        """For compiled code that appends records, after ``flush``."""
        return self._file.fileno()

    def flush(self) -> None:
        """Let the file hold all packets, also for others who read it now."""
        try:
            self._file.flush()
        except OSError as error:
            raise OutputError.of(self.path, error) from None

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise OutputError.of(self.path, error) from None


# ----------------------------------------------------------------------------
# Several captures as one stream of batches, in the order of their time stamps.
#
# Captures are read in parallel, one block of each at a time, so that memory does not depend on
# their length. A packet with an earlier time stamp than its predecessor in the capture keeps its
# position, and is treated as if it had the predecessor's time.

MOST_BYTES = 1 << 26
"""Bytes of a batch. With very long packets a batch has fewer of them."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Packets with their times, int64 (n,), nanoseconds; and ``clock``, the same but never
    decreasing.
    """

    packets: PacketBatch
    time: NDArray[np.int64]
    clock: NDArray[np.int64]


@dataclass(slots=True)
class CaptureSource:
    """A capture, and the port at which its packets arrive.

    Attributes:
        port: port of all packets; None: the number of a packet's interface.
        cut: how many packets are truncated in the capture.
    """

    capture: CaptureReader
    port: int | None
    cut: int = 0
    _blocks: Iterator[PacketBlock] = field(init=False)
    _block: PacketBlock | None = field(init=False, default=None)
    _clock: NDArray[np.int64] = field(init=False)
    _next: int = field(init=False, default=0)
    _latest: int = field(init=False, default=-(1 << 63))

    def __post_init__(self) -> None:
        self._blocks = self.capture.blocks()
        self.advance()

    @property
    def path(self) -> Path:
        return self.capture.path

    @property
    def ended(self) -> bool:
        return self._block is None

    @property
    def known_until(self) -> int:
        """All packets up to this time have been read."""
        return int(self._clock[-1])

    def advance(self) -> None:
        """Read the next block, after all packets of the last were taken."""
        self._block = next(self._blocks, None)
        self._next = 0
        if self._block is not None:
            block = self._block
            self._clock = np.maximum(np.maximum.accumulate(block.time), self._latest)
            self._latest = int(self._clock[-1])
            self.cut += block.cut

    def take(self, until: int, *, inclusive: bool) -> _Piece | None:
        """The packets up to a time, inclusive or not; None if there are none."""
        block = self._block
        if block is None:
            return None
        upto = np.searchsorted(self._clock, until, "right" if inclusive else "left")
        end = max(self._next, int(upto))
        rows = slice(self._next, end)
        self._next = end
        if rows.start == rows.stop:
            return None
        return _Piece(
            block.data,
            block.start[rows],
            block.length[rows],
            block.time[rows],
            self._clock[rows],
            self._ports(block.interface[rows]),
        )

    @property
    def exhausted(self) -> bool:
        """Whether all packets read so far have been taken."""
        return self._block is not None and self._next == len(self._block)

    def _ports(self, interface: NDArray[np.int32]) -> NDArray[np.int32]:
        if self.port is not None:
            return np.full(len(interface), self.port, np.int32)
        if interface.max(initial=0) > MAX_PORT:
            raise InputError(
                f"{self.path} has packets of interface {interface.max()}, and a switch has ports "
                f"0..{MAX_PORT}; say with --port at which port its packets arrive."
            )
        return interface


@dataclass(frozen=True, slots=True)
class _Piece:
    """The next packets of one source."""

    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int32]
    time: NDArray[np.int64]
    clock: NDArray[np.int64]
    port: NDArray[np.int32]


def merge(sources: list[CaptureSource], most: int) -> Iterator[Timed]:
    """Batches of up to ``most`` packets. Among equal times the first source comes first.

    Raises:
        PacketError: a capture is damaged. All packets before the damage were returned.
    """
    while any(not source.ended for source in sources):
        open_sources = [source for source in sources if not source.ended]
        known_until = min(source.known_until for source in open_sources)
        limiting = next(source for source in open_sources if source.known_until == known_until)
        # At the limit itself, take only from sources before the limiting one.
        last = sources.index(limiting)
        pieces = [
            piece
            for position, source in enumerate(sources)
            if (piece := source.take(known_until, inclusive=position <= last)) is not None
        ]
        yield from _batches(pieces, most)
        for source in open_sources:
            if source.exhausted:
                source.advance()


def _batches(pieces: list[_Piece], most: int) -> Iterator[Timed]:
    """Packets of all pieces in order of time, in batches."""
    clock = np.concatenate([piece.clock for piece in pieces])
    order = np.argsort(clock, kind="stable")
    length = np.concatenate([piece.length for piece in pieces])[order]
    time = np.concatenate([piece.time for piece in pieces])[order]
    port = np.concatenate([piece.port for piece in pieces])[order]
    clock = clock[order]
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    owners = np.split(position, np.cumsum([len(piece.start) for piece in pieces])[:-1])
    first = 0
    while first < len(order):
        count = _count(length[first:], most)
        chosen = slice(first, first + count)
        rows = np.zeros((count, int(length[chosen].max())), np.uint8)
        for piece, where in zip(pieces, owners, strict=True):
            mine = np.flatnonzero((where >= first) & (where < first + count))
            if len(mine):
                gather_packets(
                    piece.data, piece.start[mine], piece.length[mine], where[mine] - first, rows
                )
        yield Timed(PacketBatch(rows, length[chosen], port[chosen]), time[chosen], clock[chosen])
        first += count


def _count(length: NDArray[np.int32], most: int) -> int:
    """The number of packets of the next batch, at least one."""
    strides = np.maximum.accumulate(length[:most].astype(np.int64))
    sizes = strides * np.arange(1, len(strides) + 1)
    return max(1, int(np.searchsorted(sizes, MOST_BYTES, "right")))

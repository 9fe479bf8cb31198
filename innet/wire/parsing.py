"""Frames to header fields and values, whole batches at once, with a reason for each refusal."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import PacketError
from innet.core.packets import PacketBatch
from innet.wire.layout import (
    ETHERNET_HEADER,
    ETHERTYPE,
    ETHERTYPE_IPV4,
    FRAGMENTED,
    HEADER,
    IPV4_HEADER,
    MAGIC,
    PROTOCOL_UDP,
    UDP_HEADER,
    UDP_PORT,
    VERSION,
    VERSION_IHL,
    WITHOUT_VALUES,
    Frames,
    PacketLayout,
    Records,
    limits,
)
from innet.wire.packing import ready

FIELD, EITHER, SUM, SIZE = range(4)  # kinds of checks, as innet.wire.compiled knows them


class FrameRefusal(enum.IntEnum):
    """Why a frame is not a packet of the layout: the first reason, outer headers first."""

    NONE = 0
    LENGTH = 1
    ETHERTYPE = 2
    IP_VERSION = 3
    IP_LENGTH = 4
    IP_FRAGMENT = 5
    IP_PROTOCOL = 6
    IP_CHECKSUM = 7
    UDP_PORT = 8
    UDP_LENGTH = 9
    MAGIC = 10
    VERSION = 11
    OPERATION = 12
    SLOT_VERSION = 13
    ELEMENTS = 14
    CHECKSUM = 15

    @property
    def label(self) -> str:
        """The name in a sentence, such as "slot version"."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Batch:
    """What ``parse`` found in n frames.

    Attributes:
        layout: the layout they were read by.
        data: (n, at least layout.frame_size) uint8; rows that are not ``valid`` may hold anything,
            and so may the values of those that end with the header.
        header: (n,) records of HEADER, big endian, likewise.
        reason: (n,) uint8, a FrameRefusal each; NONE if the frame is a packet of the layout.
    """

    layout: PacketLayout
    data: Frames
    header: Records
    reason: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.reason)

    @property
    def valid(self) -> NDArray[np.bool_]:
        return np.asarray(self.reason == FrameRefusal.NONE)

    @property
    def frames(self) -> Records:
        """(n,) records of ``layout.dtype``, a view."""
        return self.layout.view(self.data)

    @property
    def values(self) -> NDArray[np.int32]:
        """(n, V) int32 in the byte order of the host, a copy."""
        return np.asarray(self.frames["values"], np.int32)

    def refusals(self) -> dict[FrameRefusal, int]:
        """How many frames were refused, by reason."""
        numbers = np.bincount(self.reason, minlength=len(FrameRefusal))
        return {why: int(numbers[why]) for why in FrameRefusal if why and numbers[why]}


class _Check(NamedTuple):
    """One condition on a frame whose length is right.

    Attributes:
        refusal: the reason for frames that do not meet it.
        field: the field it checks.
        kind: of the condition: ``FIELD``, ``EITHER``, ``SUM`` or ``SIZE`` of
            ``innet.wire.compiled``.
        between: the smallest and the largest value of the field, after ``mask``.
        expected: the condition in words.
    """

    refusal: FrameRefusal
    field: tuple[str, ...]
    expected: str
    between: tuple[int, int] = (0, 0)
    mask: int = 0xFFFF_FFFF
    kind: int = FIELD


def _equals(
    refusal: FrameRefusal, field: tuple[str, ...], wanted: int, text: str, kind: int = FIELD
) -> _Check:
    return _Check(refusal, field, text, (wanted, wanted), kind=kind)


def _between(refusal: FrameRefusal, name: str, layout: PacketLayout) -> _Check:
    low, high = limits(name, layout)
    mask = ~WITHOUT_VALUES & 0xFF if name == "operation" and layout.has_owners else 0xFFFF_FFFF
    return _Check(refusal, ("innet", name), f"{low} .. {high}", (low, high), mask)


def _udp_checks(layout: PacketLayout) -> list[_Check]:
    total = layout.frame_size - ETHERNET_HEADER.itemsize
    udp = total - IPV4_HEADER.itemsize
    return [
        _equals(FrameRefusal.ETHERTYPE, ("ethernet", "ethertype"), ETHERTYPE_IPV4, "0x0800 (IPv4)"),
        _equals(
            FrameRefusal.IP_VERSION,
            ("ipv4", "version_ihl"),
            VERSION_IHL,
            "0x45 (version 4, no options)",
        ),
        _equals(FrameRefusal.IP_LENGTH, ("ipv4", "total_length"), total, str(total), SIZE),
        _Check(FrameRefusal.IP_FRAGMENT, ("ipv4", "fragment"), "no fragment", mask=FRAGMENTED),
        _equals(FrameRefusal.IP_PROTOCOL, ("ipv4", "protocol"), PROTOCOL_UDP, "17 (UDP)"),
        _Check(FrameRefusal.IP_CHECKSUM, ("ipv4",), "a right header checksum", kind=SUM),
        _Check(
            FrameRefusal.UDP_PORT,
            ("udp",),
            f"source or destination port {UDP_PORT}",
            (UDP_PORT, UDP_PORT),
            kind=EITHER,
        ),
        _equals(FrameRefusal.UDP_LENGTH, ("udp", "length"), udp, str(udp), SIZE),
    ]


@lru_cache(maxsize=64)
def _checks(layout: PacketLayout) -> tuple[_Check, ...]:
    """The checks of a layout, in order."""
    raw = _equals(
        FrameRefusal.ETHERTYPE, ("ethernet", "ethertype"), ETHERTYPE, f"{ETHERTYPE:#06x} (innet)"
    )
    return (
        *(_udp_checks(layout) if layout.framing == "udp" else [raw]),
        _equals(FrameRefusal.MAGIC, ("innet", "magic"), MAGIC, f"{MAGIC:#06x}"),
        _equals(FrameRefusal.VERSION, ("innet", "version"), VERSION, str(VERSION)),
        _between(FrameRefusal.OPERATION, "operation", layout),
        _between(FrameRefusal.SLOT_VERSION, "slot_version", layout),
        _between(FrameRefusal.ELEMENTS, "elements", layout),
        _Check(
            FrameRefusal.CHECKSUM,
            ("innet", "checksum"),
            "what RFC 1071 makes of header and values",
            kind=SUM,
        ),
    )


@lru_cache(maxsize=64)
def rules(layout: PacketLayout) -> NDArray[np.int64]:
    """The checks as ``compiled.check_frames`` reads them."""
    size = layout.frame_size
    sizes = size, layout.bare_size if layout.has_owners else size
    found = [(FIELD, layout.header_offset, 0, 0, *sizes, FrameRefusal.LENGTH)]
    for check in _checks(layout):
        offset, width = _place(layout, check.field)
        if check.refusal == FrameRefusal.CHECKSUM:
            offset, width = layout.header_offset, size - layout.header_offset
        elif check.kind == EITHER:
            width = UDP_HEADER["source"].itemsize  # the destination follows it
        assert check.kind == SUM or width in {1, 2}  # what compiled code reads
        found.append((check.kind, offset, width, check.mask, *check.between, check.refusal))
    return np.array(found, np.int64)


def _place(layout: PacketLayout, path: tuple[str, ...]) -> tuple[int, int]:
    """A field's offset in a frame, and its bytes."""
    offset, dtype = 0, layout.dtype
    for name in path:
        fields = dtype.fields
        assert fields is not None
        dtype, begin, *_ = fields[name]
        offset += begin
    return offset, dtype.itemsize


def _select(records: Records, path: tuple[str, ...]) -> Any:
    selected: Any = records
    for name in path:
        selected = selected[name]
    return selected


def frames_of(frames: Frames | PacketBatch) -> tuple[Frames, NDArray[np.int32]]:
    """Bytes and lengths of ``frames``, as compiled code takes them."""
    if isinstance(frames, PacketBatch):
        data, length = frames.data, frames.length
    else:
        data, length = frames, np.full(len(frames), frames.shape[1], np.int32)
    return (
        np.require(data, requirements=["C", "A", "W"]),
        np.require(length, requirements=["C", "A", "W"]),
    )


def parse(layout: PacketLayout, frames: Frames | PacketBatch) -> Batch:
    """Read ``frames`` by ``layout``; never raises because of their contents.

    The UDP checksum is ignored: innet sends 0, an operating system's socket may send another one,
    and the innet checksum covers header and values.

    Args:
        layout: the expected layout.
        frames: uint8 (n, bytes), one frame per row, or packets of any lengths.
    """
    data, length = frames_of(frames)
    header = np.zeros(len(length), HEADER)
    if data.shape[1] < layout.frame_size:
        whole = np.zeros((len(length), layout.frame_size), np.uint8)
        if not layout.has_owners:  # too short for any valid frame
            reason = np.full(len(length), FrameRefusal.LENGTH, np.uint8)
            return Batch(layout, whole, header, reason)
        whole[:, : data.shape[1]] = data
        data = whole
    reason = ready().check_frames(
        data,
        length,
        rules(layout),
        header.view(np.uint8).reshape(-1, HEADER.itemsize),
    )
    return Batch(layout, data, header, reason)


def parse_strict(layout: PacketLayout, frames: Frames | PacketBatch | bytes) -> Batch:
    """As ``parse``, but all frames must be packets of the layout; takes a single frame as bytes.

    Raises:
        PacketError: names the first invalid frame, its field, the value and the expected value.
    """
    if isinstance(frames, bytes):
        frames = np.frombuffer(frames, np.uint8)[None, :]
    batch = parse(layout, frames)
    if batch.valid.all():
        return batch
    row = int(np.argmin(batch.valid))
    _, length = frames_of(frames)
    if batch.reason[row] == FrameRefusal.LENGTH:
        or_bare = f", or {layout.bare_size} without values" if layout.has_owners else ""
        raise PacketError(
            f"packet {row}: length is {length[row]} bytes; expected {layout.frame_size} "
            f"({layout.values} values, framing {layout.framing!r}){or_bare}."
        )
    check = next(each for each in _checks(layout) if each.refusal == batch.reason[row])
    found = _select(batch.frames, check.field)[row]
    expected = check.expected
    if check.kind == SIZE:
        expected = str(check.between[0] - layout.frame_size + int(length[row]))
    raise PacketError(
        f"packet {row}: {'.'.join(check.field)} is {_describe(found)}; expected {expected}."
    )


def _describe(found: Any) -> str:
    if found.dtype.names is None:
        return f"{int(found)} ({int(found):#x})"
    return ", ".join(f"{name} {int(found[name])}" for name in found.dtype.names)

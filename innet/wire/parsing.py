"""Frames to header fields and values, whole batches at once; what is no packet is named why."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.errors import PacketError
from innet.packets import PacketBatch
from innet.wire.layout import (
    ETHERNET_HEADER,
    ETHERTYPE,
    ETHERTYPE_IPV4,
    FRAGMENTED,
    HEADER,
    MAGIC,
    PROTOCOL_UDP,
    UDP_HEADER,
    UDP_PORT,
    VERSION,
    VERSION_IHL,
    WIDTH,
    Frames,
    Layout,
    Records,
    limits,
)
from innet.wire.packing import internet_checksum


class Refusal(enum.IntEnum):
    """Why bytes are not a packet of the layout: the first reason, from the outside in."""

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
    WIDTH = 15
    CHECKSUM = 16

    @property
    def label(self) -> str:
        """As it reads in a sentence: "slot version"."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Batch:
    """What ``parse`` found in n frames.

    Attributes:
        layout: by which they were read.
        frames: (n,) records of ``layout.dtype``, a view; rows that are not ``valid`` hold anything.
        reason: (n,) uint8, a Refusal each; Refusal.NONE where the frame is a packet of the layout.
    """

    layout: Layout
    frames: Records
    reason: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.reason)

    @property
    def valid(self) -> NDArray[np.bool_]:
        return np.asarray(self.reason == Refusal.NONE)

    @property
    def header(self) -> Records:
        """(n,) records of HEADER, big endian, a view."""
        header: Records = self.frames["innet"]
        return header

    @property
    def values(self) -> NDArray[np.int32]:
        """(n, V) int32 in the byte order of the host, a copy."""
        return np.asarray(self.frames["values"], np.int32)

    def refusals(self) -> dict[Refusal, int]:
        """How many frames were refused for which reason."""
        numbers = np.bincount(self.reason, minlength=len(Refusal))
        return {why: int(numbers[why]) for why in Refusal if why and numbers[why]}


class _Check(NamedTuple):
    """One condition on a frame whose length is right."""

    refusal: Refusal
    field: tuple[str, ...]
    expected: Callable[[Layout], str]
    holds: Callable[[Layout, Any], NDArray[np.bool_]]  # (layout, that field of all frames)
    whole: bool = False  # ``holds`` gets the frames instead


def _always(text: str) -> Callable[[Layout], str]:
    return lambda _: text


def _equals(refusal: Refusal, field: tuple[str, ...], wanted: int, text: str) -> _Check:
    return _Check(refusal, field, _always(text), lambda _, found: found == wanted)


def _between(refusal: Refusal, name: str) -> _Check:
    def expected(layout: Layout) -> str:
        low, high = limits(name, layout)
        return f"{low} .. {high}"

    def holds(layout: Layout, found: Any) -> NDArray[np.bool_]:
        low, high = limits(name, layout)
        inside: NDArray[np.bool_] = (found >= low) & (found <= high)
        return inside

    return _Check(refusal, ("innet", name), expected, holds)


def _right_checksum(_: Layout, headers: Records) -> NDArray[np.bool_]:
    if not len(headers):
        return np.zeros(0, np.bool_)
    right: NDArray[np.bool_] = internet_checksum(headers[:, None].view(np.uint8)) == 0
    return right


def _right_packet(layout: Layout, records: Records) -> NDArray[np.bool_]:
    if not len(records):
        return np.zeros(0, np.bool_)
    covered = records[:, None].view(np.uint8)[:, layout.header_offset :]
    right: NDArray[np.bool_] = internet_checksum(covered) == 0
    return right


_UDP_CHECKS = (
    _equals(Refusal.ETHERTYPE, ("ethernet", "ethertype"), ETHERTYPE_IPV4, "0x0800 (IPv4)"),
    _equals(
        Refusal.IP_VERSION, ("ipv4", "version_ihl"), VERSION_IHL, "0x45 (version 4, no options)"
    ),
    _Check(
        Refusal.IP_LENGTH,
        ("ipv4", "total_length"),
        lambda layout: str(layout.frame_size - ETHERNET_HEADER.itemsize),
        lambda layout, found: found == layout.frame_size - ETHERNET_HEADER.itemsize,
    ),
    _Check(
        Refusal.IP_FRAGMENT,
        ("ipv4", "fragment"),
        _always("no fragment"),
        lambda _, found: (found & FRAGMENTED) == 0,
    ),
    _equals(Refusal.IP_PROTOCOL, ("ipv4", "protocol"), PROTOCOL_UDP, "17 (UDP)"),
    _Check(Refusal.IP_CHECKSUM, ("ipv4",), _always("a right header checksum"), _right_checksum),
    _Check(
        Refusal.UDP_PORT,
        ("udp",),
        _always(f"source or destination port {UDP_PORT}"),
        lambda _, found: (found["source"] == UDP_PORT) | (found["destination"] == UDP_PORT),
    ),
    _Check(
        Refusal.UDP_LENGTH,
        ("udp", "length"),
        lambda layout: str(UDP_HEADER.itemsize + HEADER.itemsize + 4 * layout.values),
        lambda layout, found: found == UDP_HEADER.itemsize + HEADER.itemsize + 4 * layout.values,
    ),
)
_RAW_CHECKS = (
    _equals(Refusal.ETHERTYPE, ("ethernet", "ethertype"), ETHERTYPE, f"{ETHERTYPE:#06x} (innet)"),
)
_HEADER_CHECKS = (
    _equals(Refusal.MAGIC, ("innet", "magic"), MAGIC, f"{MAGIC:#06x}"),
    _equals(Refusal.VERSION, ("innet", "version"), VERSION, str(VERSION)),
    _between(Refusal.OPERATION, "operation"),
    _between(Refusal.SLOT_VERSION, "slot_version"),
    _between(Refusal.ELEMENTS, "elements"),
    _equals(Refusal.WIDTH, ("innet", "width"), WIDTH, str(WIDTH)),
    _Check(
        Refusal.CHECKSUM,
        ("innet", "checksum"),
        _always("what RFC 1071 makes of header and values"),
        _right_packet,
        whole=True,
    ),
)


def _checks(layout: Layout) -> tuple[_Check, ...]:
    outer = _UDP_CHECKS if layout.framing == "udp" else _RAW_CHECKS
    return outer + _HEADER_CHECKS


def _select(records: Records, path: tuple[str, ...]) -> Any:
    selected: Any = records
    for name in path:
        selected = selected[name]
    return selected


def _lengths(frames: Frames | PacketBatch) -> tuple[Frames, NDArray[np.int32]]:
    if isinstance(frames, PacketBatch):
        return frames.data, frames.length
    return frames, np.full(len(frames), frames.shape[1], np.int32)


def parse(layout: Layout, frames: Frames | PacketBatch) -> Batch:
    """Read ``frames`` by ``layout``; never raises over what they hold.

    The UDP checksum is not looked at: innet sends 0, an operating system's socket another one, and
    the innet checksum covers header and values under either framing.

    Args:
        layout: what the frames should be.
        frames: uint8 (n, bytes), rows that are all frame, or packets of any lengths.
    """
    data, length = _lengths(frames)
    right = length == layout.frame_size
    reason = np.where(right, np.uint8(Refusal.NONE), np.uint8(Refusal.LENGTH))
    if data.shape[1] < layout.frame_size:  # too narrow to look at, so none of them is right
        return Batch(layout, np.zeros(len(length), layout.dtype), reason)
    records = layout.view(data)
    for check in _checks(layout):
        holds = check.holds(layout, records if check.whole else _select(records, check.field))
        if not holds.all():
            reason[~holds & (reason == Refusal.NONE)] = check.refusal
    return Batch(layout, records, reason)


def parse_strict(layout: Layout, frames: Frames | PacketBatch | bytes) -> Batch:
    """As ``parse``, of frames that must all be packets of the layout; also of one, as bytes.

    Raises:
        PacketError: names the first that is not one, the field, what it holds and what it should.
    """
    if isinstance(frames, bytes):
        frames = np.frombuffer(frames, np.uint8)[None, :]
    batch = parse(layout, frames)
    if batch.valid.all():
        return batch
    row = int(np.argmin(batch.valid))
    _, length = _lengths(frames)
    if batch.reason[row] == Refusal.LENGTH:
        raise PacketError(
            f"packet {row}: length is {length[row]} bytes; expected {layout.frame_size} "
            f"({layout.values} values, framing {layout.framing!r})."
        )
    check = next(each for each in _checks(layout) if each.refusal == batch.reason[row])
    found = _select(batch.frames, check.field)[row]
    raise PacketError(
        f"packet {row}: {'.'.join(check.field)} is {_describe(found)}; "
        f"expected {check.expected(layout)}."
    )


def _describe(found: Any) -> str:
    if found.dtype.names is None:
        return f"{int(found)} ({int(found):#x})"
    return ", ".join(f"{name} {int(found[name])}" for name in found.dtype.names)

"""Where headers lie in packets, by a program's parser or as Ethernet, IPv4, UDP and TCP have them.

A parser decides by few fields. So packets that are equal in these, and equally long, have the same
headers, and the parser runs once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from innet.records.recording import HeaderLayout, LayoutField
from innet.switch import Switch, ir
from innet.switch.ir.tree import walk
from innet.switch.trace import MacAddress, notation

Layout = tuple[HeaderLayout, ...]

_MOST_KINDS = 2000  # for which the parser runs; further packets have no headers
_UNSURE = (ir.Lookahead, ir.StackLastField, ir.UnionStackLastField)

_ETHERNET = ("ethernet", (("destination", 48), ("source", 48), ("ethertype", 16)))
_VLAN = ("vlan", (("priority", 3), ("drop_eligible", 1), ("id", 12), ("ethertype", 16)))
_ARP = (
    "arp",
    (
        ("hardware", 16), ("protocol", 16), ("hardware_bytes", 8), ("protocol_bytes", 8),
        ("operation", 16), ("sender_mac", 48), ("sender", 32), ("target_mac", 48), ("target", 32),
    ),
)  # fmt: skip
_IPV4 = (
    "ipv4",
    (
        ("version", 4), ("ihl", 4), ("dscp", 6), ("ecn", 2), ("total_length", 16),
        ("identification", 16), ("flags", 3), ("fragment_offset", 13), ("ttl", 8), ("protocol", 8),
        ("checksum", 16), ("source", 32), ("destination", 32),
    ),
)  # fmt: skip
_UDP = (
    "udp",
    (("source_port", 16), ("destination_port", 16), ("length", 16), ("checksum", 16)),
)
_TCP = (
    "tcp",
    (
        ("source_port", 16), ("destination_port", 16), ("sequence", 32), ("acknowledgment", 32),
        ("data_offset", 4), ("reserved", 4), ("flags", 8), ("window", 16), ("checksum", 16),
        ("urgent", 16),
    ),
)  # fmt: skip


def layouts_of(
    program: ir.Program | None, frames: Sequence[bytes]
) -> tuple[list[Layout], NDArray[np.int64]]:
    """The headers of frames.

    Args:
        program: whose parser says what they are; None: Ethernet and what is usual in it.
        frames: bytes.

    Returns:
        The layouts, and which of them each frame has, -1 for none; shape (n,).
    """
    read = _plain if program is None else _reader(program)
    layouts: list[Layout] = []
    found = np.full(len(frames), -1, np.int64)
    lengths = np.array([len(frame) for frame in frames], np.int64)
    kinds = 0
    for length in np.unique(lengths).tolist():
        left = np.flatnonzero(lengths == length)
        data = np.frombuffer(b"".join(frames[row] for row in left.tolist()), np.uint8)
        data = data.reshape(len(left), length)
        while len(left) and kinds < _MOST_KINDS:
            layout, decisive = read(data[0].tobytes())
            same = (data[:, decisive] == data[0, decisive]).all(axis=1)
            if layout not in layouts:
                layouts.append(layout)
            found[left[same]] = layouts.index(layout)
            left, data = left[~same], data[~same]
            kinds += 1
    return layouts, found


_Reader = Callable[[bytes], tuple[Layout, NDArray[np.int64]]]


def _reader(program: ir.Program) -> _Reader:
    """A function that says the headers of a frame, and which of its bytes decided that."""
    switch = Switch(program, "interpret")
    types = {each.name: program.header_types[each.type] for each in program.headers}
    decisive: set[tuple[str, str]] = set()
    unsure = False
    for node in walk(program.parser.states):
        unsure |= isinstance(node, _UNSURE)
        if isinstance(node, ir.FieldRef) and node.field >= 0:
            header = program.headers[node.header]
            decisive.add((header.name, types[header.name].fields[node.field].name))

    def read(frame: bytes) -> tuple[Layout, NDArray[np.int64]]:
        layout: list[HeaderLayout] = []
        places: set[int] = set(range(len(frame))) if unsure else set()
        position = 0
        for event in switch.trace(0, frame):
            if event.kind == "state":
                position = max(position, int(event["position"]))
            elif event.kind == "extract":
                data = event["data"]
                position = frame.find(data, position)
                if position < 0:  # not as it came: bits that are no bytes
                    break
                header = types[event["header"]]
                rest = 8 * len(data) - header.width
                fields = []
                at = 8 * position
                for field in header.fields:
                    width = rest if field.variable else field.width
                    if (event["header"], field.name) in decisive:
                        places.update(range(at // 8, (at + width + 7) // 8))
                    fields.append(_field(event["header"], field.name, width))
                    at += width
                layout.append(
                    HeaderLayout(name=event["header"], offset=8 * position, fields=tuple(fields))
                )
                position += len(data)
            elif event.kind not in {"ingress", "select", "transition"}:
                break
        return tuple(layout), np.array(sorted(places), np.int64)

    return read


def _plain(frame: bytes) -> tuple[Layout, NDArray[np.int64]]:
    """Headers as the Internet has them."""
    layout: list[HeaderLayout] = []
    places: list[int] = []
    at = 0

    def take(header: tuple[str, tuple[tuple[str, int], ...]], *decisive: int) -> bool:
        """Add a header if the frame has all of it, and places in it that decide what follows."""
        nonlocal at
        name, fields = header
        size = sum(width for _, width in fields) // 8
        if len(frame) < at + size:
            return False
        described = tuple(_field(name, *field) for field in fields)
        layout.append(HeaderLayout(name=name, offset=8 * at, fields=described))
        places.extend(at + place for place in decisive)
        at += size
        return True

    def word(back: int) -> int:
        return int.from_bytes(frame[at - back : at - back + 2], "big")

    if take(_ETHERNET, 12, 13):
        while word(2) == 0x8100 and take(_VLAN, 2, 3):
            pass
        kind = word(2)
        if kind == 0x0806:
            take(_ARP)
        elif kind == 0x0800 and take(_IPV4, 0, 6, 7, 9):
            begun = at - 20
            at = begun + 4 * (frame[begun] & 15)
            if int.from_bytes(frame[begun + 6 : begun + 8], "big") & 0x1FFF == 0:
                protocol = frame[begun + 9]
                if protocol == 17:
                    take(_UDP)
                elif protocol == 6:
                    take(_TCP)
    return tuple(layout), np.array(sorted(places), np.int64)


def _field(header: str, name: str, width: int) -> LayoutField:
    """A field, and how to show it."""
    shown = "mac" if notation(name, width) is MacAddress else "number"
    if width == 32 and ("ip" in header.lower() or header == "arp") and "checksum" not in name:
        shown = "ipv4"
    return LayoutField.model_validate({"name": name, "width": width, "notation": shown})

"""Packing and parsing as ``innet.wire`` does, written to be read: NumPy, a field at a time."""

from __future__ import annotations

import numpy as np

from innet.wire import ETHERTYPE, MAGIC, VERSION, WITHOUT_VALUES, FrameRefusal
from innet.wire.layout import limits


def checksum(data):
    """RFC 1071 over rows of an even number of bytes; 0 where it is there and right."""
    total = data.view(">u2").astype(np.uint64).sum(axis=1)
    while (total >> 16).any():
        total = (total & 0xFFFF) + (total >> 16)
    return ~total.astype(np.uint16)


def packed(layout, outer, fields, values):
    """Frames with ``outer`` before the innet header and ``fields`` in it."""
    frames = np.zeros((len(values), layout.frame_size), np.uint8)
    frames[:, : layout.header_offset] = outer
    records = layout.view(frames)
    for name, numbers in fields.items():
        records["innet"][name] = numbers
    records["innet"]["magic"] = MAGIC
    records["innet"]["version"] = VERSION
    records["values"] = values
    records["innet"]["checksum"] = checksum(frames[:, layout.header_offset :].copy())
    return frames


def ended(layout, frames):
    """Whole frames as such that end with the header, if their operations say so."""
    frames = frames.copy()
    records = layout.view(frames)
    bare = layout.bare_size
    if layout.framing == "udp":
        records["ipv4"]["total_length"], records["udp"]["length"] = bare - 14, bare - 34
        records["ipv4"]["checksum"] = 0
        records["ipv4"]["checksum"] = checksum(frames[:, 14:34].copy())
    records["innet"]["checksum"] = 0
    records["innet"]["checksum"] = checksum(frames[:, layout.header_offset : bare].copy())
    return frames[:, :bare]


def one_of(found, *wanted):
    return np.any([found == each for each in wanted], axis=0)


def refusals(layout, data, length):
    """A FrameRefusal for each row: of the first check that does not hold."""
    whole, bare = length == layout.frame_size, layout.bare_size
    ends = (length == bare) & layout.has_owners
    right = whole | ends
    frames = np.zeros((len(data), layout.frame_size), np.uint8)
    frames[whole] = data[whole, : layout.frame_size]
    frames[ends, :bare] = data[ends, :bare]
    size = np.where(ends, bare, layout.frame_size)
    records = layout.view(frames)
    checks = [(FrameRefusal.LENGTH, right)]
    if layout.framing == "udp":
        ip, udp = records["ipv4"], records["udp"]
        ports = (udp["source"] == 48879) | (udp["destination"] == 48879)
        checks += [
            (FrameRefusal.ETHERTYPE, records["ethernet"]["ethertype"] == 0x0800),
            (FrameRefusal.IP_VERSION, ip["version_ihl"] == 0x45),
            (FrameRefusal.IP_LENGTH, one_of(ip["total_length"], size - 14, layout.frame_size - 14)),
            (FrameRefusal.IP_FRAGMENT, (ip["fragment"] & 0x3FFF) == 0),
            (FrameRefusal.IP_PROTOCOL, ip["protocol"] == 17),
            (FrameRefusal.IP_CHECKSUM, checksum(frames[:, 14:34].copy()) == 0),
            (FrameRefusal.UDP_PORT, ports),
            (FrameRefusal.UDP_LENGTH, one_of(udp["length"], size - 34, layout.frame_size - 34)),
        ]
    else:
        checks += [(FrameRefusal.ETHERTYPE, records["ethernet"]["ethertype"] == ETHERTYPE)]
    header = records["innet"]
    checks += [(FrameRefusal.MAGIC, header["magic"] == MAGIC)]
    checks += [(FrameRefusal.VERSION, header["version"] == VERSION)]
    for refusal, name in (
        (FrameRefusal.OPERATION, "operation"),
        (FrameRefusal.SLOT_VERSION, "slot_version"),
        (FrameRefusal.ELEMENTS, "elements"),
    ):
        low, high = limits(name, layout)
        found = header[name]
        if layout.has_owners and name == "operation":
            found = found % WITHOUT_VALUES
        checks += [(refusal, (found >= low) & (found <= high))]
    # Zeros behind a frame that ends with the header add nothing.
    sums = checksum(frames[:, layout.header_offset :].copy()) == 0
    checks += [(FrameRefusal.CHECKSUM, sums)]
    reason = np.zeros(len(data), np.uint8)
    for refusal, holds in checks:
        reason[~holds & (reason == 0)] = refusal
    return reason

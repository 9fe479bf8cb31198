"""Header fields and values to frames, whole batches at once.

Sources: IPv4 identification 0 with DF set (RFC 6864 section 4.1), Internet checksum (RFC 1071), UDP
checksum 0 for "none" (RFC 768), because the innet checksum covers header and values.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.wire.layout import (
    CLASS_SELECTOR,
    DONT_FRAGMENT,
    ECN_CAPABLE,
    ETHERNET_HEADER,
    ETHERTYPE,
    ETHERTYPE_IPV4,
    HEADER,
    MAGIC,
    PROTOCOL_UDP,
    UDP_HEADER,
    VERSION,
    VERSION_IHL,
    Endpoint,
    Field,
    Frames,
    PacketLayout,
    limits,
)


def internet_checksum(headers: Frames) -> NDArray[np.uint16]:
    """RFC 1071 over each row of ``headers`` (uint8, (n, an even number of bytes, below 128 KiB)).

    Returns:
        (n,) in host order: the value of the checksum field, if that field is 0 in ``headers``;
        0 if the field is set and right.
    """
    # Native 16-bit words: the ones' complement sum is the same in both byte orders, byte-swapped.
    total = headers.view(np.uint16).sum(axis=1, dtype=np.uint32)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    # Stored as native, read as big endian: this swaps bytes on a little-endian host only.
    return np.asarray((~total).astype(np.uint16).view(">u2"), np.uint16)


def ready() -> Any:
    """The compiled functions that pack and parse packets; the first call takes a while."""
    # Imported on first use, since importing Numba takes longer than most commands.
    return importlib.import_module("innet.wire.compiled")


@lru_cache(maxsize=1024)
def _outer(
    layout: PacketLayout, source: Endpoint, destination: Endpoint, listens: bool, priority: int
) -> Frames:
    """The headers before the innet header; a shared array, which callers only read."""
    frame = np.zeros((1, layout.frame_size), np.uint8)
    record = layout.view(frame)
    ethernet = record["ethernet"]
    ethernet["destination"] = np.frombuffer(destination.mac_bytes, np.uint8)
    ethernet["source"] = np.frombuffer(source.mac_bytes, np.uint8)
    ethernet["ethertype"] = ETHERTYPE_IPV4 if layout.framing == "udp" else ETHERTYPE
    if layout.framing == "udp":
        ipv4 = record["ipv4"]
        ipv4["version_ihl"] = VERSION_IHL
        ipv4["tos"] = priority << CLASS_SELECTOR | (ECN_CAPABLE if listens else 0)
        ipv4["total_length"] = layout.frame_size - ETHERNET_HEADER.itemsize
        ipv4["fragment"] = DONT_FRAGMENT
        ipv4["ttl"] = 64
        ipv4["protocol"] = PROTOCOL_UDP
        ipv4["source"] = source.ip_number
        ipv4["destination"] = destination.ip_number
        ipv4["checksum"] = internet_checksum(ipv4.view(np.uint8)[None, :])
        udp = record["udp"]
        udp["source"] = source.udp_port
        udp["destination"] = destination.udp_port
        udp["length"] = UDP_HEADER.itemsize + HEADER.itemsize + 4 * layout.values
    return frame[0, : layout.header_offset]


def seal(layout: PacketLayout, frames: Frames) -> None:
    """Set the innet checksum of ``frames`` (uint8, (n, at least layout.frame_size)), in place."""
    layout.view(frames)["innet"]["checksum"] = 0
    covered = frames[:, layout.header_offset : layout.frame_size]
    layout.view(frames)["innet"]["checksum"] = internet_checksum(covered)


def pack(
    layout: PacketLayout,
    source: Endpoint,
    destination: Endpoint,
    values: NDArray[np.int32],
    *,
    operation: Field,
    job: Field,
    epoch: Field,
    sequence: Field,
    slot: Field,
    slot_version: Field,
    worker: Field,
    elements: Field | None = None,
    flags: Field = 0,
    bitmap: Field = 0,
    count: Field = 0,
    exponent: Field = 0,
    message: Field = 0,
    listens: bool = False,
    priority: int = 0,
) -> Frames:
    """Frames from ``source`` to ``destination``.

    Magic, version and checksum are set here. Every other header field is one number for all
    frames or an array (n,), with its name in HEADER.

    Args:
        layout: of the frames.
        source: the sender's addresses.
        destination: the receiver's addresses.
        values: int32, (n, layout.values).
        operation: an innet.core.reduce_op.ReduceOp.
        job: the job's number.
        epoch: the job's epoch.
        sequence: chunk number, modulo 2**32.
        slot: within the job's slots.
        slot_version: 0 or 1.
        worker: index of the sender; in a result, of the addressee.
        elements: how many values are used, 1 .. layout.elements; by default all.
        flags: a HeaderFlag.
        bitmap: of a result: the workers or switches of the sender in it.
        count: of a sum or a result: how many workers are in it.
        exponent: combined by MAX.
        message: tag of the all-reduce, the same for all its workers.
        listens: set ECT(0) in the IPv4 header: the sender reacts to congestion marks (RFC 3168).
        priority: 0 to 7, the class selector in the IPv4 header's DSCP (RFC 2474), by which programs
            choose egress queues. Raw Ethernet has none.

    Returns:
        uint8, (n, layout.frame_size).

    Raises:
        InputError: values of another shape or dtype, or a field that is out of range or that no
            receiver accepts.
    """
    if values.ndim != 2 or values.shape[1] != layout.values or values.dtype != np.int32:
        raise InputError(
            f"values are {values.dtype} of shape {values.shape}; "
            f"expected int32 of shape (n, {layout.values})."
        )
    fields: dict[str, Field] = {
        "operation": operation,
        "job": job,
        "epoch": epoch,
        "sequence": sequence,
        "slot": slot,
        "slot_version": slot_version,
        "flags": flags,
        "bitmap": bitmap,
        "worker": worker,
        "count": count,
        "elements": layout.elements if elements is None else elements,
        "exponent": exponent,
        "message": message,
    }
    # Step 1: the headers. A field out of its limits would be refused by whoever parses the frame.
    header = np.zeros(len(values), HEADER)
    header["magic"], header["version"] = MAGIC, VERSION
    for name, field in fields.items():
        low, high = limits(name, layout)
        _require(name, field, low, high)
        header[name] = field
    # Step 2: outer headers, header and values side by side in each frame, and the checksum
    # (RFC 1071) over the last two, in one pass of compiled code.
    frames = np.empty((len(values), layout.frame_size), np.uint8)
    ready().fill(
        frames,
        _outer(layout, source, destination, listens, priority),
        header.view(np.uint8).reshape(-1, HEADER.itemsize),
        np.require(values, requirements=["C", "A", "W"]),
    )
    return frames


def _require(name: str, field: Field, low: int, high: int) -> None:
    if isinstance(field, int):
        smallest = largest = field
    elif field.size == 0:
        return
    else:
        kind = np.iinfo(field.dtype)
        if low <= kind.min and kind.max <= high:
            return  # guaranteed by the dtype
        smallest, largest = int(field.min()), int(field.max())
    if smallest < low or largest > high:
        wrong = smallest if smallest < low else largest
        raise InputError(f"header field {name} cannot be {wrong}; it is in {low} .. {high}.")

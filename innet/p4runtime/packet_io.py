"""Packets to and from controllers: their metadata are a header of the packet at the CPU port.

Source: P4Runtime 1.5, sections "ControllerPacketMetadata" and "Packet I/O".
"""

from __future__ import annotations

from typing import Any

from innet.p4runtime.messages import p4
from innet.p4runtime.p4info import HeaderInfo, P4Index
from innet.p4runtime.status import Code, StatusError, invalid

_LONGEST_PACKET = 10_000  # bytes with the controller's header


def _header(index: P4Index, name: str, code: Code) -> HeaderInfo | None:
    header = index.headers.get(name)
    if header is not None and header.unknown:
        raise StatusError(code, header.unknown)
    return header


def packet_out(index: P4Index, message: Any) -> bytes:
    """The packet of a PacketOut, as it enters the switch at the CPU port.

    Raises:
        StatusError: metadata that P4Info does not describe so; a packet that is too long.
    """
    header = _header(index, "packet_out", Code.INVALID_ARGUMENT)
    if header is None:
        if message.metadata:
            raise invalid("P4Info has no header packet_out, so packets have no metadata")
        front = b""
    else:
        given: dict[int, bytes] = {}
        for each in message.metadata:
            if each.metadata_id in given:
                raise invalid(f"metadata {each.metadata_id} is given twice")
            given[each.metadata_id] = each.value
        number = 0
        for metadata_id, name, width, codec in header.fields:
            if metadata_id not in given:
                raise invalid(f"metadata {name} (id {metadata_id}) of packet_out is missing")
            value = codec.decode(given.pop(metadata_id), f"metadata {name} of packet_out")
            number = number << width | value
        if given:
            raise invalid(f"packet_out has no metadata with id {min(given)}")
        front = (number << header.padding).to_bytes(header.length, "big")
    if len(front) + len(message.payload) > _LONGEST_PACKET:
        raise invalid(f"a packet has at most {_LONGEST_PACKET} bytes with its metadata")
    return front + bytes(message.payload)


def packet_in(index: P4Index, data: bytes) -> Any:
    """The PacketIn of a packet that left at the CPU port.

    Raises:
        StatusError: INTERNAL, it is shorter than the header that P4Info describes, or the program
            has no such header.
    """
    header = _header(index, "packet_in", Code.INTERNAL)
    message = p4.PacketIn()
    if header is None:
        message.payload = data
        return message
    if len(data) < header.length:
        raise StatusError(
            Code.INTERNAL,
            f"a packet of {len(data)} bytes left at the CPU port without the header packet_in",
        )
    number = int.from_bytes(data[: header.length], "big")
    number >>= header.padding
    left = 8 * header.length - header.padding
    for metadata_id, _, width, codec in header.fields:
        left -= width
        value = number >> left & ((1 << width) - 1)
        message.metadata.add(metadata_id=metadata_id, value=codec.encode(value))
    message.payload = data[header.length :]
    return message

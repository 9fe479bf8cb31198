"""A worker of the lab: sums its vector with those of the others, by the switch.

README.md has the protocol. Complete what TODO says.
"""

from __future__ import annotations

import struct

VALUES = 4  # of a chunk
SLOTS = 8
TYPE_CHUNK = 0x88B5  # of Ethernet, level 1
CHUNK_PORT = 4242  # of UDP, levels 2 and 3
SWITCH_MAC, SWITCH_IP = "02:00:00:00:00:fe", "10.0.0.254"
TIMEOUT = 100e-6  # seconds after which a chunk is sent again, level 3


def pack(worker: int, version: int, slot: int, offset: int, values: list[int]) -> bytes:
    """A chunk as it is in a packet: its header and its values, 24 bytes."""
    raise NotImplementedError("TODO, level 1: pack")


def unpack(payload: bytes) -> tuple[int, int, list[int]]:
    """Slot, offset and values of a result."""
    raise NotImplementedError("TODO, level 1: unpack")


class Ethernet:
    """Level 1: chunks in Ethernet frames. Given."""

    def __init__(self, host) -> None:
        self._host = host
        addresses = bytes.fromhex((SWITCH_MAC + host.mac).replace(":", ""))
        self._header = addresses + struct.pack(">H", TYPE_CHUNK)

    def send(self, payload: bytes) -> None:
        self._host.send(self._header + payload)

    async def receive(self, timeout: float | None = None) -> bytes | None:
        """The next payload; None if nothing comes in this many seconds."""
        frame = await self._host.receive(timeout)
        return None if frame is None else frame[14:]


class Udp:
    """Levels 2 and 3: chunks in UDP datagrams, from CHUNK_PORT to the switch's CHUNK_PORT."""

    def __init__(self, host) -> None:
        raise NotImplementedError("TODO, level 2: host.udp(port) opens a socket")

    def send(self, payload: bytes) -> None:
        raise NotImplementedError("TODO, level 2: socket.send(payload, address, port, mac=...)")

    async def receive(self, timeout: float | None = None) -> bytes | None:
        """The next payload; None if nothing comes in this many seconds."""
        raise NotImplementedError("TODO, level 2: await socket.receive(timeout) has a .payload")


async def sum_vector(host, number: int, vector: list[int], level: int) -> list[int]:
    """Sum a vector with those of the other workers.

    Args:
        host: where it runs. host.now is the time in seconds.
        number: of this worker, from 0 on.
        vector: as many elements as those of the others, a multiple of VALUES.
        level: 1, 2 or 3.

    Returns:
        The sum: as many elements.
    """
    link = Ethernet(host) if level == 1 else Udp(host)
    raise NotImplementedError("TODO, level 1: send chunks by link, and await their results")

"""A complete worker of `innet lab`, and wrong ones; README.md beside it says which is which."""

from __future__ import annotations

import struct

VALUES = 4
SLOTS = 8
TYPE_CHUNK = 0x88B5
CHUNK_PORT = 4242
SWITCH_MAC, SWITCH_IP = "02:00:00:00:00:fe", "10.0.0.254"
TIMEOUT = 100e-6

MISTAKE = ""  # "order", "deaf", "version", "offset" or "window"


def pack(worker, version, slot, offset, values):
    if MISTAKE == "order":
        return struct.pack("<BBHI4i", worker, version, slot, offset, *values)
    return struct.pack(">BBHI4i", worker, version, slot, offset, *values)


def unpack(payload):
    _, _, slot, offset, *values = struct.unpack(">BBHI4i", payload)
    return slot, offset, values


class Ethernet:
    def __init__(self, host):
        self._host = host
        addresses = bytes.fromhex((SWITCH_MAC + host.mac).replace(":", ""))
        self._header = addresses + struct.pack(">H", TYPE_CHUNK)

    def send(self, payload):
        self._host.send(self._header + payload)

    async def receive(self, timeout=None):
        frame = await self._host.receive(timeout)
        return None if frame is None else frame[14:]


class Udp:
    def __init__(self, host):
        self._socket = host.udp(CHUNK_PORT)

    def send(self, payload):
        self._socket.send(payload, SWITCH_IP, CHUNK_PORT, mac=SWITCH_MAC)

    async def receive(self, timeout=None):
        datagram = await self._socket.receive(timeout)
        return None if datagram is None else datagram.payload


async def sum_vector(host, number, vector, level):
    link = Ethernet(host) if level == 1 else Udp(host)
    chunks = len(vector) // VALUES
    total = [0] * len(vector)
    waiting = {}  # by slot: the chunk

    def send(chunk, again=False):
        slot, version = chunk % SLOTS, chunk // SLOTS % 2
        if again and MISTAKE == "version":
            version = 1 - version
        values = vector[chunk * VALUES : (chunk + 1) * VALUES]
        link.send(pack(number, version, slot, chunk * VALUES, values))
        waiting[slot] = chunk

    for chunk in range(min(chunks, SLOTS + (MISTAKE == "window"))):
        send(chunk)
    while waiting:
        payload = await link.receive(None if MISTAKE == "deaf" else TIMEOUT)
        if payload is None:
            for chunk in list(waiting.values()):
                send(chunk, again=True)
            continue
        slot, offset, values = unpack(payload)
        if slot not in waiting:
            continue
        chunk = waiting[slot]
        if offset != chunk * VALUES and MISTAKE != "offset":
            continue  # a result that came late or twice
        total[chunk * VALUES : (chunk + 1) * VALUES] = values
        del waiting[slot]
        if chunk + SLOTS < chunks:
            send(chunk + SLOTS)
    return total

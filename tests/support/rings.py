"""A worker's end of rings in shared memory, and a switch at the other end that a test plays."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time

import numpy as np

from innet.transport import job_memory
from innet.transport.messages import readable
from innet.transport.peers import RingPeers
from innet.transport.rings import (
    Geometry,
    create_sealed,
    fall_asleep,
    put_into_rings,
    take_from_rings,
    wake_up,
)
from innet.transport.shared_memory import RingSession, RingTransport
from innet.wire import Endpoint


class RingSwitch:
    """Receives and sends packets of one worker as a socket would."""

    def __init__(self, rings: RingPeers, layout, outer: int) -> None:
        self.rings = rings
        self._packet = layout.frame_size - outer
        self._words = np.zeros(8, np.int64)
        self._seconds = 0.0

    def settimeout(self, seconds: float) -> None:
        self._seconds = seconds

    def send(self, packet: bytes) -> None:
        data = np.frombuffer(packet, np.uint8)[None].copy()
        one = np.array([data.shape[1]], np.int32)
        rings = self.rings.compiled()
        found, lost = put_into_rings(
            *(data, one, np.zeros(1, np.int32), 0, rings, self.rings.links(1), self._words)
        )
        assert (found, lost) == (1, 0)

    def recv(self, most: int) -> bytes:
        until = time.monotonic() + self._seconds
        rings = self.rings.compiled()
        data = np.zeros((1, self._packet), np.uint8)
        packets = np.zeros(1, np.int32), np.zeros(1, np.int32)
        sizes = self._packet, self._packet, 0
        while True:
            rows, *_ = take_from_rings(rings, data, packets, sizes, 1, self._words)
            if rows:
                return data[0, :most].tobytes()
            if time.monotonic() >= until:
                raise BlockingIOError
            found = []
            if fall_asleep(rings):
                found = readable(until - time.monotonic(), rings.bell)
            wake_up(rings, bool(found), self._words)


@contextlib.contextmanager
def ring_link(layout, me: Endpoint, switch: Endpoint, window: int = 8):
    """A worker's transport, and the switch at the other end."""
    name, rings = f"innet-test-{secrets.token_hex(8)}", RingPeers(2)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hello,
        contextlib.closing(rings),
    ):
        hello.bind(f"\0{name}")
        rings.bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        rings.bell.bind(f"\0{name}-bell")
        session = RingSession(name)
        session.show(b"hello")
        _, sender = hello.recvfrom(64)
        geometry = Geometry.of(layout, window)
        peer = rings.open(geometry)
        shared = create_sealed(job_memory.SIZE)
        try:
            peer.send(hello, sender, geometry, shared)
        finally:
            os.close(shared)
        assert session.accept()
        rings.assign(0, peer)
        with contextlib.closing(RingTransport(me, switch, layout, session)) as transport:
            yield transport, RingSwitch(rings, layout, transport.ring.outer)

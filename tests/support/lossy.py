"""A way to a switch service that loses packets: a relay at an address of its own."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket

from support.repeating import Repeating

_LONGEST = 1 << 16


class LossyRelay(Repeating):
    """Passes control and datagrams on, both ways, while the context is open.

    Args:
        service: (ip, port) of the service.
        loss: the share of frames that are lost, of each way. Datagrams with which workers show
            their address are not.
        seed: which of them.

    Attributes:
        dropped: how many frames were lost.
    """

    def __init__(self, service: tuple[str, int], loss: float, seed: int) -> None:
        super().__init__()
        self.dropped = 0
        self._service = service
        self._loss = loss
        self._dice = random.Random(seed)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._front.bind(self.address)
        self._behind: dict[tuple[str, int], socket.socket] = {}  # a socket for each worker's
        self._watch(self._listener, self._accept)
        self._watch(self._front, self._from_workers)

    def close(self):
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()

    def step(self):
        for key, _ in self._selector.select(0.05):
            with contextlib.suppress(OSError, KeyError):  # one of two that end together
                key.data()

    def _watch(self, sock, what):
        self._selector.register(sock, selectors.EVENT_READ, what)

    def _accept(self):
        here, _ = self._listener.accept()
        there = socket.create_connection(self._service)
        self._watch(here, lambda: self._pass(here, there))
        self._watch(there, lambda: self._pass(there, here))

    def _pass(self, source, target):
        if said := source.recv(_LONGEST):
            target.sendall(said)
            return
        for each in (source, target):
            self._selector.unregister(each)
            each.close()

    def _from_workers(self):
        datagram, worker = self._front.recvfrom(_LONGEST)
        behind = self._behind.get(worker)
        if behind is None:
            behind = self._behind[worker] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            behind.connect(self._service)
            self._watch(behind, lambda: self._to_worker(behind, worker))
        if datagram.startswith(b"INnetHI") or not self._lost():
            behind.send(datagram)

    def _to_worker(self, behind, worker):
        datagram = behind.recv(_LONGEST)
        if not self._lost():
            self._front.sendto(datagram, worker)

    def _lost(self):
        lost = self._dice.random() < self._loss
        self.dropped += lost
        return lost

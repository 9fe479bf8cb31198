"""One UDP socket and many peers: each address that was admitted is a port of a switch."""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.errors import InputError
from innet.fabric.messages import ADDRESS, Inbox, Outbox, widen_buffers
from innet.packets import PacketBatch
from innet.wire import ETHERNET_HEADER, ETHERTYPE, HEADER, Layout

_PORTS = 512  # that a v1model switch can have
_ROWS = 4096  # datagrams of one batch
_HEADER = ETHERNET_HEADER.itemsize
_SO_MEMINFO = 55  # of Linux: nine counts of a socket, of which the last is what it has dropped
_MEMINFO = struct.Struct("9I")


class Address(NamedTuple):
    """Where datagrams come from: an IPv4 address as text, and a UDP port."""

    ip: str
    udp_port: int


class Stray(NamedTuple):
    """A datagram that is none of a peer's."""

    sender: Address
    data: bytes


@dataclass(slots=True)
class PeerCounts:
    """What became of datagrams so far.

    Attributes:
        received: all that came.
        strangers: frames of senders that were not admitted.
        misfits: datagrams of a length that no frame has.
        greetings: those among them that whoever read ``strays`` could use.
    """

    received: int = 0
    strangers: int = 0
    misfits: int = 0
    greetings: int = 0


class PeerPorts:
    """The ports of a switch whose cables are UDP: a port for every admitted address.

    A datagram holds what follows the UDP header of a frame. To the switch it is shown behind an
    Ethernet header (framing "raw"), which costs a program less than addresses that nobody reads.

    Args:
        sock: a bound UDP socket; it is closed with this.
        layout: of the frames, with framing "raw".

    Attributes:
        counts: what became of datagrams.
        strays: datagrams of another length than frames, from anybody, at most ``stray_limit`` of
            a batch; whoever reads them takes them out.
    """

    stray_limit = 64
    stray_bytes = 64

    def __init__(self, sock: socket.socket, layout: Layout) -> None:
        if layout.framing != "raw":
            raise InputError(f"ports of peers carry frames of framing 'raw', not {layout.framing}.")
        widen_buffers(sock)
        sock.setblocking(False)
        self.counts = PeerCounts()
        self.strays: list[Stray] = []
        self._socket = sock
        self._size = layout.frame_size
        # A byte more than a frame, so that a longer datagram is seen to be longer.
        self._inbox = Inbox(_ROWS, stride=self._size + 8, offset=_HEADER, senders=True)
        header = np.zeros(1, ETHERNET_HEADER)
        header["ethertype"] = ETHERTYPE
        self._inbox.data[:, :_HEADER] = header.view(np.uint8)
        self._outbox = Outbox(forgiving=True)
        self._peers = np.zeros(_PORTS, ADDRESS)
        self._known: dict[int, int] = {}  # address as a number -> port
        self._keys = np.empty(0, np.uint64)  # the same, sorted
        self._ports = np.empty(0, np.int32)
        assert layout.values_offset == _HEADER + HEADER.itemsize

    def fileno(self) -> int:
        """Readable when a datagram has arrived."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def lost(self) -> int:
        """Datagrams that came faster than they were taken, and had no room to wait."""
        said = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        return int(_MEMINFO.unpack(said)[-1])

    @property
    def dropped(self) -> int:
        """Datagrams that could not be sent."""
        return self._outbox.dropped

    def admit(self, port: int, address: Address) -> None:
        """From now on ``port`` is where ``address`` is, and no longer who was there.

        Raises:
            InputError: no such port, or the address is at another one.
        """
        if not 0 <= port < _PORTS - 1:
            raise InputError(f"port {port} is not in 0 .. {_PORTS - 2}.")
        key = _key(address)
        if self._known.get(key, port) != port:
            raise InputError(
                f"{address.ip}, UDP port {address.udp_port}, is at port {self._known[key]} already."
            )
        self.dismiss(port)
        self._known[key] = port
        self._peers[port] = (
            socket.AF_INET,
            address.udp_port,
            int(ipaddress.IPv4Address(address.ip)),
            0,
        )
        self._sort()

    def dismiss(self, port: int) -> None:
        """Nobody is at ``port`` any more."""
        self._known = {key: at for key, at in self._known.items() if at != port}
        self._peers[port] = np.zeros((), ADDRESS)
        self._sort()

    def _sort(self) -> None:
        keys = np.array(list(self._known), np.uint64)
        order = np.argsort(keys)
        self._keys = keys[order]
        self._ports = np.array(list(self._known.values()), np.int32)[order]

    def receive(self) -> PacketBatch:
        """Frames of peers that have arrived, without waiting; valid until the next call."""
        count = 0
        lengths: list[NDArray[np.int32]] = []
        while len(length := self._inbox.receive(self._socket, count)):
            lengths.append(length)
            count += len(length)
        if not count:
            return PacketBatch.empty()
        self.counts.received += count
        length = np.concatenate(lengths) + np.int32(_HEADER)
        fits = length == self._size
        ports, known = self._ports_of(self._inbox.senders[:count])
        if not fits.all():
            self.counts.misfits += int(np.count_nonzero(~fits))
            self._keep_strays(np.flatnonzero(~fits), length)
        batch = PacketBatch(self._inbox.data[:count, : self._size], length, ports)
        whole = fits & known
        self.counts.strangers += int(np.count_nonzero(fits & ~known))
        return batch if whole.all() else batch.take(whole)

    def send(self, packets: PacketBatch) -> None:
        """Send each packet to whoever is at its port; to nobody, it is lost."""
        there = self._peers["family"][packets.port] != 0
        rows = None if there.all() else np.flatnonzero(there)
        self._outbox.send(self._socket, packets, _HEADER, rows, self._peers)

    def _ports_of(self, senders: NDArray[np.void]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """The port of each sender, and whether it has one."""
        if not len(self._keys):
            return np.zeros(len(senders), np.int32), np.zeros(len(senders), np.bool_)
        keys = senders["ip"].astype(np.uint64) << np.uint64(16) | senders["port"]
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return self._ports[at], self._keys[at] == keys

    def _keep_strays(self, rows: NDArray[np.int64], length: NDArray[np.int32]) -> None:
        room = self.stray_limit - len(self.strays)
        for row in rows[: max(0, room)].tolist():
            sender = self._inbox.senders[row]
            end = min(int(length[row]), _HEADER + self.stray_bytes)
            address = Address(str(ipaddress.IPv4Address(int(sender["ip"]))), int(sender["port"]))
            self.strays.append(Stray(address, self._inbox.data[row, _HEADER:end].tobytes()))


def _key(address: Address) -> int:
    return int(ipaddress.IPv4Address(address.ip)) << 16 | address.udp_port

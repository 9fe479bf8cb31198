"""The switch's end of UDP and of shared memory: one socket for many peers, and rings.

Each admitted address, or pair of rings, is a switch port.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, StalledError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.transport.messages import (
    Addresses,
    Outbox,
    SegmentInbox,
    allow_fragmentation,
    enable_gro,
)
from innet.transport.packet_socket import widen_buffers
from innet.transport.rings import (
    BASE,
    BELL,
    LINE_WORDS,
    PORT,
    PORT_IN_ROW,
    ROWS,
    STOPS,
    STRIDE,
    WAKER,
    Geometry,
    Lanes,
    RingError,
    SwitchRings,
    create_sealed,
    hand_over,
    map_sealed,
    put_into_rings,
    send_descriptors,
    take_from_rings,
)
from innet.transport.system_calls import (
    ADDRESS_BYTES,
    Arrival,
    Reception,
    SenderTable,
    Transmission,
    by_port,
    filter_senders,
    find_slot,
)
from innet.wire import ETHERNET_HEADER, ETHERTYPE, HEADER, PacketLayout

_ROWS = 2048  # most packets of a batch
_BATCH = 1 << 20  # most bytes of a batch; they stay in the CPU cache until they are summed and sent
_NAME = np.dtype(  # struct sockaddr_in
    [("family", "u2"), ("port", ">u2"), ("ip", ">u4"), ("zero", "u8")]
)
# Linux charges each waiting datagram to the buffer: data, headers and bookkeeping, rounded up to a
# power of two, plus a descriptor. Datagrams of one call may wait as one, and then cost less.
_BOOKKEEPING = 384
_DESCRIPTION = 256
_HEADER = ETHERNET_HEADER.itemsize
_HANDED = 4096  # packets on their way from the socket to another lane, a power of two
_SO_MEMINFO = 55  # Linux: nine counters of a socket; the last counts dropped datagrams
_MEMINFO = struct.Struct("9I")


Peer: TypeAlias = Hashable
"""Where a worker's frames come from and go to: an ``Address``, a ``RingPeer``, or what another
transport names so. Its text is shown in statistics."""


class Address(NamedTuple):
    """The sender of datagrams: an IPv4 address as text, and a UDP port."""

    ip: str
    udp_port: int

    def __str__(self) -> str:
        return f"{self.ip}:{self.udp_port}"


class RingPeer:
    """A worker on this machine, and the memory that it shares with the switch.

    Attributes:
        number: its row in the table of rings.
        memory: what it shares with the switch, bytes.
    """

    def __init__(self, number: int, geometry: Geometry) -> None:
        self.number = number
        self._descriptor = create_sealed(geometry.size)
        try:
            self.memory = map_sealed(self._descriptor, geometry.size, "of rings")
            self._waker, self._woken = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError as error:
            os.close(self._descriptor)
            raise RingError(f"no sockets: {error.strerror}") from None
        except BaseException:
            os.close(self._descriptor)
            raise
        self._is_sent = False

    def __str__(self) -> str:
        return f"shm:{self.number}"

    @property
    def waker(self) -> int:
        """The socket that wakes the worker."""
        return self._waker.fileno()

    def send(
        self, sock: socket.socket, to: str | bytes, geometry: Geometry, job_memory: int
    ) -> None:
        """Send the worker what it needs, with the memory of its job, unless that was done."""
        if not self._is_sent:
            text = " ".join(map(str, geometry)).encode()
            descriptors = [self._descriptor, self._woken.fileno(), job_memory]
            if send_descriptors(sock, to, text, descriptors):
                self._is_sent = True
                os.close(self._descriptor)
                self._woken.close()

    def close(self) -> None:
        """Close the sockets; the memory goes with the last array over it."""
        self._waker.close()
        if not self._is_sent:
            self._is_sent = True
            os.close(self._descriptor)
            self._woken.close()


class RingPeers:
    """The rings of all workers that share memory with a switch.

    Args:
        ports: of the switch.

    Attributes:
        bell: the socket at which workers wake the switch; None while there are none.
        dropped: packets that a ring had no room for.
        missed: packets on their way to another lane that there was no room for.
    """

    def __init__(self, ports: int) -> None:
        self._table = np.zeros((0, LINE_WORDS), np.int64)
        self._of_port = np.full(ports, -1, np.int64)
        self._peers: list[RingPeer | None] = []
        self.bell: socket.socket | None = None
        self.dropped = self.missed = 0
        # Of each lane: how far it has read, and which pair is its next. The first lane's bell is
        # that of the workers.
        self._read = np.zeros((1, LINE_WORDS), np.int64)
        self._turns = np.zeros((1, LINE_WORDS), np.int64)
        self._lanes = Lanes(0, 1, (0, 0, 0), np.zeros((2, LINE_WORDS), np.int64))
        self._bells: list[tuple[socket.socket, socket.socket]] = []
        self._handing: NDArray[np.uint8] | None = None

    def open_lanes(self, count: int, key: tuple[int, int, int], packet: int) -> None:
        """Let ``count`` lanes take packets; before there is any ring.

        Args:
            count: 2 or more.
            key: see ``Lanes``.
            packet: bytes of a packet, from the innet header on.
        """
        words = np.zeros((count + 1, LINE_WORDS), np.int64)
        for lane in range(1, count):
            pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            for end in pair:
                end.setblocking(False)
            self._bells.append(pair)
            words[lane + 1, WAKER] = pair[0].fileno()
        self._lanes = Lanes(0, count, key, words)
        self._read = np.zeros((count, LINE_WORDS), np.int64)
        self._turns = np.zeros((count, LINE_WORDS), np.int64)
        # The first row is the ring of what comes over the socket and is another lane's.
        geometry = Geometry(_HANDED, packet)
        memory = np.zeros(geometry.size + 8 * LINE_WORDS, np.uint8)
        memory = self._handing = memory[-memory.ctypes.data % (8 * LINE_WORDS) :]
        self._peers.append(None)
        self._table = np.zeros((1, LINE_WORDS), np.int64)
        row = self._table[0]
        row[BASE], row[PORT] = memory.ctypes.data, PORT_IN_ROW
        row[BELL], row[ROWS], row[STRIDE] = -1, geometry.rows, geometry.stride

    def stop_lanes(self, stop: bool) -> None:
        """Let all lanes but the first stop, or not."""
        self._lanes.words[0, STOPS] = int(stop)
        for waker, _ in self._bells if stop else ():
            with contextlib.suppress(OSError):  # it is full of bytes, which wake as well
                waker.send(b"\0")

    @property
    def is_handing_over(self) -> bool:
        """Whether packets of the socket may be those of other lanes."""
        return self._handing is not None

    def open(self, geometry: Geometry) -> RingPeer:
        """Make the memory for one more worker.

        Raises:
            RingError: the system gives none.
        """
        first = int(self.is_handing_over)
        free = [number for number, each in enumerate(self._peers) if each is None][first:]
        number = free[0] if free else len(self._peers)
        peer = RingPeer(number, geometry)
        if not free:
            self._peers.append(None)
            self._table = np.concatenate([self._table, np.zeros((1, LINE_WORDS), np.int64)])
        if number >= self._read.shape[1]:
            self._read = np.concatenate([self._read, np.zeros_like(self._read)], 1)
        self._read[:, number] = 0
        row = self._table[number]
        row[:] = 0
        row[BASE], row[PORT] = peer.memory.ctypes.data, -1
        row[BELL], row[ROWS], row[STRIDE] = peer.waker, geometry.rows, geometry.stride
        self._peers[number] = peer
        return peer

    def release(self, peer: RingPeer) -> None:
        """A worker is gone, and the switch's hold on its memory."""
        if self._peers[peer.number] is peer:
            self._of_port[self._of_port == peer.number] = -1
            self._table[peer.number] = 0
            self._peers[peer.number] = None
            while len(self._peers) > self.is_handing_over and self._peers[-1] is None:
                self._peers.pop()
            self._table = self._table[: len(self._peers)].copy()
            self._turns[:] = 0
            peer.close()

    def assign(self, port: int, peer: Peer | None) -> None:
        """Let ``port`` be that of ``peer``, if that has rings, and of no other."""
        before = self._of_port[port]
        if before >= 0:
            self._table[before, PORT] = -1
        self._of_port[port] = -1
        if isinstance(peer, RingPeer):
            self._of_port[port] = peer.number
            self._table[peer.number, PORT] = port

    def close(self) -> None:
        for peer in [each for each in self._peers if each is not None]:
            self.release(peer)
        for each in ([] if self.bell is None else [self.bell], *self._bells):
            for sock in each:
                sock.close()
        self.bell = None

    def compiled(self, lane: int = 0) -> SwitchRings:
        """For compiled code of a lane, until a ring comes or goes."""
        bell = self.bell if lane == 0 else self._bells[lane - 1][1]
        return SwitchRings(
            self._table,
            self._read,
            self._of_port,
            -1 if bell is None else bell.fileno(),
            self._turns[lane],
            self._lanes._replace(mine=lane),
        )

    def links(self, packets: int) -> NDArray[np.int64]:
        """Scratch memory for ``put_into_rings``."""
        return np.zeros(packets + 2 * len(self._table), np.int64)


class UnknownDatagram(NamedTuple):
    """A datagram that is not a frame."""

    sender: Address
    data: bytes


@dataclass(slots=True)
class PeerCounts:
    """Counts of datagrams.

    Attributes:
        received: all that arrived.
        unknown_senders: frames of senders that were not admitted.
        wrong_length: datagrams of a length that no frame has.
        hellos: requests to join among them; the reader of ``unknown_datagrams`` counts them.
    """

    received: int = 0
    unknown_senders: int = 0
    wrong_length: int = 0
    hellos: int = 0


class CompiledPorts(NamedTuple):
    """The ports of a switch as compiled code uses them, until ``close``.

    Attributes:
        descriptor: of the socket.
        segments: most packets that are sent as one datagram.
        offset: bytes of a frame that are not sent or received, at its beginning.
        sizes: bytes of a frame after those, with values and without them, and ``offset``.
        arrival, reception: buffers for receiving, see ``innet.transport.system_calls``.
        port, length: (rows,) int32, filled in: the ingress port of each packet, and its bytes.
        senders: the port of each known address.
        names, positions: the address of each port; the position is -1 for a port without a peer.
        transmission: buffers for sending.
        rings: of the workers that share memory with the switch.
    """

    descriptor: int
    segments: int
    offset: int
    sizes: tuple[int, int, int]
    arrival: Arrival
    reception: Reception
    port: NDArray[np.int32]
    length: NDArray[np.int32]
    senders: SenderTable
    names: NDArray[np.uint8]
    positions: NDArray[np.int64]
    transmission: Transmission
    rings: SwitchRings


class PeerPorts:
    """The ports of a switch that are reached over UDP: one for each admitted address.

    A datagram holds what follows the UDP header of a frame. The switch gets it behind an Ethernet
    header (framing "raw"), because a program parses that faster than unused IP addresses.

    Many frames between it and a worker pass the kernel as one datagram, where it can do that.

    Args:
        sock: a bound UDP socket; it is closed with this.
        layout: of the frames, with framing "raw".
        ports: how many there are; a v1model switch has 512, of which the last is for drops.
        segments: many frames as one datagram, if the kernel can.

    Attributes:
        counts: what became of datagrams.
        packets: the memory of what is received, as many packets as one call takes at most.
        unknown_datagrams: datagrams whose length no frame has, from any sender, at most
            ``max_unknown`` of a batch. The reader removes them.
        stalls: batches of which a part is lost, since the socket took nothing for seconds.
        rings: those of workers that share memory with this process.
    """

    max_unknown = 64
    max_unknown_bytes = 64

    def __init__(
        self,
        sock: socket.socket,
        layout: PacketLayout,
        *,
        ports: int = MAX_PORT + 2,
        segments: bool = True,
    ) -> None:
        if layout.framing != "raw":
            raise InputError(f"ports of peers carry frames of framing 'raw', not {layout.framing}.")
        widen_buffers(sock)
        allow_fragmentation(sock)
        sock.setblocking(False)
        self.counts = PeerCounts()
        self.unknown_datagrams: list[UnknownDatagram] = []
        self.stalls = 0
        self._socket = sock
        self._size = layout.frame_size
        bare = layout.bare_size if layout.has_owners else layout.frame_size
        self._sizes = layout.frame_size - _HEADER, bare - _HEADER, _HEADER
        rows = max(1, min(_ROWS, _BATCH // self._size))
        self._inbox, self.packets = self._rows_for(rows)
        self._outbox = Outbox(segments and enable_gro(sock), forgiving=True)
        self._known: dict[int, int] = {}  # address as a number -> port
        table = 1 << (2 * ports).bit_length()  # a power of two, at most half full
        self._senders = SenderTable(np.zeros(table, np.int64), np.zeros(table, np.int32))
        self._names = np.zeros(ports, _NAME)
        self._addresses = self._names.view(np.uint8).reshape(ports, ADDRESS_BYTES)
        self._places = np.full(ports, -1, np.int64)
        self.rings = RingPeers(ports)
        self._words = np.zeros(4, np.int64)
        self._rows = rows
        self._others: list[tuple[SegmentInbox, Outbox, PacketBatch]] = []  # of lanes
        assert layout.values_offset == _HEADER + HEADER.itemsize

    def _rows_for(self, rows: int) -> tuple[SegmentInbox, PacketBatch]:
        inbox = SegmentInbox(self._size - _HEADER, _HEADER, rows)
        inbox.data[:, :_HEADER] = np.frombuffer(self.head, np.uint8)
        length = np.full(len(inbox.data), self._size, np.int32)
        return inbox, PacketBatch(inbox.data, length, np.zeros(len(inbox.data), np.int32))

    @property
    def head(self) -> bytes:
        """What all packets begin with; the innet header follows."""
        header = np.zeros(1, ETHERNET_HEADER)
        header["ethertype"] = ETHERTYPE
        return header.tobytes()

    @property
    def least(self) -> int:
        """Bytes of the shortest packets."""
        return self._sizes[1] + _HEADER

    def open_lanes(self, count: int, bit: int, shift: int, mask: int) -> list[PacketBatch]:
        """Let ``count`` threads take packets, each those of its own; before there is any peer.

        Args:
            count: 2 or more.
            bit: where the byte that tells packets apart begins in a packet, a multiple of 8.
            shift: by how many bits it is shifted to the right.
            mask: which of the others count.

        Returns:
            The memory of what each of them receives, as ``packets``.
        """
        key = bit // 8 - _HEADER, shift, mask
        self.rings.open_lanes(count, key, self._sizes[0])
        for _ in range(1, count):
            inbox, packets = self._rows_for(self._rows)
            self._others.append((inbox, Outbox(), packets))
        return [self.packets, *(packets for _, _, packets in self._others)]

    def hand_over(self, packets: PacketBatch) -> PacketBatch:
        """Give packets to the threads that have them; returns those of the first one."""
        if not self.rings.is_handing_over:
            return packets
        data = np.array(packets.data)
        length, port = np.array(packets.length), np.array(packets.port)
        kept, missed = hand_over(
            self.rings.compiled(), 0, data, (port, length), len(port), _HEADER, self._words
        )
        self.rings.missed += missed
        return PacketBatch(data[:kept], length[:kept], port[:kept])

    def fileno(self) -> int:
        """Readable when a datagram has arrived."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
        self.rings.close()

    @property
    def lost(self) -> int:
        """Datagrams that were lost because the receive buffer was full, or a thread too slow."""
        said = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        return int(_MEMINFO.unpack(said)[-1]) + self.rings.missed

    @property
    def room(self) -> int:
        """How many frames the receive buffer holds, in the worst case of one frame per datagram.
        The system decides how large the buffer is.
        """
        memory = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        counted = 1 << (self._size - _HEADER + _BOOKKEEPING - 1).bit_length()
        return int(memory) // (counted + _DESCRIPTION)

    @property
    def dropped(self) -> int:
        """Packets that could not be sent, or that a ring had no room for."""
        return self._outbox.dropped + self.rings.dropped

    def admit(self, port: int, address: Peer) -> None:
        """Assign ``address`` to ``port``, in place of its previous peer.

        Raises:
            InputError: no such port, or the address belongs to another one.
        """
        self.assign([port], {port: address})

    def dismiss(self, port: int) -> None:
        """Remove the peer at ``port``."""
        self.assign([port], {})

    def assign(self, ports: Iterable[int], peers: Mapping[int, Peer]) -> None:
        """Remove the peers at ``ports``, and assign those of ``peers``, by port; all or nothing.

        Frames to peers of other transports are not sent from here.

        Raises:
            InputError: no such port, or an address belongs to another one.
        """
        cleared = {*ports, *peers}
        known = {key: at for key, at in self._known.items() if at not in cleared}
        last = len(self._places) - 2
        addresses = {port: peer for port, peer in peers.items() if isinstance(peer, Address)}
        for port in peers:
            if not 0 <= port <= last:
                raise InputError(f"port {port} is not in 0 .. {last}.")
        for port, address in addresses.items():
            if known.setdefault(_key(address), port) != port:
                raise InputError(
                    f"{address.ip}, UDP port {address.udp_port}, is at port "
                    f"{known[_key(address)]} already."
                )
        for port in cleared:
            self._places[port] = -1
            self.rings.assign(port, None)
        for port, peer in peers.items():
            self.rings.assign(port, peer)
        for port, address in addresses.items():
            ip = int(ipaddress.IPv4Address(address.ip))
            self._names[port] = (socket.AF_INET, address.udp_port, ip, 0)
            self._places[port] = port
        self._known = known
        self._index()

    def _index(self) -> None:
        keys, ports = self._senders
        keys[:] = 0
        for key, port in self._known.items():
            position = find_slot(key, keys)
            keys[position] = key
            ports[position] = port

    def compiled(self, lane: int = 0) -> CompiledPorts:
        """For ``innet.service.forwarding``, which does the same as ``receive`` and ``send``."""
        inbox, outbox, packets = (
            self._others[lane - 1] if lane else (self._inbox, self._outbox, self.packets)
        )
        return CompiledPorts(
            self._socket.fileno(),
            self._outbox.most,
            _HEADER,
            self._sizes,
            inbox.arrival,
            inbox.reception,
            packets.port,
            packets.length,
            self._senders,
            self._addresses,
            self._places,
            outbox.transmission,
            self.rings.compiled(lane),
        )

    def lose(self, packets: int) -> None:
        """Count packets that compiled code could not send."""
        self._outbox.dropped += packets

    def receive(self) -> PacketBatch:
        """Frames of peers that have arrived, without waiting; valid until the next call."""
        packets = self.packets.port, self.packets.length
        rows, received, unknown, wrong = take_from_rings(
            *(self.rings.compiled(), self._inbox.data, packets, self._sizes, len(self.packets)),
            self._words,
        )
        self.counts.received += received
        self.counts.unknown_senders += unknown
        self.counts.wrong_length += wrong
        if rows:
            return self.rows(0, rows)
        count = self._inbox.receive(self._socket)
        self.counts.received += count
        return self.sort(count)

    def sort(self, count: int) -> PacketBatch:
        """Frames of peers among the first ``count`` datagrams that were received."""
        inbox, (whole, bare, _) = self._inbox, self._sizes
        length = inbox.length[:count]
        odd = np.flatnonzero((length != whole) & (length != bare))
        if len(odd):
            self.counts.wrong_length += len(odd)
            self._keep_unknown(odd)
        packets = self.packets.port, self.packets.length
        kept, unknown_senders = filter_senders(
            count, inbox.arrival, packets, self._sizes, self._senders
        )
        self.counts.unknown_senders += unknown_senders
        return self.rows(0, kept)

    def rows(self, first: int, end: int, lane: int = 0) -> PacketBatch:
        """Some of the packets received."""
        packets = self._others[lane - 1][2] if lane else self.packets
        data, length, port = packets.data, packets.length, packets.port
        return PacketBatch(data[first:end], length[first:end], port[first:end])

    def send(self, packets: PacketBatch, first: int | None = None) -> None:
        """Send each packet to the peer at its port; packets to a port without a peer are lost.

        Args:
            packets: a batch that leaves the switch.
            first: how many of those to addresses, ordered by port, were sent before, after those
                into rings; None if nothing was done yet.
        """
        if first is None:
            first = 0
            data = np.ascontiguousarray(packets.data)
            _, lost = put_into_rings(
                *(data, packets.length, packets.port, _HEADER, self.rings.compiled()),
                *(self.rings.links(len(packets)), self._words),
            )
            self.rings.dropped += lost
        rows, positions, _ = by_port(packets.port, self._places)
        to = Addresses(self._addresses, positions[first:])
        try:
            self._outbox.send(self._socket, packets, _HEADER, rows[first:], to)
        except StalledError:
            self.stalls += 1  # the rest is lost, as on a link that is down

    def _keep_unknown(self, rows: NDArray[np.int64]) -> None:
        room = self.max_unknown - len(self.unknown_datagrams)
        for row in rows[: max(0, room)].tolist():
            ip, udp_port = divmod(int(self._inbox.sender[row]), 1 << 16)
            end = _HEADER + min(int(self._inbox.length[row]), self.max_unknown_bytes)
            data = self._inbox.data[row, _HEADER:end].tobytes()
            self.unknown_datagrams.append(
                UnknownDatagram(Address(str(ipaddress.IPv4Address(ip)), udp_port), data)
            )


def _key(address: Address) -> int:
    return int(ipaddress.IPv4Address(address.ip)) << 16 | address.udp_port

"""A transport over a UDP socket, for one worker in its own process on a kernel network."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, NetworkError
from innet.core.packets import PacketBatch
from innet.transport.messages import (
    Outbox,
    SegmentInbox,
    allow_fragmentation,
    enable_gro,
    readable,
)
from innet.transport.packet_socket import widen_buffers
from innet.transport.system_calls import MOST_AT_ONCE, Arrival, Reception
from innet.transport.transports import (
    ControlConnection,
    ServiceSide,
    SwitchEnd,
    TransportProvider,
    TransportSession,
)
from innet.wire import (
    ETHERNET_HEADER,
    HEADER,
    IPV4_HEADER,
    UDP_HEADER,
    Endpoint,
    PacketLayout,
    pack,
)

_HEADERS = ETHERNET_HEADER.itemsize + IPV4_HEADER.itemsize + UDP_HEADER.itemsize
_TOS = ETHERNET_HEADER.itemsize + 1
_UDP_CHECKSUM = slice(_HEADERS - 2, _HEADERS)
_SO_NO_CHECK = 11  # Linux: send UDP without a checksum
_LONGEST_WAIT = 1.0
_BATCH = 1 << 18  # bytes received at once; they stay in the CPU cache until they are read


class SocketLink(NamedTuple):
    """A UDP transport's socket, for compiled code.

    Attributes:
        descriptor: of the socket.
        arrival, reception: buffers for receiving, see ``innet.transport.system_calls``.
        outbox: has the buffers for sending.
    """

    descriptor: int
    arrival: Arrival
    reception: Reception
    outbox: Outbox


class Watch(NamedTuple):
    """What ends a wait for packets.

    Attributes:
        descriptor: the wait ends when it can be read; -1 for none.
        until: the wait ends at this time.
        lasting: packets that arrive do not change it.
    """

    descriptor: int
    until: float
    lasting: bool


def is_compiled(transport: object) -> bool:
    """Whether compiled code may send and receive in a transport's place, as its class says itself.

    A class derived from such a one may do something else in its own ``send``.
    """
    return "is_compiled" in vars(type(transport)) and bool(getattr(transport, "is_compiled"))  # noqa: B009


class UdpTransport:
    """Carries the frames of one host as UDP datagrams.

    The kernel writes and checks Ethernet, IPv4 and UDP headers. Only what follows them in a frame
    is sent. Received frames get headers with the addresses that the socket is connected to. All
    frames of a call are sent with the first one's type of service (and ECN), and without a UDP
    checksum if it has none.

    Between sockets of one machine, up to 64 frames pass the kernel as one datagram (``segments``),
    in a small part of the time. Such a datagram has a UDP checksum, which the kernel does not
    compute if nothing leaves the machine. A receiver without GRO gets single datagrams.

    Args:
        source: address and port to send from; an address of this machine or namespace.
        switch: where to send; datagrams from other addresses are not received.
        layout: of the frames; its framing must be "udp".
        port: the number of this host's switch port in ``PacketBatch.port``.
        sock: a socket that is already bound and connected, to any addresses; ``source`` and
            ``switch`` are then only those in frames. ``close`` closes it.
        segments: send many frames as one datagram; by default if the switch has a loopback address.

    Raises:
        InputError: another framing.
        NetworkError: the address is not one of this machine, or the port is in use.
    """

    name = "udp"
    is_compiled = True  # see ``innet.transport.socket_loop``

    def __init__(
        self,
        source: Endpoint,
        switch: Endpoint,
        layout: PacketLayout,
        port: int = 0,
        *,
        sock: socket.socket | None = None,
        segments: bool | None = None,
    ) -> None:
        if layout.framing != "udp":
            raise InputError(f"a UDP socket carries no frames of framing {layout.framing!r}.")
        self._port = port
        rows = max(1, min(MOST_AT_ONCE, _BATCH // layout.frame_size))
        self._inbox = SegmentInbox(layout.frame_size - _HEADERS, _HEADERS, rows)
        self._inbox.data[:, :_HEADERS] = outer_headers(switch, source, layout)
        self._ports = np.full(len(self._inbox.data), port, np.int32)
        self._options = (True, 0)  # of a new socket: UDP checksum, type of service
        self._followed: NDArray[np.uint8] | None = None  # the head that the options were set for
        if sock is None:
            try:
                sock = _connected((source.ip, source.udp_port), (switch.ip, switch.udp_port))
            except OSError as error:
                raise NetworkError(
                    f"cannot send from {source.ip}, UDP port {source.udp_port}, to {switch.ip}: "
                    f"{error.strerror}. The address must be one of this host's, and the port free."
                ) from None
        self._socket = sock
        if segments is None:
            segments = ipaddress.IPv4Address(self._socket.getpeername()[0]).is_loopback
        self._outbox = Outbox(segments and enable_gro(self._socket))

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For select and similar: readable when a datagram has arrived."""
        return self._socket.fileno()

    def now(self) -> float:
        """The transport's clock, seconds."""
        return time.monotonic()

    def link(self, head: NDArray[np.uint8]) -> SocketLink:
        """The socket for compiled code, until ``close``; all frames must begin with ``head``.

        See ``innet.transport.socket_loop``.
        """
        if head is not self._followed:
            self._follow(head)
            self._followed = head
        inbox = self._inbox
        return SocketLink(self._socket.fileno(), inbox.arrival, inbox.reception, self._outbox)

    def heard(self) -> None:
        """Note that packets have arrived over the link."""

    def watch(self, now: float) -> Watch:
        """What to wait for at the link besides packets."""
        return Watch(-1, now + _LONGEST_WAIT, True)

    def send(self, packets: PacketBatch, now: float) -> None:  # noqa: ARG002 - the kernel's time
        """Hand packets to the kernel."""
        if len(packets):
            self._follow(packets.data[0])
            # A frame that a fault truncated within its headers leaves no datagram.
            short = packets.length < _HEADERS
            rows = np.flatnonzero(~short) if short.any() else None
            self._outbox.send(self._socket, packets, _HEADERS, rows)

    def _follow(self, frame: NDArray[np.uint8]) -> None:
        """Have the kernel write the same headers as this frame has."""
        # The kernel splits no datagram without a checksum.
        options = self._outbox.segments or bool(frame[_UDP_CHECKSUM].any()), int(frame[_TOS])
        if options != self._options:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, int(not options[0]))
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, options[1])
            self._options = options
            self._followed = None

    def receive(self, now: float) -> PacketBatch:  # noqa: ARG002 - the kernel's time
        """What has arrived, valid until the next call; frames of a wrong length are included."""
        count = self._inbox.receive(self._socket)
        length = self._inbox.length[:count] + np.int32(_HEADERS)
        return PacketBatch(self._inbox.data[:count], length, self._ports[:count])

    def wait_for(self, seconds: float, *others: int) -> list[int]:
        """Sleep until packets have arrived or ``others`` can be read; returns what can."""
        return readable(seconds, self._socket.fileno(), *others)

    def wait(self, now: float, until: float) -> float:
        """Sleep until something has arrived or it is ``until``; at most a second."""
        self.wait_for(min(until - now, _LONGEST_WAIT))
        return max(now, self.now())


def _connected(source: tuple[str, int], switch: tuple[str, int]) -> socket.socket:
    """A socket from one IPv4 address and port to another.

    Raises:
        OSError: it cannot be had; the socket is closed.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        widen_buffers(sock)
        allow_fragmentation(sock)
        sock.bind(source)
        sock.connect(switch)
    except OSError:
        sock.close()
        raise
    return sock


class UdpSession(TransportSession):
    """A worker's socket towards a switch service.

    Attributes:
        socket: connected to the service's port for frames.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def show(self, hello: bytes) -> None:
        """Send the hello datagram, which shows the source of frames; it may be lost."""
        with contextlib.suppress(OSError):
            self.socket.send(hello)

    def begin(self, source: Endpoint, switch: Endpoint, layout: PacketLayout) -> UdpTransport:
        """See ``TransportSession``."""
        return UdpTransport(source, switch, layout, sock=self.socket, segments=True)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class UdpSwitchEnd(SwitchEnd):
    """Hellos over UDP. Frames go through ``PeerPorts``, in compiled code.

    Args:
        service: the service whose ports these are.
    """

    def __init__(self, service: ServiceSide) -> None:
        self._service = service

    def offer(self) -> dict[str, Any] | None:
        """Nothing: the address is that of the control connection."""
        return None

    def serve(self) -> None:
        """Admit whoever showed a token by a datagram."""
        ports = self._service.ports
        for datagram in ports.unknown_datagrams:
            ports.counts.hellos += self._service.admit(datagram.data, datagram.sender)

    def close(self) -> None:
        """The socket is closed with ``PeerPorts``."""


class UdpProvider(TransportProvider):
    """UDP sockets: between machines, to a service as well as on a network."""

    what = "UDP"

    def connect(
        self,
        source: Endpoint,
        switch: Endpoint,
        layout: PacketLayout,
        interface: str | None,  # noqa: ARG002 - the address says which one
    ) -> UdpTransport:
        """See ``TransportProvider``."""
        return UdpTransport(source, switch, layout)

    def join(self, offer: object, control: ControlConnection) -> UdpSession:  # noqa: ARG002
        """See ``TransportProvider``; from this machine's address of the control connection."""
        try:
            return UdpSession(_connected((control.local_ip, 0), control.peer))
        except OSError as error:
            raise NetworkError(
                f"cannot send from {control.local_ip} to {control.peer.ip}: {error.strerror}."
            ) from None

    def listen(self, service: ServiceSide) -> UdpSwitchEnd:
        """See ``TransportProvider``."""
        return UdpSwitchEnd(service)


def outer_headers(
    source: Endpoint, destination: Endpoint, layout: PacketLayout
) -> NDArray[np.uint8]:
    """The outer headers of a frame from ``source`` to ``destination``."""
    frame = pack(
        layout,
        source,
        destination,
        np.zeros((1, layout.values), np.int32),
        operation=1, job=0, epoch=0, sequence=0, slot=0, slot_version=0, worker=0,
    )  # fmt: skip
    assert frame.shape[1] == _HEADERS + HEADER.itemsize + 4 * layout.values
    return frame[0, :_HEADERS]

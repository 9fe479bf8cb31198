"""A worker's transport to a switch service: UDP socket or shared memory, and control connection."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import MembershipError, NetworkError, StateError
from innet.core.packets import PacketBatch
from innet.transport.messages import allow_fragmentation
from innet.transport.packet_socket import widen_buffers
from innet.transport.peers import Address
from innet.transport.rings import WorkerRing
from innet.transport.shared_memory import RingSession, RingTransport
from innet.transport.udp import SocketLink, UdpTransport, Watch
from innet.wire import Endpoint, PacketLayout

_LONGEST_WAIT = 1.0
# Seconds without a packet after which a departure is assumed to be the reason. A worker that left
# on purpose has most likely done its part, so the wait is longer: only a result may be lost.
_SILENCE = 0.5
_LONG_SILENCE = 3.0


class Departure(NamedTuple):
    """What a departed worker did, as the rest of a sentence after its name."""

    what: str
    on_purpose: bool = False


class ServiceTransport:
    """Carries a worker's frames to a switch service, and does not wait for departed workers.

    A departed worker may have done its part, so complete results still arrive. ``wait`` raises only
    if a worker has departed and no packet has arrived for a while.

    Args:
        worker: index of the worker, for addresses in frames.
        channel: file descriptor of the control connection.
        listen: handles the messages that arrived there.
        departed: departed workers of this epoch, and what they did.

    Attributes:
        name: what carries packets: "udp" or "shm".
    """

    carries_ecn = False  # the switch sees no IPv4 headers, and has no queue of which it knows

    def __init__(
        self,
        worker: int,
        channel: Callable[[], int],
        listen: Callable[[], object],
        departed: Mapping[int, Departure],
    ) -> None:
        self._shown = Endpoint.of_worker(worker), Endpoint.of_switch()
        self._channel = channel
        self._listen = listen
        self._departures = departed
        self._socket: socket.socket | None = None
        self._rings: RingSession | None = None
        self._link: UdpTransport | RingTransport | None = None
        self._silent_since: float | None = None
        self.name = "udp"

    def open_rings(self, name: str) -> bool:
        """Connect to the Unix socket of a switch; whether there is one of that name here."""
        self.close()
        try:
            self._rings = RingSession(name)
        except OSError:
            return False
        self.name = "shm"
        return True

    def has_rings(self) -> bool:
        """Whether the memory that was asked for has arrived; False over UDP.

        Raises:
            RingError: the switch has none to give.
        """
        return self._rings is not None and self._rings.accept()

    @property
    def job_memory(self) -> NDArray[np.uint8] | None:
        """What the workers of this job and machine share to decode once; None over UDP."""
        return None if self._rings is None else self._rings.job_memory

    def open(self, ip: str, switch: Address) -> None:
        """Open a new socket from this machine's address ``ip`` to the switch.

        Raises:
            NetworkError: it cannot be opened.
        """
        self.close()
        self.name = "udp"
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            widen_buffers(self._socket)
            allow_fragmentation(self._socket)
            self._socket.bind((ip, 0))
            self._socket.connect(tuple(switch))
        except OSError as error:
            raise NetworkError(f"cannot send from {ip} to {switch.ip}: {error.strerror}.") from None

    def show(self, hello: bytes) -> None:
        """Send the hello datagram, which shows the source of frames; it may be lost."""
        if self._rings is not None:
            self._rings.show(hello)
            return
        assert self._socket is not None
        with contextlib.suppress(OSError):
            self._socket.send(hello)

    def begin(self, layout: PacketLayout) -> None:
        """An epoch begins. No worker has departed from it."""
        self._silent_since = None
        if self._rings is not None:
            if not self._rings.accept():  # it was sent before the plan
                raise NetworkError("the switch has sent no shared memory.")
            self._link = RingTransport(*self._shown, layout, self._rings)
            return
        assert self._socket is not None
        self._link = UdpTransport(*self._shown, layout, sock=self._socket, segments=True)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._rings is not None:
            self._rings.close()
        self._socket = self._rings = self._link = None

    def now(self) -> float:
        """The transport's clock, seconds."""
        return self._open().now()

    def link(self, head: NDArray[np.uint8]) -> SocketLink | WorkerRing:
        """See ``UdpTransport``."""
        return self._open().link(head)

    def watch(self, now: float) -> Watch:
        """See ``UdpTransport``."""
        end = now + _LONGEST_WAIT
        if self._departures:
            end = min(end, self._patience_ends(now))
        return Watch(self._channel(), end, not self._departures)

    def heard(self) -> None:
        """Note that packets have arrived over the link."""
        self._silent_since = None

    def send(self, packets: PacketBatch, now: float) -> None:
        """See ``Transport``."""
        self._open().send(packets, now)

    def receive(self, now: float) -> PacketBatch:
        """See ``Transport``."""
        arrived = self._open().receive(now)
        if len(arrived):
            self.heard()
        return arrived

    def wait(self, now: float, until: float) -> float:
        """Sleep until something has arrived or it is ``until``; at most a second.

        Raises:
            MembershipError: workers left the job or ask for its next epoch, or the switch is gone.
        """
        link = self._open()
        channel, end, _ = self.watch(now)
        if self._departures and now >= self._patience_ends(now):
            said = "; ".join(f"worker {who} {each.what}" for who, each in self._departures.items())
            raise MembershipError(
                f"{said}, so the others wait in vain. Call renew() on those that are left, and "
                "go on."
            )
        end = min(end, until)
        if channel in link.wait_for(end - now, channel):
            self._listen()
        return max(now, self.now())

    def _patience_ends(self, now: float) -> float:
        """When to raise because of departures. The silence begins now, if it has not yet."""
        if self._silent_since is None:
            self._silent_since = now
        alarming = not all(each.on_purpose for each in self._departures.values())
        return self._silent_since + (_SILENCE if alarming else _LONG_SILENCE)

    def _open(self) -> UdpTransport | RingTransport:
        if self._link is None:
            raise StateError("this worker has left its job; join again.")
        return self._link

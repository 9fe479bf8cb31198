"""A worker's transport to a switch service, and the control connection beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import MembershipError, StateError
from innet.core.packets import PacketBatch
from innet.transport.socket_loop import SocketTransport
from innet.transport.transports import ServiceLink, TransportSession
from innet.transport.udp import Watch, is_compiled
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
        name: what carries packets, as registered: "udp", "shm" or another.
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
        self._session: TransportSession | None = None
        self._link: ServiceLink | None = None
        self._silent_since: float | None = None
        self.name = "udp"

    def open(self, name: str, session: TransportSession) -> None:
        """Use what a worker has opened towards the switch; an earlier session is closed."""
        self.close()
        self.name = name
        self._session = session

    @property
    def job_memory(self) -> NDArray[np.uint8] | None:
        """What the workers of this job and machine share to decode once; None over UDP."""
        return None if self._session is None else self._session.job_memory

    def show(self, hello: bytes) -> None:
        """See ``TransportSession``."""
        assert self._session is not None
        self._session.show(hello)

    def begin(self, layout: PacketLayout) -> None:
        """An epoch begins. No worker has departed from it."""
        assert self._session is not None
        self._silent_since = None
        self._link = self._session.begin(*self._shown, layout)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = self._link = None

    def now(self) -> float:
        """The transport's clock, seconds."""
        return self._open().now()

    @property
    def is_compiled(self) -> bool:
        """Whether the transport has a ``link`` for compiled code."""
        return self._link is None or is_compiled(self._link)

    def link(self, head: NDArray[np.uint8]) -> Any:
        """See ``innet.transport.socket_loop``."""
        return cast("SocketTransport", self._open()).link(head)

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

    def _open(self) -> ServiceLink:
        if self._link is None:
            raise StateError("this worker has left its job; join again.")
        return self._link

"""Transports by name: what carries frames between a worker and its switch.

A transport is one class, derived from ``TransportProvider``. When it is registered below, or by an
entry point of another distribution in the group "innet.transports", its name can be used wherever
one is given: ``innet switch serve --transport``, ``innet.service.join``, INNET_TRANSPORT, a job's
``service_transport`` and ``innet.allreduce.worker.connect``.

How a worker reaches a switch service: it joins over the control connection, whose answer holds the
offers of the service's transports and a token. The worker opens one of them (``join``) and shows
the token there, until the switch knows where the worker's frames come from (``SwitchEnd.serve``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import ConfigError, InputError
from innet.core.packets import PacketBatch
from innet.core.registry import Registry
from innet.network import ClockedTransport
from innet.transport.peers import Address, Peer, PeerPorts
from innet.wire import Endpoint, PacketLayout

AUTO = "auto"
"""The name that stands for the first possible one of ``AUTOMATIC``."""

AUTOMATIC = ("shm", "udp")
"""What a service offers, and a worker tries in this order, if nobody names a transport. Others are
used only by name: installing a package must not change what a run means."""


class UnavailableError(Exception):
    """This transport is not possible here, for the reason that the message gives."""


class HostTransport(ClockedTransport, Protocol):
    """A host's end on a network."""

    def close(self) -> None: ...


class ServiceLink(ClockedTransport, Protocol):
    """A worker's end at a switch service, for the frames of one layout.

    It may have ``link``, ``heard`` and ``watch``, too, with ``is_compiled``; see
    ``innet.transport.socket_loop``.
    """

    def wait_for(self, seconds: float, *others: int) -> list[int]:
        """Sleep until packets have arrived or the descriptors ``others`` can be read.

        Returns:
            The descriptors that can be read.
        """


class TransportSession(ABC):
    """What a worker has opened towards a switch service. It lasts over the epochs of a job.

    Attributes:
        job_memory: memory that the workers of this job and machine share to decode once, or None.
    """

    job_memory: NDArray[np.uint8] | None = None

    @abstractmethod
    def show(self, hello: bytes) -> None:
        """Send a hello, which holds the token; called again and again, as it may be lost.

        Raises:
            UnavailableError: the switch cannot serve this worker in this way.
        """

    @abstractmethod
    def begin(self, source: Endpoint, switch: Endpoint, layout: PacketLayout) -> ServiceLink:
        """An epoch begins, and the switch knows this worker.

        Args:
            source: this worker's address in the headers of frames, which do not travel.
            switch: likewise the switch's.
            layout: of the frames; its framing is "udp".

        Raises:
            NetworkError: the switch has sent less than it promised.
        """

    @abstractmethod
    def close(self) -> None:
        """Close it. A second call does nothing."""


class ControlConnection(NamedTuple):
    """The control connection between a worker and a service.

    Attributes:
        switch: the service's address as it was given.
        local_ip: this end's address.
        peer: the other end's.
    """

    switch: str
    local_ip: str
    peer: Address


class JoinedWorker(NamedTuple):
    """A worker that has joined a job, and has shown its token.

    Attributes:
        partition: which part of the switch its job has.
        window: most packets that it has under way at once.
        peer: where its frames come from, if that is known already: its hello came again.
    """

    partition: int
    window: int
    peer: Peer | None


class ServiceSide(Protocol):
    """What a switch service is for the ends of its transports.

    Attributes:
        address: where it listens.
        layout: of the frames that its program takes; the framing is "raw".
        ports: the ports that frames over UDP and over rings go through.
    """

    address: Address
    layout: PacketLayout
    ports: PeerPorts

    def joined(self, hello: bytes) -> JoinedWorker | None:
        """The worker whose hello this is; None if it is nobody's."""

    def admit(self, hello: bytes, peer: Peer) -> bool:
        """The worker of a hello is reached at ``peer`` from now on; whether there is one."""


class SwitchEnd(ABC):
    """The switch's end of a transport in a service, for all its workers.

    All methods are called in the service's thread, between two batches. None may wait.
    """

    def descriptors(self) -> Sequence[int]:
        """What becomes readable when ``serve`` has something to do; the same until ``close``."""
        return ()

    @abstractmethod
    def offer(self) -> dict[str, Any] | None:
        """What workers have to know to use this transport, as JSON; None for nothing."""

    @abstractmethod
    def serve(self) -> PacketBatch | None:
        """Handle what has arrived.

        Hellos go to ``ServiceSide.joined`` and ``admit``.

        Returns:
            Frames of workers in ``ServiceSide.layout``, by port, for the program; None if there are
            none, or compiled code receives them. The next call may overwrite them.
        """

    def assign(self, port: int, peer: Peer | None) -> None:
        """Port ``port`` is that of ``peer`` now: of a worker here, or elsewhere, or of none."""
        del port, peer  # ``PeerPorts`` knows those of compiled code

    def send(self, packets: PacketBatch) -> None:
        """Send the packets whose ports are those of workers here; others are not its concern."""
        del packets  # ``PeerPorts`` sends those of compiled code

    def release(self, peer: Peer) -> None:
        """A worker is gone; it may be one of another transport."""
        del peer

    def end_job(self, partition: int) -> None:
        """The job of a partition has ended."""
        del partition

    @abstractmethod
    def close(self) -> None:
        """Close it."""


class TransportProvider:
    """Base class of transports, stateless. A transport has one of its two uses, or both.

    Attributes:
        what: what carries packets, in messages.
        offered_as: the key of the offer in the service's answer; by default the registered name.
        remedy: a sentence for those who wanted only this transport, where it is impossible.
        in_services: whether workers can reach a switch service by it, so that ``join`` and
            ``listen`` are there.
    """

    what: ClassVar[str] = "connection"
    offered_as: ClassVar[str | None] = None
    remedy: ClassVar[str] = "Choose the transport auto or udp."
    in_services: ClassVar[bool] = True

    def connect(
        self, source: Endpoint, switch: Endpoint, layout: PacketLayout, interface: str | None
    ) -> HostTransport:
        """A host's end on a network, where the switch has interfaces of its own.

        Args:
            source: the address that the plan gives the host.
            switch: the one that it gives the switch.
            layout: of the frames.
            interface: the host's, if one was named.

        Raises:
            InputError: the transport is not for this, or needs an interface.
            NetworkError: the address or the interface cannot be used.
        """
        del source, switch, layout, interface
        raise InputError(f"no {self.what} leads to a switch without a service; use udp or raw.")

    def join(self, offer: object, control: ControlConnection) -> TransportSession:
        """Open a worker's end towards a service.

        Args:
            offer: what ``SwitchEnd.offer`` returned there; None if the service offers nothing.
            control: the control connection.

        Raises:
            UnavailableError: it is not possible here.
            NetworkError: it is, but cannot be opened.
        """
        raise NotImplementedError

    def listen(self, service: ServiceSide) -> SwitchEnd | None:
        """Open the switch's end in a service; None where the system lacks what it needs."""
        raise NotImplementedError


TRANSPORTS: Registry[type[TransportProvider]] = Registry("transport", "innet.transports")
"""Transports by name. Entry points: "innet.transports"."""

TRANSPORTS.register("udp", "innet.transport.udp:UdpProvider")
TRANSPORTS.register("shm", "innet.transport.shared_memory:SharedMemoryProvider")
TRANSPORTS.register("raw", "innet.transport.raw_host:RawProvider")


def provider_of(name: str) -> TransportProvider:
    """The transport of a name.

    Raises:
        UnknownNameError: no such transport.
        ConfigError: what was registered is no ``TransportProvider``.
    """
    found: object = TRANSPORTS.get(name)
    if not (isinstance(found, type) and issubclass(found, TransportProvider)):
        raise ConfigError(
            f"the transport {name!r} is {found!r}; register a class derived from "
            "innet.transport.transports.TransportProvider."
        )
    return found()


def service_transports() -> tuple[str, ...]:
    """Names of what leads to a switch service: "auto", those that it tries, and the others."""
    known = reversed(AUTOMATIC)
    others = [name for name in TRANSPORTS if name not in AUTOMATIC]
    return (AUTO, *known, *(name for name in others if provider_of(name).in_services))


def checked_transport(name: object, what: str = "the transport") -> str:
    """The name of a transport to a switch service.

    Raises:
        InputError: there is none of that name.
    """
    if isinstance(name, str) and name in service_transports():
        return name
    raise InputError(f"{what} is {name!r}; choose one of {', '.join(service_transports())}.")


def offer_key(name: str, provider: TransportProvider) -> str:
    """The key of a transport's offer in the service's answer to a worker that joins."""
    return provider.offered_as or name


def name_offered_as(key: str) -> str:
    """The transport whose offer has a key; the key itself if this side knows none."""
    return next((name for name in AUTOMATIC if offer_key(name, provider_of(name)) == key), key)

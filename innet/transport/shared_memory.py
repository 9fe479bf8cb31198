"""A transport over memory that a worker shares with the switch process of its machine."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, NetworkError
from innet.core.packets import PacketBatch
from innet.transport import job_memory
from innet.transport.messages import readable
from innet.transport.peers import Peer, PeerPorts, RingPeer
from innet.transport.rings import (
    DESCRIPTORS,
    DOWN_READ,
    HEADER_AT,
    PAGE,
    UP_WRITTEN,
    Geometry,
    RingError,
    WorkerRing,
    begin_sleep,
    create_sealed,
    end_sleep,
    map_sealed,
    receive_descriptors,
    receive_frames,
    send_descriptors,
    send_frames,
)
from innet.transport.transports import (
    ControlConnection,
    ServiceSide,
    SwitchEnd,
    TransportProvider,
    TransportSession,
    UnavailableError,
)
from innet.transport.udp import Watch, outer_headers
from innet.wire import Endpoint, PacketLayout

_LONGEST_WAIT = 1.0
_BATCH = 1 << 18  # bytes received at once


class RingSession(TransportSession):
    """A worker's connection to the switch's shared memory: sockets first, then the memory too.

    Args:
        name: of the switch's Unix socket, in the abstract namespace of this network namespace, as
            the switch told it: it is drawn, so that who reaches a socket of that name reaches that
            switch. Its bell has the same name and ``-bell`` behind it.

    Raises:
        OSError: there is no such socket here: the switch is on another machine.
    """

    def __init__(self, name: str) -> None:
        self._sockets: list[socket.socket] = []
        self.geometry: Geometry | None = None
        self.memory: NDArray[np.uint8] | None = None
        self.job_memory: NDArray[np.uint8] | None = None
        try:
            self._hello, self.bell = self._connected(name), self._connected(f"{name}-bell")
            self._hello.bind("")  # the answer needs an address
        except BaseException:
            self.close()
            raise
        self.woken: socket.socket | None = None

    def _connected(self, name: str) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sockets.append(sock)
        sock.connect(f"\0{name}")
        return sock

    def show(self, hello: bytes) -> None:
        """Ask for the memory, with the token that the switch gave, unless it is here."""
        try:
            if not self.accept():
                with contextlib.suppress(OSError):
                    self._hello.send(hello, socket.MSG_DONTWAIT)
        except RingError as error:
            raise UnavailableError(str(error)) from None

    def begin(self, source: Endpoint, switch: Endpoint, layout: PacketLayout) -> RingTransport:
        """See ``TransportSession``."""
        if not self.accept():  # it was sent before the plan
            raise NetworkError("the switch has sent no shared memory.")
        return RingTransport(source, switch, layout, self)

    def accept(self) -> bool:
        """Take the memory, if it has arrived; whether it is here.

        Raises:
            RingError: the switch has none to give, or it is not what it should be.
        """
        if self.memory is not None:
            return True
        try:
            came = receive_descriptors(self._hello)
        except OSError as error:
            raise RingError(f"the switch is gone: {error.strerror}") from None
        if came is None:
            return False
        text, descriptors = came
        try:
            words = text.split()
            if len(descriptors) != DESCRIPTORS or len(words) != len(Geometry._fields):
                raise RingError(text.decode(errors="replace") or "the switch gives no memory")
            self.geometry = Geometry(*map(int, words))
            self.memory = map_sealed(descriptors[0], self.geometry.size, "of rings")
            self.job_memory = map_sealed(descriptors[2], job_memory.SIZE, "of a job")
            self.woken = socket.socket(fileno=descriptors.pop(1))
            self._sockets.append(self.woken)
        finally:
            for each in descriptors:
                os.close(each)
        return True

    def close(self) -> None:
        """Close the sockets; the memory goes with the last array over it."""
        for each in self._sockets:
            each.close()
        self.memory = self.job_memory = None


class RingTransport:
    """Carries the frames of one host through a pair of rings.

    What follows the UDP header of a frame goes through the ring, as in a datagram of
    ``UdpTransport``; received frames get the outer headers that a datagram would have had.

    Args:
        source, switch: addresses in the headers of received frames.
        layout: of the frames; its framing must be "udp".
        session: with its memory.
        port: the number of this host's switch port in ``PacketBatch.port``.

    Raises:
        InputError: another framing, or frames of another size than the rings'.
    """

    name = "shm"
    is_compiled = True  # see ``innet.transport.socket_loop``

    def __init__(
        self,
        source: Endpoint,
        switch: Endpoint,
        layout: PacketLayout,
        session: RingSession,
        port: int = 0,
    ) -> None:
        memory, geometry = session.memory, session.geometry
        assert memory is not None
        assert geometry is not None
        assert session.woken is not None
        headers = outer_headers(switch, source, layout)
        outer = len(headers)
        if layout.framing != "udp" or layout.frame_size - outer != geometry.packet:
            raise InputError(
                f"the rings take packets of {geometry.packet} bytes behind UDP headers, not "
                f"{layout.frame_size - outer} with framing {layout.framing!r}."
            )
        rows, stride = geometry.rows, geometry.stride
        # Once: the switch writes behind them only.
        down = memory[-rows * stride :].reshape(rows, stride)
        down[:, HEADER_AT - outer : HEADER_AT] = headers
        # An earlier transport over the same rings has counted already.
        indices = memory[:PAGE].view(np.int64)
        state = np.array([indices[UP_WRITTEN // 8], 0, indices[DOWN_READ // 8]], np.int64)
        state[1] = state[0] - rows  # unknown: asked when it matters
        self.ring = WorkerRing(
            memory, rows, stride, outer, geometry.packet, state,
            session.bell.fileno(), session.woken.fileno(),
        )  # fmt: skip
        self._session = session
        self._woken = session.woken.fileno()
        at_once = max(1, min(rows, _BATCH // layout.frame_size))
        # One byte more than a frame has, so that a longer packet is seen to be one.
        self._data = np.zeros((at_once, layout.frame_size + 1), np.uint8)
        self._data[:, :outer] = headers
        self._length = np.zeros(at_once, np.int32)
        self._ports = np.full(at_once, port, np.int32)
        self._words = np.zeros(4, np.int64)
        self.dropped = 0

    def close(self) -> None:
        self._session.close()

    def fileno(self) -> int:
        """Readable when this worker was woken; see ``wait_for``."""
        return self._woken

    def now(self) -> float:
        """The transport's clock, seconds."""
        return time.monotonic()

    def link(self, head: NDArray[np.uint8]) -> WorkerRing:  # noqa: ARG002 - headers do not leave
        """The rings for compiled code; see ``innet.transport.socket_loop``."""
        return self.ring

    def heard(self) -> None:
        """Note that packets have arrived over the link."""

    def watch(self, now: float) -> Watch:
        """What to wait for at the link besides packets."""
        return Watch(-1, now + _LONGEST_WAIT, True)

    def send(self, packets: PacketBatch, now: float) -> None:  # noqa: ARG002 - as UDP's
        """Write packets into the ring; those that it has no room for are lost."""
        if len(packets):
            # A frame that a fault truncated within its headers leaves no packet.
            rows = np.flatnonzero(packets.length >= self.ring.outer)
            data = np.ascontiguousarray(packets.data)
            self.dropped += send_frames(self.ring, data, packets.length, rows, self._words)

    def receive(self, now: float) -> PacketBatch:  # noqa: ARG002 - as UDP's
        """What has arrived, valid until the next call; frames of a wrong length are included."""
        count = receive_frames(self.ring, self._data, self._length)
        return PacketBatch(self._data[:count], self._length[:count], self._ports[:count])

    def wait_for(self, seconds: float, *others: int) -> list[int]:
        """Sleep until packets have arrived or ``others`` can be read; returns those that can."""
        if not begin_sleep(self.ring):
            seconds = 0.0
        ready = readable(seconds, self._woken, *others)
        end_sleep(self.ring, self._woken in ready, self._words)
        return ready

    def wait(self, now: float, until: float) -> float:
        """Sleep until something has arrived or it is ``until``; at most a second."""
        self.wait_for(min(until - now, _LONGEST_WAIT))
        return max(now, self.now())


class RingSwitchEnd(SwitchEnd):
    """The Unix socket at which workers of this machine ask for shared memory, and its bell.

    Its name is random. Only workers that have joined receive it. It is in no file system. Frames go
    through ``PeerPorts.rings``, in compiled code.

    Args:
        service: the service whose ports these are.

    Raises:
        OSError: the system has no such sockets.
    """

    def __init__(self, service: ServiceSide) -> None:
        self._service = service
        self._rings = service.ports.rings
        self._job_memory: dict[int, int] = {}  # descriptors, by partition
        self._hello = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bell: socket.socket | None = None
        try:
            name = f"innet-{secrets.token_hex(16)}"
            bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._hello.bind(f"\0{name}")
            bell.bind(f"\0{name}-bell")
        except OSError:
            self._hello.close()
            if bell is not None:
                bell.close()
            raise
        for each in (self._hello, bell):
            each.setblocking(False)
        self._rings.bell = bell

    def descriptors(self) -> tuple[int]:
        """The socket's."""
        return (self._hello.fileno(),)

    def offer(self) -> dict[str, Any]:
        """The socket's name, and the address by which workers see that it is this switch's."""
        name = self._hello.getsockname()[1:].decode()
        return {"socket": name, "address": str(self._service.address)}

    def serve(self) -> None:
        """Make memory for workers who ask for it, and hand it to them."""
        for _ in range(PeerPorts.max_unknown):
            try:
                hello, sender = self._hello.recvfrom(PeerPorts.max_unknown_bytes)
            except OSError:
                return
            worker = self._service.joined(hello)
            if worker is None or not sender:
                continue
            geometry = Geometry.of(self._service.layout, worker.window)
            peer = worker.peer
            if peer is None:
                try:
                    if worker.partition not in self._job_memory:
                        self._job_memory[worker.partition] = create_sealed(job_memory.SIZE)
                    peer = self._rings.open(geometry)
                except RingError as error:
                    send_descriptors(self._hello, sender, str(error).encode(), [])
                    continue
            if isinstance(peer, RingPeer):
                peer.send(self._hello, sender, geometry, self._job_memory[worker.partition])
                self._service.admit(hello, peer)

    def release(self, peer: Peer) -> None:
        """A worker is gone, and its memory with it."""
        if isinstance(peer, RingPeer):
            self._rings.release(peer)

    def end_job(self, partition: int) -> None:
        """The job's memory goes."""
        if partition in self._job_memory:
            os.close(self._job_memory.pop(partition))

    def close(self) -> None:
        """Close the sockets, the rings and the memory of jobs."""
        self._hello.close()
        self._rings.close()
        for descriptor in self._job_memory.values():
            os.close(descriptor)


class SharedMemoryProvider(TransportProvider):
    """Rings in memory between a service and the workers of its machine."""

    what = "shared memory"
    offered_as = "memory"
    remedy = "Start workers and switch on one machine, or choose the transport auto or udp."

    def join(self, offer: object, control: ControlConnection) -> RingSession:
        """See ``TransportProvider``."""
        name = where = ""
        if isinstance(offer, dict):
            name, where = str(offer.get("socket", "")), str(offer.get("address", ""))
        if not name:
            raise UnavailableError(f"the switch at {control.switch} offers none (--transport udp)")
        if where not in (str(control.peer), f"0.0.0.0:{control.peer.udp_port}"):
            raise UnavailableError(
                f"the switch is at {where}, and something else at {control.switch} between"
            )
        try:
            return RingSession(name)
        except OSError:
            raise UnavailableError(
                f"the switch at {control.switch} is on another machine or in another namespace"
            ) from None

    def listen(self, service: ServiceSide) -> RingSwitchEnd | None:
        """See ``TransportProvider``; None on a system without such sockets: UDP is left."""
        try:
            return RingSwitchEnd(service)
        except OSError:
            return None

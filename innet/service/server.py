"""The built-in switch as a service: one process, a UDP socket for frames, TCP for control.

A loop moves batches of frames through the program, sleeps if there are none, and answers clients
between batches. Its only timers are those for silent clients.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ipaddress
import os
import queue
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from innet import programs
from innet.core.errors import InnetError, InputError, NetworkError, StalledError
from innet.core.settings import ServiceSettings
from innet.service.connections import Client, Connections, Received, key_of, resolve
from innet.service.coordinator import JobCoordinator, JobMember, Jobs
from innet.service.forwarding import Forwarding, Wake
from innet.service.hosted_switch import Hosted, HostedSwitch
from innet.service.hosted_tree import HostedTrees
from innet.service.protocol import HELLO, TOKEN, Message, check_proof, check_versions, decode
from innet.service.slot_partition import SlotPartitions, check_servable, is_of_trees, plan_of
from innet.service.statistics import Parts, PortTraffic, statistics
from innet.transport import job_memory
from innet.transport.peers import Address, PeerPorts, RingPeer
from innet.transport.rings import Geometry, RingError, create_sealed, send_descriptors
from innet.wire import PacketLayout

T = TypeVar("T")

_TURN = 1.0  # seconds between two looks at silent clients, and at what a signal has asked for
_LOOKS = 64  # at frames, before clients are looked at again
_BACKLOG = 1024  # connections that wait to be accepted: all workers of a job may start at once
_PORT_TRIES = 20  # to find a port that is free for both protocols


class SwitchService:
    """A service. It listens after the constructor, and serves in ``run``.

    Args:
        settings: of the service.

    Attributes:
        address: the address that it listens at.

    Raises:
        NetworkError: the address is not this machine's, or the port is in use.
        InputError: the settings do not fit each other, or there is no key although other machines
            can reach the address.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        check_servable(settings.program)  # rather than to ask for another number of values first
        program = programs.find(settings.program, settings.values_per_packet)
        self.partitions = SlotPartitions.divide(program, settings.jobs, settings.workers_max)
        self._key = key_of(settings.key, settings.key_file)
        address = resolve(settings.listen)
        if self._key is None and not ipaddress.IPv4Address(address.ip).is_loopback:
            raise InputError(
                f"{address.ip} can be reached from other machines, and without a key anybody there "
                "could join; give a key (--key-file), or listen on 127.0.0.1."
            )
        self.refused = 0
        self._begun = time.monotonic()
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        listener, data = _listen(address)
        try:
            self.address = Address(*listener.getsockname())
            self._layout = layout = PacketLayout(settings.values_per_packet, "raw")
            self._ports = PeerPorts(data, layout, ports=self.partitions.ports)
            self.partitions = replace(
                self.partitions, max_queued=self._ports.room, max_window=settings.window
            )
            hosted = HostedTrees if is_of_trees(program.program) else HostedSwitch
            self._switch: Hosted = hosted(self.partitions, settings.engine)
            self._traffic = PortTraffic(
                layout.frame_size - layout.header_offset,
                layout.header_offset,
                self.partitions.ports,
            )
            self._forwarding = Forwarding(self._ports, self._switch, self._traffic)
            self._selector = selectors.EpollSelector()  # of all but frames
            self._connections = Connections(listener, self._selector, self.partitions.ports)
        except BaseException:
            listener.close()
            data.close()
            raise
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._transport = settings.transport
        self._rings = None if self._transport == "udp" else self._open_rings()
        self._job_memory: dict[int, int] = {}  # descriptors, by partition
        self._jobs = Jobs(
            self,
            self.partitions.jobs,
            self.partitions.workers,
            self._connections.send,
            offer=self._offer(),
            released=self._release,
        )
        self._running = True
        self._is_closed = False

    def _open_rings(self) -> socket.socket | None:
        """The Unix socket at which workers of this machine ask for shared memory.

        Its name is random. Only workers that have joined receive it. It is in no file system.
        """
        bell: socket.socket | None = None
        rings = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name = f"innet-{secrets.token_hex(16)}"
            bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            rings.bind(f"\0{name}")
            bell.bind(f"\0{name}-bell")
        except OSError:  # a system without them: UDP is left
            rings.close()
            if bell is not None:
                bell.close()
            return None
        for each in (rings, bell):
            each.setblocking(False)
        self._ports.rings.bell = bell
        self._selector.register(rings, selectors.EVENT_READ, rings)
        return rings

    def _offer(self) -> Message | None:
        """The message to workers about shared memory."""
        if self._rings is None:
            return None
        name = self._rings.getsockname()[1:].decode()
        required = self._transport == "shm"
        return {"socket": name, "address": str(self.address), "required": required}

    @property
    def has_key(self) -> bool:
        """Whether clients must know a key."""
        return self._key is not None

    @property
    def has_workers(self) -> bool:
        """Whether there is a job."""
        return any(True for _ in self._jobs)

    def stop(self) -> None:
        """Make ``run`` return. May be called from a signal handler or another thread."""
        self._running = False
        self._rouse()

    def run(self) -> None:
        """Serve until ``stop``. Frames that have arrived by then are still answered."""
        try:
            look = time.monotonic() + _TURN
            while self._running:
                self._forward(look)
                self._turn(self._selector.select(0))
                if time.monotonic() >= look:
                    look = time.monotonic() + _TURN
                    for client in self._connections.expire(time.monotonic()):
                        self._jobs.gone(client.number)
            self._forward()
            for client in list(self._connections):
                self._connections.dismiss(client, {"stopping": True})
        finally:
            self.close()

    def close(self) -> None:
        """Close all connections. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._connections.close_all()
        self._ports.close()
        if self._rings is not None:
            self._rings.close()
        for descriptor in self._job_memory.values():
            os.close(descriptor)
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def statistics(self) -> dict[str, Any]:
        """The statistics; ``docs/service.md`` explains all keys."""
        parts = Parts(self._switch, self.partitions, self._ports, self._jobs, self._traffic)
        return {
            "switch": {
                "address": str(self.address),
                "program": self.partitions.program.name,
                "seconds": round(time.monotonic() - self._begun, 3),
                "clients": len(self._connections),
                "refused_requests": self.refused,
                "jobs_max": self.partitions.jobs,
                "workers_max": self.partitions.workers,
            },
            **statistics(parts, time.monotonic()),
        }

    def ask(self, question: Callable[[], T], seconds: float = 5.0) -> T:
        """Call ``question`` in the thread of ``run``, between two batches.

        Raises:
            StalledError: it took longer than ``seconds``; or whatever the question raises.
        """
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()

        def reply() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self._asked.put(reply)
        self._rouse()
        try:
            return answer.result(seconds)
        except concurrent.futures.TimeoutError:
            if answer.done():
                raise
            raise StalledError(f"the switch service did not answer within {seconds:g} s.") from None

    def _rouse(self) -> None:
        with contextlib.suppress(OSError):
            self._wake.send(b"\0")

    # ------------------------------------------------------------------ called by jobs

    def begin_epoch(self, job: JobCoordinator) -> Message:
        """See ``Switches``."""
        peers: dict[int, Address | RingPeer] = {}
        for worker in job.present:
            address = job.members[worker].address
            assert address is not None  # it is ready
            peers[self.partitions.port(job.partition, worker)] = address
        self._ports.assign(self._ports_of(job), peers)
        description = self.partitions.describe(job)
        self._switch.begin(job.partition, plan_of(description))
        return description

    def late_workers(self, job: JobCoordinator) -> frozenset[int]:
        """See ``Switches``."""
        return self._switch.late_workers(job.partition)

    def _ports_of(self, job: JobCoordinator) -> range:
        return range(
            self.partitions.port(job.partition, 0), self.partitions.port(job.partition + 1, 0)
        )

    def end_job(self, job: JobCoordinator) -> None:
        """See ``Switches``."""
        self._switch.end(job.partition)
        self._ports.assign(self._ports_of(job), {})
        for port in self._ports_of(job):
            self._traffic.reset(port)
        if job.partition in self._job_memory:
            os.close(self._job_memory.pop(job.partition))

    # ------------------------------------------------------------------ the loop

    def _turn(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        received = Received()
        for key, events in ready:
            if key.data is self._connections:
                self._connections.accept(time.monotonic())
            elif isinstance(key.data, Client):
                self._connections.serve(key.data, events, received)
            elif self._rings is not None and key.data is self._rings:
                self._take_ring_hellos()
            else:
                self._answer_threads()
        for client, line in received.lines:
            if not client.closing:  # since a line before this one: it would take a session for ever
                self._answer(client, line)
        for client in received.gone:
            self._jobs.gone(client.number)

    def _forward(self, until: float = 0.0) -> None:
        """Move frames until there is something else to do, or none arrive before ``until``."""
        looks, wake = _LOOKS, Wake(self._selector.fileno(), until)
        while looks:
            looks = self._forwarding.run(looks, wake)
            if self._ports.unknown_datagrams:
                self._take_hellos()

    def _answer_threads(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        with contextlib.suppress(queue.Empty):
            while True:
                self._asked.get_nowait()()

    def _take_hellos(self) -> None:
        for datagram in self._ports.unknown_datagrams:
            if self._transport != "shm" and _is_hello(datagram.data):
                known = self._jobs.hello(datagram.data[len(HELLO) :], datagram.sender)
                self._ports.counts.hellos += known
        self._ports.unknown_datagrams.clear()

    def _take_ring_hellos(self) -> None:
        """Make memory for workers who ask for it, and hand it to them."""
        assert self._rings is not None
        for _ in range(PeerPorts.max_unknown):
            try:
                text, sender = self._rings.recvfrom(PeerPorts.max_unknown_bytes)
            except OSError:
                return
            found = self._jobs.joined(text[len(HELLO) :]) if _is_hello(text) else None
            if found is None or not sender:
                continue
            job, member = found
            geometry = Geometry.of(self._layout, self.partitions.window(job.workers))
            if member.address is None:
                try:
                    if job.partition not in self._job_memory:
                        self._job_memory[job.partition] = create_sealed(job_memory.SIZE)
                    member.address = self._ports.rings.open(geometry)
                except RingError as error:
                    send_descriptors(self._rings, sender, str(error).encode(), [])
                    continue
            if isinstance(member.address, RingPeer):
                shared = self._job_memory[job.partition]
                member.address.send(self._rings, sender, geometry, shared)
                self._jobs.hello(member.token, member.address)

    def _release(self, member: JobMember) -> None:
        """A worker is gone, and its memory with it."""
        if isinstance(member.address, RingPeer):
            self._ports.rings.release(member.address)

    # ------------------------------------------------------------------ control

    def _answer(self, client: Client, line: bytes) -> None:
        try:
            message = decode(line)
            if client.deadline is not None:
                self._first(client, message)
            else:
                self._later(client, message)
        except InnetError as error:
            self.refused += 1
            self._jobs.gone(client.number)
            self._connections.dismiss(client, {"error": str(error)})

    def _first(self, client: Client, message: Message) -> None:
        client.deadline = None
        check_versions(message, "the client")
        check_proof(message, client.nonce, self._key)
        kind = message.get("request")
        if kind == "join":
            self._jobs.join(client.number, message)
        elif kind == "statistics":
            self._connections.send(client.number, {"statistics": self.statistics()})
        else:
            raise InputError(
                f"a connection begins with a request to join, or for statistics, not {kind!r:.40}."
            )

    def _later(self, client: Client, message: Message) -> None:
        kind = message.get("request")
        if kind == "renew":
            self._jobs.renew(client.number, message)
        elif kind == "leave":
            self._jobs.gone(client.number, left=True)
            self._connections.dismiss(client, {"left_job": True})
        elif kind == "statistics":
            self._connections.send(client.number, {"statistics": self.statistics()})
        elif kind == "read":
            self._connections.send(client.number, self._read(client, message))
        else:
            raise InputError(f"unknown request {kind!r:.40}.")

    def _read(self, client: Client, message: Message) -> Message:
        switch, name, index = (message.get(key) for key in ("switch", "register", "index"))
        if not (isinstance(switch, str) and isinstance(name, str) and isinstance(index, int)):
            raise InputError("a register has a switch, a name and an index.")
        partition = self._jobs.partition_of(client.number)
        return {"value": self._switch.read_register(partition, switch, name, index)}


def _is_hello(text: bytes) -> bool:
    return len(text) == len(HELLO) + TOKEN and text.startswith(HELLO)


def _listen(where: Address) -> tuple[socket.socket, socket.socket]:
    """A TCP and a UDP socket at the same address and port."""
    tries = 1 if where.udp_port else _PORT_TRIES
    for last in range(tries - 1, -1, -1):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            # Connections of an earlier service may still be closing.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(tuple(where))
            data.bind(listener.getsockname())
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            data.close()
            if last:
                continue
            raise NetworkError(
                f"cannot listen at {where}: {error.strerror}. The address must "
                "be one of this machine's, and the port free for TCP and UDP."
            ) from None
        return listener, data
    raise AssertionError("the last try returns or raises")
